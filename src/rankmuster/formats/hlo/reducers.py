"""What a reducing op computes: the name of a standard reduction, or the computation's own text."""

from __future__ import annotations

import re

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.graph import Graph, read_graph
from rankmuster.formats.hlo.instruction import METADATA
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.scanner import shown

# facts E2: the opcode at the root of a two-parameter computation -> the reduce op's name.
_STANDARD = {
    b"add": "add",
    b"multiply": "mul",
    b"maximum": "max",
    b"minimum": "min",
    b"and": "and",
    b"or": "or",
    b"xor": "xor",
}
#   %x.1 = f32[] parameter(0)
#   %y.1 = f32[] parameter(1)
#   ROOT %add.3 = f32[] add(%x.1, %y.1), metadata={op_name="add"}
_NAME = rb'%?([^\s%=(){}\[\],"/]++)'
_SCALAR = rb" = [a-z][a-z0-9]*+\[\](?:\{\})?+ "
_END = rb"(?:, metadata=" + METADATA + rb")?+\n"
_PARAMETER = rb"\s*+" + _NAME + _SCALAR + rb"parameter\(([01])\)" + _END
_USUAL = re.compile(
    2 * _PARAMETER
    + rb"\s*+ROOT\s++%?[^\s=]++"
    + _SCALAR
    + rb"([a-z]++)\("
    + _NAME
    + rb", "
    + _NAME
    + rb"\)"
    + _END
    + rb"\s*+\Z"
)
_LAYOUT = re.compile(rb"\{[^{}]*\}|/\*[^*]*\*/|\s+")
_KEPT = (b"direction", b"index", b"dimensions", b"custom_call_target", b"slice", b"exponent_bits")


class Reducers:
    """The reductions of one module by the name of their computation; each is read once."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[bytes, tuple[str, bytes]] = {}

    def name_of(self, computation: bytes) -> tuple[str, bytes]:
        """(its name, as "add", or "custom:" and its canonical text; its execution thread).

        Raises InvalidProgram, without a position, where *computation* is b"" or not defined.
        """
        if computation not in self._known:
            place = self._module.names.place(computation)
            if place is None:
                what = f"computation {shown(computation)!r} is not defined"
                raise InvalidProgram(what if computation else "to_apply= is missing")
            self._known[computation] = self._read(place), self._module.thread(place)
        return self._known[computation]

    def _read(self, place: int) -> str:
        module = self._module
        usual = _USUAL.match(module.text, module.starts[place], module.ends[place])
        if usual is not None:
            one, i, two, j, opcode, left, right = usual.groups()
            if opcode in _STANDARD and i != j and {one, two} == {left, right}:
                return _STANDARD[opcode]
        graph = read_graph(self._module.text, self._module.computation(place))
        standard = _STANDARD.get(graph.opcodes[graph.root])
        operands = graph.needs[graph.root][: graph.operands[graph.root]]
        parameters = [graph.literals.get(need) for need in operands]
        if standard and sorted(p or b"" for p in parameters) == [b"0", b"1"]:
            opcodes = {graph.opcodes[need] for need in operands}
            if opcodes == {b"parameter"}:
                return standard
        return "custom:" + canonical_text(graph)


def canonical_text(graph: Graph) -> str:
    """The computation without names: "f32[] parameter(0);f32[] parameter(1);f32[] add(0,1)".

    Instructions stand in depth-first order from ROOT, so the order of lines does not show either.
    """
    order: dict[int, int] = {}
    lines: list[str] = []
    stack = [graph.root]
    while stack:
        place = stack[-1]
        fresh = [need for need in graph.needs[place] if need not in order]
        if place in order or not fresh:
            stack.pop()
            if place not in order:
                lines.append(_line(graph, place, order))
                order[place] = len(order)
        else:
            stack.extend(reversed(fresh))
    return ";".join(lines)


def _line(graph: Graph, place: int, order: dict[int, int]) -> str:
    instruction = graph.instruction(place)
    shape = _LAYOUT.sub(b"", instruction.shape_text).decode()
    inside = graph.literals.get(place)
    numbers = [str(order[need]) for need in graph.needs[place]]
    operands = ",".join(numbers) if inside is None else shown(inside, 200)
    kept = "".join(
        f",{key.decode()}={shown(instruction.attributes[key], 200)}"
        for key in _KEPT
        if key in instruction.attributes
    )
    return f"{shape} {instruction.opcode.decode()}({operands}){kept}"
