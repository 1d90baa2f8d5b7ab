"""The order in which an unscheduled computation issues what it holds.

Any topological order of an unscheduled module is a legal text, so text order means nothing. The
order here depends on the graph alone: depth first from ROOT, operands as written, then control
predecessors, each instruction after all it needs. What ROOT does not need follows: the remaining
instructions without users, sorted by a digest of their own cone (opcode, operands, attributes;
no names). Two that tie have equal cones and may change places unseen.
"""

from __future__ import annotations

from collections.abc import Iterable

from rankmuster.formats.hlo.cones import Cones
from rankmuster.formats.hlo.graph import Graph


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
