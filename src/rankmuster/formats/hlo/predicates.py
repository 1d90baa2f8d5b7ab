"""What decides a branch: the rank, or data that all ranks share.

Follows the predicate back through operands, tuples and calls to partition-id, replica-id and
infeed. A collective that gives all devices the same value ends the search. Parameters of ENTRY
count as shared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rankmuster.formats.hlo.calls import Call
from rankmuster.formats.hlo.cones import callees
from rankmuster.formats.hlo.graph import Graph, Graphs
from rankmuster.formats.hlo.module import Module

_OF_RANK = frozenset((b"partition-id", b"replica-id", b"infeed", b"recv", b"recv-done"))
_MAX_STEPS = 200_000  # in one module; beyond, a predicate counts as rank's: it may differ
_DEEPEST_PATH = 32
_NUMBER = re.compile(rb"\d{1,9}")

_Path = tuple[int, ...]  # tuple indices still to be taken, outermost first


@dataclass(frozen=True, slots=True)
class Decided:
    """Who decides, and whether a constant that the text leaves out has a part in it."""

    by: Literal["rank", "data"]
    elided: bool


class Predicates:
    """Answers for the conditionals of one module.

    *shared* gives the collectives, by where they start, whose result is one on all devices.
    """

    def __init__(
        self,
        module: Module,
        graphs: Graphs,
        calls: Iterable[Call],
        shared: Callable[[], Container[int]],
    ) -> None:
        self._module, self._graphs, self._find_shared = module, graphs, shared
        self._steps = 0
        self._callers: dict[int, list[Call]] = defaultdict(list)
        for call in calls:
            for callee in call.callees:
                self._callers[callee].append(call)

    @cached_property
    def _shared(self) -> Container[int]:
        return self._find_shared()

    def of(self, call: Call) -> Decided:
        """What decides the conditional *call*."""
        graph = self._graphs.of(call.caller)
        start = graph.needs[graph.at(call.start)][:1]
        stack: list[tuple[int, int, _Path]] = [(call.caller, place, ()) for place in start]
        seen = set(stack)
        elided = False
        while stack and self._steps < _MAX_STEPS:
            self._steps += 1
            where, place, path = stack.pop()
            opcode = self._graphs.of(where).opcodes[place]
            if opcode in _OF_RANK:
                return Decided("rank", elided)
            literal = self._graphs.of(where).literals.get(place, b"")
            elided = elided or (opcode == b"constant" and b"..." in literal)
            for step in self._behind(where, place, path):
                if step not in seen:
                    seen.add(step)
                    stack.append(step)
        return Decided("rank" if stack else "data", elided)

    def _behind(self, where: int, place: int, path: _Path) -> list[tuple[int, int, _Path]]:
        graph = self._graphs.of(where)
        opcode, needs = graph.opcodes[place], graph.needs[place][: graph.operands[place]]
        if opcode == b"parameter":
            number = graph.literals.get(place, b"").strip()
            return self._arguments(where, int(number) if _NUMBER.fullmatch(number) else 0, path)
        if opcode == b"get-tuple-element":
            inner = (max(0, graph.instruction(place).index), *path)
            return [(where, need, inner[:_DEEPEST_PATH]) for need in needs]
        if opcode == b"tuple" and path:
            return [(where, need, path[1:]) for need in needs[path[0] : path[0] + 1]]
        if opcode in (b"while", b"call", b"fusion", b"conditional"):
            return self._through(graph, where, place, path)
        if self._start_of(graph, place) in self._shared:
            return []
        # Elementwise and all else: every operand may show in every part.
        return [(where, need, ()) for need in needs]

    def _through(
        self, graph: Graph, where: int, place: int, path: _Path
    ) -> list[tuple[int, int, _Path]]:
        """Behind the result of an instruction that calls: the roots of what it calls."""
        found: list[tuple[int, int, _Path]] = []
        opcode, needs = graph.opcodes[place], graph.needs[place]
        if opcode == b"while":  # no trip at all gives the initial value
            found.extend((where, need, path) for need in needs[:1])
        elif opcode == b"conditional":
            found.extend((where, need, ()) for need in needs[:1])
        attributes = graph.instruction(place).attributes
        for name in callees(graph.instruction(place)):
            if opcode == b"while" and attributes.get(b"body", b"").lstrip(b"%") != name:
                continue
            callee = self._module.names.place(name)
            if callee is not None:
                found.append((callee, self._graphs.of(callee).root, path))
        if opcode != b"while":
            # Computations without collectives are not among the known callers: take all operands.
            found.extend((where, need, ()) for need in needs)
        return found

    def _arguments(self, where: int, number: int, path: _Path) -> list[tuple[int, int, _Path]]:
        """Where parameter *number* of the computation at *where* comes from."""
        found: list[tuple[int, int, _Path]] = []
        for call in self._callers[where]:
            graph = self._graphs.of(call.caller)
            place = graph.at(call.start)
            operands = graph.needs[place][: graph.operands[place]]
            # A conditional's operand 0 is the predicate, then one follows per branch.
            is_branch = call.opcode == b"conditional"
            chosen = call.callees.index(where) + 1 if is_branch else number
            found.extend((call.caller, need, path) for need in operands[chosen : chosen + 1])
            if call.opcode == b"while":  # from the second trip on, what the body returned
                found.append((call.callees[-1], self._graphs.of(call.callees[-1]).root, path))
        return found

    def _start_of(self, graph: Graph, place: int) -> int:
        # A graph's starts may include the blanks before an instruction.
        return graph.instruction(place).start if b"-" in graph.opcodes[place] else -1
