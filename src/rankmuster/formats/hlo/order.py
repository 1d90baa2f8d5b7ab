"""The order in which an unscheduled computation issues what it holds.

Any topological order of an unscheduled module is a legal text, so text order means nothing. The
order here depends on the graph alone: depth first from ROOT, operands as written, then control
predecessors, each instruction after all it needs. What ROOT does not need follows: the remaining
instructions without users, sorted by a digest of their own cone (opcode, operands, attributes;
no names). Two that tie have equal cones and may change places unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rankmuster.formats.hlo.cones import Cones
from rankmuster.formats.hlo.graph import CONTROL, LEADING_COMMA, LINE, Graph, flat_names
from rankmuster.formats.hlo.scanner import Text

_LITERAL = (b"parameter", b"constant")


def quick_order(text: Text, start: int, end: int, wanted: Sequence[int]) -> list[int] | None:
    """The positions *wanted*, ascending, of instructions in text[start:end] in issuing order.

    Reads one line after the other and keeps only what needs a wanted instruction: nothing else
    can lead to one. None where that does not tell: then it takes the whole graph.
    """
    position = text.rfind(b"\n", start, wanted[0]) + 1 or start
    body = text[position:end]
    if b"//" in body or LEADING_COMMA.search(body):
        return None
    needs: dict[bytes, list[bytes]] = {}
    found: dict[bytes, int] = {}
    root = name = b""
    for line in body.split(b"\n"):
        position += len(line) + 1
        match = LINE.fullmatch(line)
        if match is None:
            if line and not line.isspace():
                return None
            continue
        is_root, name, _, opcode, operands, rest = match.groups()
        root = name if is_root else root
        held: list[bytes] = []
        if needs and opcode not in _LITERAL:
            held = [each for each in flat_names(operands) if each in needs]
            if b"control-predecessors=" in rest and (control := CONTROL.search(rest)):
                held += [each for each in flat_names(control[1]) if each in needs]
        if len(found) < len(wanted) and wanted[len(found)] < position:
            found[name] = wanted[len(found)]
        elif not held:
            continue
        needs[name] = held
    order = _depth_first(needs, root or name)
    places = [found[each] for each in order if each in found]
    return places if len(places) == len(wanted) else None


def _depth_first(needs: dict[bytes, list[bytes]], root: bytes) -> Iterator[bytes]:
    """Every instruction that *root* needs, after all that it needs itself."""
    seen: set[bytes] = set()
    stack = [(root, False)] if root in needs else []
    while stack:
        name, is_open = stack.pop()
        if is_open:
            yield name
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack += [(need, False) for need in reversed(needs[name])]


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
