"""The order in which an unscheduled computation issues what it holds.

Any topological order of an unscheduled module is a legal text, so text order means nothing. The
order here depends on the graph alone: depth first from ROOT, operands as written, then control
predecessors, each instruction after all it needs. What ROOT does not need follows: the remaining
instructions without users, sorted by a digest of their own cone (opcode, operands, attributes;
no names). Two that tie have equal cones and may change places unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rankmuster.formats.hlo.cones import Cones
from rankmuster.formats.hlo.edges import read_edges
from rankmuster.formats.hlo.graph import Graph
from rankmuster.formats.hlo.scanner import Text

_WORTH_ARRAYS = 1 << 14  # bytes of a computation


def quick_order(text: Text, start: int, end: int, wanted: Sequence[int]) -> list[int] | None:
    """The positions *wanted*, ascending, of instructions in text[start:end] in issuing order.

    None where that is small, is spelt in another way than XLA's, or holds a wanted one that ROOT
    does not need: then it takes the whole graph.
    """
    if end - start < _WORTH_ARRAYS:
        return None
    low = text.rfind(b"\n", start, wanted[0]) + 1 or start
    edges = read_edges(text[low:end])
    if edges is None:
        return None
    numbers = edges.numbers([site - low for site in wanted])
    if numbers is None:
        return None
    sites = dict(zip(numbers, wanted, strict=True))
    forks, root = edges.forks(numbers)
    order = [sites[number] for number in _depth_first(forks, root) if number in sites]
    return order if len(order) == len(wanted) else None


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
