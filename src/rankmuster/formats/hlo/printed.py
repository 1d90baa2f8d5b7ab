"""One instruction as XLA prints it, whole on its line, cut around its opcode.

Programs repeat few shapes, so each is looked at once; names and operands are read every time. Any
other spelling is left to `instruction`.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from rankmuster.formats.hlo.scanner import Text

# "  ROOT %psum.3 = ", then a shape and a blank, then "all-reduce", then "(%add.1, %add.2)"
_HEAD = re.compile(rb'[ \t]*+(?:ROOT[ \t]++)?+%?([^\s%=(){}\[\],"/]++) = ')
_OPERANDS = re.compile(rb'\(([^(){}"/\[\n]*+)\)')
_SHAPE = re.compile(
    rb'(?:\((?:[^()"\n]++|\((?:[^()"\n]++|\([^()"\n]*+\))*+\))*+\)'  # ((f32[2]{0:T(8)}), u32[])
    rb'|[^\s"(]++(?:\([^()\s"]*+\)[^\s"(]*+)*+) '  # f32[8,4]{1,0:T(8,128)(2,1)}
)
_GOES_ON = re.compile(rb"\s*+,")  # on the next line, with its next attribute
# The last is twenty thousand ids written out; a longer line is walked.
_USUAL_REACH, _REACHES = 1 << 11, (1 << 12, 1 << 15, 1 << 18)

Cut: TypeAlias = tuple[int, int, bytes, bytes, bytes, bytes]
"""Where the name starts and the line ends; name, shape, text of operands, attributes."""


class Cutter:
    """Cuts lines of one text."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._shapes: dict[bytes, bytes] = {}

    def __call__(self, site: int, opcode: bytes, low: int, high: int) -> Cut | None:
        """The line in text[low:high] whose *opcode* stands at *site*; None if spelt otherwise."""
        text = self._text
        start = text.rfind(b"\n", low, site) + 1 or low
        at = site - start
        # Lines are copied: a map is searched much more slowly than bytes are.
        line = text[start : site + _USUAL_REACH]
        end = line.find(b"\n", at)
        if end < 0:
            line, end = self._long(start, at)
        head = _HEAD.match(line)
        operands = _OPERANDS.match(line, at + len(opcode))
        if head is None or operands is None or not 0 <= end <= high - start:
            return None
        if line[end + 1 : end + 4] != b"  %" and _GOES_ON.match(text, start + end, high):
            return None
        written = line[head.end() : at]
        shape = self._shapes.get(written)
        if shape is None:
            if _SHAPE.fullmatch(written) is None:
                return None
            shape = self._shapes[written] = written[:-1]
        tail = line[operands.end() : end]
        return start + head.start(1), start + end, head[1], shape, operands[1], tail

    def _long(self, start: int, at: int) -> tuple[bytes, int]:
        line, end = b"", -1
        for reach in _REACHES:
            line = self._text[start : start + at + reach]
            end = line.find(b"\n", at)
            if end >= 0:
                break
        return line, end
