"""The order in which an unscheduled computation issues what it holds.

Any topological order of an unscheduled module is a legal text, so text order means nothing. The
order here depends on the graph alone: depth first from ROOT, operands as written, then control
predecessors, each instruction after all it needs. What ROOT does not need follows: the remaining
instructions without users, sorted by a digest of their own cone (opcode, operands, attributes;
no names). Two that tie have equal cones and may change places unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from rankmuster.formats.hlo.cones import Cones
from rankmuster.formats.hlo.edges import read_edges
from rankmuster.formats.hlo.graph import Graph
from rankmuster.formats.hlo.scanner import Text

_TOGETHER = 1 << 18  # bytes of text that are looked at in one go
Held: TypeAlias = tuple[int, int, Sequence[int]]
"""Where a computation starts and ends, and the positions in it, ascending, of what it issues."""


def quick_orders(text: Text, computations: Sequence[Held]) -> Iterator[list[int] | None]:
    """For each of *computations* the positions of what it issues, in order.

    None where it is spelt in another way than XLA's, or ROOT does not need all that it issues: then
    it takes the whole graph.
    """
    batch: list[Held] = []
    size = 0
    for start, end, sites in computations:
        if size > _TOGETHER:
            yield from _quick_orders(text, batch)
            batch, size = [], 0
        batch.append((start, end, sites))
        size += end - start
    if batch:
        yield from _quick_orders(text, batch)


def _quick_orders(text: Text, batch: Sequence[Held]) -> Iterator[list[int] | None]:
    # Nothing above the first op can lead to one.
    lows = [text.rfind(b"\n", start, sites[0]) + 1 or start for start, _, sites in batch]
    bodies = [text[low:end] for low, (_, end, _) in zip(lows, batch, strict=True)]
    edges = read_edges(bodies)
    shifts = accumulate((len(body) for body in bodies), initial=0)
    wanted = [
        (site, site - low + shift)
        for low, shift, (_, _, sites) in zip(lows, shifts, batch, strict=False)
        for site in sites
    ]
    numbers = edges.numbers([start for _, start in wanted]) if edges else None
    if edges is None or numbers is None:
        if len(batch) == 1:
            yield None
        else:  # one of them is spelt otherwise
            half = len(batch) // 2
            yield from _quick_orders(text, batch[:half])
            yield from _quick_orders(text, batch[half:])
        return
    by_number = {number: site for number, (site, _) in zip(numbers, wanted, strict=True)}
    forks, roots = edges.forks(numbers)
    for root, (_, _, sites) in zip(roots, batch, strict=True):
        order = [by_number[number] for number in _depth_first(forks, root) if number in by_number]
        yield order if len(order) == len(sites) else None


def _depth_first(needs: Mapping[int, Sequence[int]], root: int) -> Iterator[int]:
    """Every number that *root* needs, after all that it needs itself."""
    seen: set[int] = set()
    stack = [root] if root in needs else []
    while stack:
        number = stack.pop()
        if number < 0:
            yield ~number
        elif number not in seen:
            seen.add(number)
            stack.append(~number)
            stack += reversed(needs[number])


def issue_order(graph: Graph, wanted: Iterable[int], cones: Cones) -> list[int]:
    """The places of *wanted* in the order they issue in; independent of text order and names."""
    left = set(wanted)
    seen = bytearray(len(graph.needs))
    order = [place for place in _post_order(graph, graph.root, seen) if place in left]
    left.difference_update(order)
    if left:
        for sink in _sinks(graph, seen, cones):
            order.extend(place for place in _post_order(graph, sink, seen) if place in left)
    return order


def _post_order(graph: Graph, root: int, seen: bytearray) -> list[int]:
    needs, order, stack = graph.needs, [], [root]
    while stack:
        place = stack.pop()
        if place < 0:  # ~place: all that it needs is out, now itself
            order.append(~place)
        elif not seen[place]:
            seen[place] = 1
            if needs[place]:
                stack.append(~place)
                stack.extend(needs[place][::-1])
            else:
                order.append(place)
    return order


def _sinks(graph: Graph, seen: bytearray, cones: Cones) -> list[int]:
    """The unseen instructions that nothing uses, in an order that no name decides."""
    used = bytearray(len(graph.needs))
    for place, needs in enumerate(graph.needs):
        if not seen[place]:
            for need in needs:
                used[need] = 1
    sinks = [i for i in range(len(graph.needs)) if not seen[i] and not used[i]]
    return sorted(sinks, key=cones.of(graph).__getitem__) if len(sinks) > 1 else sinks
