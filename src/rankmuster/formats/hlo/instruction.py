"""One instruction: "[ROOT] [%]name = shape opcode(operands), attribute=value, ..."."""

from __future__ import annotations

import re

import msgspec

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.scanner import (
    Text,
    attributes,
    blank_comments,
    closing,
    malformed,
    shown,
    skip_space,
)
from rankmuster.formats.hlo.shapes import Shape, parse_shape, shape_end

NAME = rb'%?([^\s%=(){}\[\],"/]++)'
_START = re.compile(rb"\s*+(ROOT\s++)?+" + NAME + rb"\s++=\s*+")
_OPCODE = re.compile(rb"\s*+([A-Za-z][\w-]*+)\s*+\(")
_FLAT_OPERANDS = re.compile(rb'\(([^(){}"/\[]*+)\)')
_SHAPE_BEFORE = re.compile(rb"[^\s,()\[\]]++\[[^\]]*+\](?:[ \t]*+\{[^{}]*+\})?+")
METADATA = rb'\{(?:[^{}"\n]++|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+")*+\}'
_MAX_LINES = 64  # of one instruction, before its opcode
_NOT_IN_A_SHAPE = frozenset(b'("/= ')


class Instruction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One instruction as text, cut into its parts; *start* to *end* is where it stands."""

    name: bytes
    opcode: bytes
    shape_text: bytes
    operands_text: bytes
    attributes: dict[bytes, bytes]
    root: bool
    start: int
    site: int
    end: int

    @property
    def shape(self) -> Shape | None:
        """The result's shape, None where the text leaves it out."""
        return parse_shape(self.shape_text) if self.shape_text else None

    @property
    def label(self) -> str:
        """The name for people."""
        return self.name.decode("utf-8", "replace")

    @property
    def index(self) -> int:
        """Which part a get-tuple-element takes; -1 where the text does not say it in digits."""
        value = self.attributes.get(b"index", b"")
        return int(value) if value.isdigit() and len(value) < 10 else -1

    def operands(self) -> list[tuple[bytes, bytes]]:
        """(name, shape text or b"") of each operand."""
        return split_operands(self.operands_text)


def split_operands(text: bytes) -> list[tuple[bytes, bytes]]:
    """Cut "f32[8]{0} %a, /*index=1*/(f32[], u32[]) %b, c" into names and inline shapes."""
    if b"/" in text:
        text = blank_comments(text)
    if b"[" not in text and b"(" not in text:
        if b"," not in text and text:
            return [(text.strip().lstrip(b"%"), b"")]
        return [(part.strip().lstrip(b"%"), b"") for part in text.split(b",") if part.strip()]
    found = []
    position = skip_space(text, 0, len(text))
    while position < len(text):
        shape_stop = shape_end(text, position)
        stop = text.find(b",", shape_stop)
        stop = len(text) if stop < 0 else stop
        name = text[shape_stop:stop].strip().lstrip(b"%")
        found.append((name, text[position:shape_stop]))
        position = skip_space(text, stop + 1, len(text)) if stop < len(text) else stop
    return found


def parse_instruction(text: Text, start: int, end: int) -> Instruction:
    """Read the instruction that begins at *start*. Raises InvalidProgram where none does."""
    match = _START.match(text, start, end)
    if match is None:
        found = shown(text[start : min(end, start + 60)])
        raise malformed(text, start, f"an instruction is expected, not {found!r}")
    position = match.end()
    if text[position : position + 1] == b"(":
        shape_stop = closing(text, position, end)
    else:
        array = _SHAPE_BEFORE.match(text, position, end)
        shape_stop = array.end() if array else position
    opcode = _OPCODE.match(text, shape_stop, end)
    if opcode is None:
        found = shown(text[shape_stop : min(end, shape_stop + 40)])
        raise malformed(text, shape_stop, f"an opcode is expected, not {found!r}")
    bracket = opcode.end() - 1
    flat = _FLAT_OPERANDS.match(text, bracket, end)
    stop = flat.end() if flat else closing(text, bracket, end)
    given, after = attributes(text, stop, end)
    return Instruction(
        name=match[2],
        opcode=opcode[1],
        shape_text=text[position:shape_stop],
        operands_text=flat[1] if flat else text[bracket + 1 : stop - 1],
        attributes=given,
        root=match[1] is not None,
        start=match.start(2),
        site=opcode.start(1),
        end=after,
    )


def instruction_at(
    text: Text, position: int, low: int, high: int
) -> tuple[Instruction | None, int]:
    """The instruction that covers *position* in text[low:high], and where to go on behind it.

    None where *position* stands in a comment. *low* is where a body begins or an instruction ends:
    who reads positions in order passes on what it got, and no text is read twice.
    """
    start = _start_before(text, position, low)
    while start <= position:
        found = parse_instruction(text, start, high)
        if found.end > position:
            return found, found.end
        start = skip_space(text, found.end, high)
    return None, start


def _start_before(text: Text, position: int, low: int) -> int:
    """Where the last line before *position* begins that begins an instruction; else *low*."""
    line = position
    for _ in range(_MAX_LINES):
        line = text.rfind(b"\n", low, line)
        if line < low:
            break
        if _START.match(text, line + 1, position):
            return line + 1
    return skip_space(text, low, position)


def is_shape(text: bytes) -> bool:
    """Whether *text* is one shape and nothing else."""
    try:
        parse_shape(text)
    except InvalidProgram:
        return False
    return True
