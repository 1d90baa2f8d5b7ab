"""The def-use graph of one computation.

Knows names, opcodes and operands of every instruction; what they mean is for others.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from rankmuster.formats.hlo.instruction import (
    Instruction,
    is_shape,
    parse_instruction,
    split_operands,
)
from rankmuster.formats.hlo.module import Computation, Module
from rankmuster.formats.hlo.scanner import Text, blank_comments, malformed, shown, skip_space

# The instruction as nearly all are printed: an array shape or a tuple of them, flat operands and
# attributes, on one line of its own.
_LINE = re.compile(
    rb'[ \t]*+(ROOT[ \t]++)?+%?([^\s%=(){}\[\],"/]++)[ \t]++=[ \t]++'
    rb"(?:[a-z][a-z0-9]*+\[[\d,]*+\](?:\{[^}\n]*+\})?+[ \t]++"
    rb'|(\((?:[^()"]++|\((?:[^()"]++|\([^()"]*+\))*+\))*+\))[ \t]++)?+'
    rb'([a-z][a-z0-9-]*+)\(((?:[^()"/\[{]++|/\*index=\d++\*/)*+)\)'
    rb"((?:, [a-z_-]++="
    rb'(?:\{(?:[^{}"]++|\{[^{}"]*+\}|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+\}'
    rb'|\[[\d,]*+\]<=\[[\d,]*+\](?:T\([\d,]*+\))?|[^\s,{}()\[\]"]++))*+)'
)
_LEADING_COMMA = re.compile(rb"\n\s*+,")
_UNUSUAL_COMMENT = re.compile(rb"/\*(?!index=)")  # it may hide lines
_CONTROL = re.compile(rb"control-predecessors=\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Graph:
    """The def-use graph of one computation, by places in text order.

    `needs[i]` holds operands, then control predecessors. `literals` has the operand text of
    instructions that have no operands (parameter numbers, constants).
    """

    text: Text
    computation: Computation
    starts: list[int]
    names: dict[bytes, int]
    opcodes: list[bytes]
    needs: list[tuple[int, ...]]
    operands: list[int]
    literals: dict[int, bytes]
    root: int

    def at(self, position: int) -> int:
        """The place of the instruction that *position* lies in."""
        return bisect_right(self.starts, position) - 1

    def instruction(self, place: int) -> Instruction:
        """The instruction at *place*, read whole."""
        return parse_instruction(self.text, self.starts[place], self.computation.end)


def read_graph(text: Text, computation: Computation) -> Graph:
    """Read the names, opcodes and operands of every instruction of *computation*.

    Raises InvalidProgram for a line that is no instruction, and for an operand that is not
    defined before its use (XLA's parser demands the same, so no cycle can be written).
    """
    builder = _Builder(text, computation)
    builder.run()
    return builder.graph()


_NO_OPCODES = frozenset((b"send-update", b"recv-update"))  # only async ops have updates


def _flat_names(operands: bytes) -> list[bytes]:
    """The names in "%a, b, /*index=5*/%c", or in the same with shapes."""
    if b"[" in operands or b"(" in operands:
        return [name for name, _ in split_operands(operands)]
    if b"/" in operands:
        operands = blank_comments(operands)
    return operands.replace(b"%", b"").replace(b" ", b"").split(b",")


class _Builder:
    def __init__(self, text: Text, computation: Computation) -> None:
        self.text, self.computation = text, computation
        self.starts: list[int] = []
        self.names: dict[bytes, int] = {}
        self.opcodes: list[bytes] = []
        self.needs: list[tuple[int, ...]] = []
        self.operands: list[int] = []
        self.literals: dict[int, bytes] = {}
        self.root = -1

    def run(self) -> None:
        position, end = self.computation.start, self.computation.end
        body = self.text[position:end]
        if b"//" in body or _UNUSUAL_COMMENT.search(body):
            body = blank_comments(body)
        # Lines that begin with a comma continue the line above: then no line is whole by itself.
        usual = _LEADING_COMMA.search(body) is None
        skip_to = position
        for line in body.split(b"\n"):
            start, position = position, position + len(line) + 1
            if start < skip_to:  # the tail of an instruction over several lines
                continue
            match = _LINE.fullmatch(line) if usual else None
            if match is not None and (match[3] is None or is_shape(match[3])):
                root, name, _, opcode, operands, rest = match.groups()
                self._add(start, root, name, opcode, operands, rest)
            elif line and not line.isspace():
                skip_to = self._general(start, end)

    def _general(self, start: int, end: int) -> int:
        """Read the instructions that begin on one line; return where the last one ends."""
        text = self.text
        start = stop = skip_space(text, start, end)
        while start < end and b"\n" not in text[stop:start]:
            found = parse_instruction(text, start, end)
            if found.shape_text and not is_shape(found.shape_text):
                raise malformed(text, start, f"{shown(found.shape_text)!r} is not a shape")
            control = found.attributes.get(b"control-predecessors")
            rest = b"" if control is None else b"control-predecessors=" + control
            root = b"ROOT" if found.root else None
            self._add(start, root, found.name, found.opcode, found.operands_text, rest)
            stop, start = found.end, skip_space(text, found.end, end)
        return stop

    def _add(  # noqa: PLR0917  # the groups of _LINE, once for each line of a program
        self,
        start: int,
        root: bytes | None,
        name: bytes,
        opcode: bytes,
        operands: bytes,
        rest: bytes,
    ) -> None:
        place = len(self.starts)
        if name in self.names:
            raise malformed(self.text, start, f"instruction {shown(name)!r} is defined twice")
        if opcode in (b"parameter", b"constant") or not operands:
            self.literals[place] = operands
            needs: tuple[int, ...] = ()
        else:
            needs = self._resolve(start, operands)
        self.operands.append(len(needs))
        if b"control-predecessors=" in rest and (control := _CONTROL.search(rest)):
            needs += self._resolve(start, control[1])
        self.starts.append(start)
        self.opcodes.append(opcode)
        self.needs.append(needs)
        self.names[name] = place
        if root:
            if self.root >= 0:
                raise malformed(self.text, start, "a computation has one ROOT")
            self.root = place

    def _resolve(self, start: int, operands: bytes) -> tuple[int, ...]:
        """The places of the instructions that *operands* names, with or without shapes."""
        names = _flat_names(operands)
        try:
            return tuple([self.names[name] for name in names])
        except KeyError:
            names = [name.strip() for name in names if name.strip()]
            unknown = [name for name in names if name not in self.names]
            if not unknown:
                return tuple([self.names[name] for name in names])
            raise malformed(
                self.text,
                start,
                f"instruction {shown(unknown[0])!r} is not defined before its use",
            ) from None

    def graph(self) -> Graph:
        if not self.starts:
            raise malformed(
                self.text,
                self.computation.start,
                f"computation {shown(self.computation.name)!r} is empty",
            )
        for place, opcode in enumerate(self.opcodes):
            if opcode in _NO_OPCODES:
                what = f"unknown opcode {shown(opcode)!r}"
                raise malformed(self.text, self.starts[place], what)
        return Graph(
            self.text,
            self.computation,
            self.starts,
            self.names,
            self.opcodes,
            self.needs,
            self.operands,
            self.literals,
            self.root if self.root >= 0 else len(self.starts) - 1,
        )


class Graphs:
    """The graphs of one module, each read when first needed."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[int, Graph] = {}

    def of(self, place: int) -> Graph:
        """The graph of the computation at *place*."""
        if place not in self._known:
            self._known[place] = read_graph(self._module.text, self._module.computation(place))
        return self._known[place]
