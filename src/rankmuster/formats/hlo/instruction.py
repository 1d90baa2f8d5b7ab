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

NAME = rb'%?([^\s%=(){}\[\],"]++)'
_START = re.compile(rb"\s*+(ROOT\s++)?+" + NAME + rb"\s++=\s*+")
_OPCODE = re.compile(rb"\s*+([A-Za-z][\w-]*+)\s*+\(")
_FLAT_OPERANDS = re.compile(rb'\(([^(){}"/\[]*+)\)')
_SHAPE_BEFORE = re.compile(rb"[^\s,()\[\]]++\[[^\]]*+\](?:[ \t]*+\{[^{}]*+\})?+")
_MAX_LINES_OF_SHAPE = 64  # a tuple shape may be written over several lines
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

    def operands(self) -> list[tuple[bytes, bytes]]:
        """(name, shape text or b"") of each operand."""
        return split_operands(self.operands_text)


def split_operands(text: bytes) -> list[tuple[bytes, bytes]]:
    """Cut "f32[8]{0} %a, /*index=1*/(f32[], u32[]) %b, c" into names and inline shapes."""
    if b"/" in text:
        text = blank_comments(text)
    if b"[" not in text and b"(" not in text:
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
    return _finish(text, match, text[position:shape_stop], shape_stop, end)


def instruction_at(text: Text, site: int, low: int, high: int) -> Instruction | None:
    """The instruction whose opcode stands at *site*, in a body text[low:high].

    None where the site turns out to stand inside a string or a comment.
    """
    line = site
    for _ in range(_MAX_LINES_OF_SHAPE):
        line = text.rfind(b"\n", low, line)
        start = max(line + 1, low)
        match = _START.match(text, start, site)
        if match:
            shape_text = text[match.end() : site].strip()
            if not shape_text or is_shape(shape_text):
                return _finish(text, match, shape_text, site, high)
            return _walk_to(text, site, start, high)
        if line < low or b"//" in text[start:site]:
            return None
    return None


def _walk_to(text: Text, site: int, start: int, high: int) -> Instruction | None:
    """Read on from *start*, where an instruction begins, to the one whose opcode is at *site*."""
    while start <= site:
        found = parse_instruction(text, start, high)
        if found.site == site:
            return found
        if found.end > site:
            return None
        start = skip_space(text, found.end, high)
    return None


def is_shape(text: bytes) -> bool:
    """Whether *text* is one shape and nothing else."""
    try:
        parse_shape(text)
    except InvalidProgram:
        return False
    return True


def _finish(
    text: Text, match: re.Match[bytes], shape_text: bytes, site: int, end: int
) -> Instruction:
    opcode = _OPCODE.match(text, site, end)
    if opcode is None:
        found = shown(text[site : min(end, site + 40)])
        raise malformed(text, site, f"an opcode is expected, not {found!r}")
    bracket = opcode.end() - 1
    flat = _FLAT_OPERANDS.match(text, bracket, end)
    stop = flat.end() if flat else closing(text, bracket, end)
    given, after = attributes(text, stop, end)
    return Instruction(
        name=match[2],
        opcode=opcode[1],
        shape_text=shape_text,
        operands_text=flat[1] if flat else text[bracket + 1 : stop - 1],
        attributes=given,
        root=match[1] is not None,
        start=match.start(2),
        site=opcode.start(1),
        end=after,
    )


def instruction_around(text: Text, position: int, low: int, high: int) -> Instruction | None:
    """The instruction whose text covers *position*, in a body text[low:high]; None if none does."""
    line = position
    for _ in range(_MAX_LINES_OF_SHAPE):
        line = text.rfind(b"\n", low, line)
        start = max(line + 1, low)
        if _START.match(text, start, high):
            found = parse_instruction(text, start, high)
            return found if found.end > position else None
        if line < low:
            return None
    return None
