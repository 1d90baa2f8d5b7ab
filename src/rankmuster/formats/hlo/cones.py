"""Instructions and computations without their names: a digest of all that one depends on."""

from __future__ import annotations

import re
from hashlib import blake2b

from rankmuster.formats.hlo.graph import Graph, read_graph
from rankmuster.formats.hlo.instruction import Instruction
from rankmuster.formats.hlo.module import Module

# What differs between equal programs, or is told by operands already.
_IGNORED = frozenset(
    (
        *(b"metadata", b"sharding", b"frontend_attributes", b"backend_config", b"channel_id"),
        *(b"origin", b"control-predecessors", b"operand_layout_constraints", b"statistics"),
    )
)
CALLED = frozenset(
    (
        *(b"to_apply", b"calls", b"body", b"condition", b"branch_computations"),
        *(b"true_computation", b"false_computation", b"called_computations", b"select"),
        *(b"scatter", b"comparator"),
    )
)
_LAYOUT = re.compile(rb"\{[^{}]*\}|/\*[^*]*\*/|\s+")
_CALLEE = re.compile(rb"[^\s,{}%]+")
_DEEPEST_CALL = 64


def callees(instruction: Instruction) -> list[bytes]:
    """The names of all computations that *instruction* calls, as its attributes list them."""
    return [
        name
        for key, value in instruction.attributes.items()
        if key in CALLED
        for name in _CALLEE.findall(value)
    ]


class Cones:
    """Digests of one module's instructions, computed where somebody asks."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._computations: dict[bytes, bytes] = {}

    def of(self, graph: Graph, depth: int = 0) -> list[bytes]:
        """A digest for each place of *graph*: opcode, shape, attributes and operands' digests."""
        digests: list[bytes] = []
        for place, needs in enumerate(graph.needs):
            operands = graph.operands[place]
            cone = blake2b(self._local(graph.instruction(place), depth), digest_size=16)
            cone.update(graph.literals.get(place, b"").replace(b" ", b""))
            for need in needs[:operands]:
                cone.update(digests[need])
            cone.update(b"".join(sorted(digests[need] for need in needs[operands:])))
            digests.append(cone.digest())
        return digests

    def computation(self, name: bytes, depth: int = 0) -> bytes:
        """A digest of the whole computation *name*, without names."""
        if name not in self._computations:
            place = self._module.names.place(name)
            if place is None or depth > _DEEPEST_CALL:
                return b"?"
            graph = read_graph(self._module.text, self._module.computation(place))
            whole = self.of(graph, depth)
            digest = blake2b(whole[graph.root] + b"".join(sorted(whole)), digest_size=16)
            self._computations[name] = digest.digest()
        return self._computations[name]

    def _local(self, instruction: Instruction, depth: int) -> bytes:
        parts = [instruction.opcode, _LAYOUT.sub(b"", instruction.shape_text)]
        for key, value in sorted(instruction.attributes.items()):
            if key in CALLED:
                called = [self.computation(name, depth + 1) for name in _CALLEE.findall(value)]
                parts.append(key + b"=" + b",".join(called))
            elif key not in _IGNORED:
                parts.append(key + b"=" + value.replace(b" ", b""))
        return b"\0".join(parts)
