"""The shape of an operand by its name, where the instruction itself does not repeat it.

Looks near the use first, then through the whole computation, and keeps nothing but the answers:
an index of all names would grow with the parts of a program that hold no collectives. It is made
only where many operands stand far away.
"""

from __future__ import annotations

import re
from collections import Counter

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.instruction import Instruction, parse_instruction
from rankmuster.formats.hlo.module import Computation
from rankmuster.formats.hlo.scanner import Text
from rankmuster.formats.hlo.shapes import Array, Shape, Tuple, parse_shape

_NEAR = 1 << 11, 1 << 14
_MAX_SEARCHES = 32  # of one computation, before an index of its names pays
_MAX_CHAIN = 16
_FOLLOWS_OPERAND = frozenset((b"copy", b"bitcast", b"negate", b"add", b"multiply", b"subtract"))
# param.2 = f32[4,16]{1,0} parameter(2)
_SHAPED = re.compile(
    rb'[^\s%=(){}\[\],"/]++ = ([a-z][a-z0-9]*+\[[\d,]*+\](?:\{[^{}\n]*+\})?+) [a-z]'
)
_DEFINED = re.compile(rb"^[ \t]*+(?:ROOT[ \t]++)?+%?([^\s%=(){}\[\],\"/]++)[ \t]++=", re.MULTILINE)


class Definitions:
    """Instructions of one module by computation and name."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._shapes: dict[tuple[int, bytes], Shape | None] = {}
        self._found: dict[tuple[bytes, bytes], Instruction | None] = {}
        self._searches: Counter[bytes] = Counter()
        self._index: dict[bytes, dict[bytes, int]] = {}

    def shape_of(self, computation: Computation, name: bytes, use: int) -> Shape | None:
        """The shape of *name*, used at *use*; None where it is not written and does not follow."""
        key = computation.start, name
        if key not in self._shapes:
            position = self._position(computation, name, use)
            usual = _SHAPED.match(self._text, position or 0, computation.end)
            found = parse_shape(usual[1]) if usual else self._follow(computation, name, use)
            self._shapes[key] = found
        return self._shapes[key]

    def _follow(self, computation: Computation, name: bytes, use: int) -> Shape | None:
        index: list[int] = []
        for _ in range(_MAX_CHAIN):
            found = self.instruction(computation, name, use)
            if found is None:
                return None
            if found.shape_text:
                return _part(found.shape, index)
            # "gte = get-tuple-element(a2a), index=0" and "x = add(a, b)" leave their shape out.
            operands = found.operands()
            if not operands:
                return None
            if found.opcode == b"get-tuple-element":
                index.append(found.index)
            elif found.opcode not in _FOLLOWS_OPERAND:
                return None
            if operands[0][1]:
                return None
            name = operands[0][0]
        return None

    def instruction(self, computation: Computation, name: bytes, use: int) -> Instruction | None:
        """The instruction that defines *name* in *computation*, before *use* or anywhere."""
        key = computation.name, name
        if key not in self._found:
            position = self._position(computation, name, use)
            self._found[key] = self._read(position, computation.end)
        return self._found[key]

    def _position(self, computation: Computation, name: bytes, use: int) -> int | None:
        for near in _NEAR:
            start = max(computation.start, use - near)
            found = _last_definition(self._text[start:use], name, 0, use - start)
            if found is not None:
                return start + found
        return self._far(computation, name)

    def _far(self, computation: Computation, name: bytes) -> int | None:
        self._searches[computation.name] += 1
        if self._searches[computation.name] <= _MAX_SEARCHES:
            return _last_definition(self._text, name, computation.start, computation.end)
        if computation.name not in self._index:
            lines = _DEFINED.finditer(self._text, computation.start, computation.end)
            self._index[computation.name] = {match[1]: match.start(1) for match in lines}
        return self._index[computation.name].get(name)

    def _read(self, position: int | None, end: int) -> Instruction | None:
        if position is None:
            return None
        try:
            return parse_instruction(self._text, position, end)
        except InvalidProgram:
            return None  # the same letters inside a string: not a definition


def _last_definition(text: Text, name: bytes, start: int, end: int) -> int | None:
    needle = name + b" ="
    position = text.rfind(needle, start, end)
    while position >= 0:
        if text[position - 1 : position] in (b"%", b" ", b"\n", b"\t", b"{", b""):
            return position
        position = text.rfind(needle, start, position)
    return None


def _part(shape: Shape | None, index: list[int]) -> Shape | None:
    for step in reversed(index):
        if isinstance(shape, Array) or shape is None or not 0 <= step < len(shape.parts):
            return None
        shape = shape.parts[step]
    return shape if isinstance(shape, Array | Tuple) else None
