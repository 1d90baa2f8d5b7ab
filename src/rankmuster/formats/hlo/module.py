"""The frame of an HLO module: header, computations and the tables of source lines.

Finds where each computation's body lies; does not look inside. Text as XLA prints it keeps its
instructions indented and everything else in the first column, and then only those lines are looked
at. Other text (indented as a whole, or one instruction over several lines) is walked bracket by
bracket.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.scanner import (
    Text,
    attributes,
    closing,
    malformed,
    shown,
    skip_space,
)

_NAME = rb'%?([^\s%=(){}\[\],"]++)'
_MODULE = re.compile(rb"HloModule\s++" + _NAME)
# ENTRY %main.0_spmd (param.1: f32[4,8]) -> f32[4,8] {        or just:  add {
_HEADER = re.compile(rb"(ENTRY\s++)?+" + _NAME + rb"\s*+")
_ARROW = re.compile(rb"\s*+->\s*+")
_RESULT = re.compile(rb"[^\s({]++(?:\{[^{}]*+\})?+")
_TABLE = re.compile(
    rb"(?:FileNames|FunctionNames|FileLocations|StackFrames)\b"
    rb'(?:\s++\d++\s++(?:"(?:[^"\\]|\\.)*+"|\{[^{}]*+\}))*+'
)
_TABLE_NAMES = (b"FileNames", b"FunctionNames", b"FileLocations", b"StackFrames")
_COUNT = re.compile(rb"\d{1,18}")
_LINE_OPENS = re.compile(rb"\{[ \t\r]*+\n")
_SMALL = 1 << 17  # up to here walking every bracket costs a millisecond or two


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """One computation: its body lies in text[start:end], without the braces."""

    name: bytes
    start: int
    end: int
    entry: bool = False
    thread: bytes = b'"main"'


@dataclass(frozen=True)
class Module:
    """The frame of a module; computations in text order, which is also by position."""

    text: Text
    name: str
    attributes: dict[bytes, bytes]
    computations: tuple[Computation, ...]
    tables: tuple[tuple[int, int], ...]

    @cached_property
    def by_name(self) -> dict[bytes, int]:
        """The place of each computation in `computations`."""
        return {comp.name: place for place, comp in enumerate(self.computations)}

    @cached_property
    def starts(self) -> list[int]:
        """Where the bodies start."""
        return [comp.start for comp in self.computations]

    @cached_property
    def entry(self) -> int:
        """The place of the ENTRY computation."""
        return next(i for i, comp in enumerate(self.computations) if comp.entry)

    @property
    def is_scheduled(self) -> bool:
        """Whether the order of lines is the order of execution."""
        return self.attributes.get(b"is_scheduled") == b"true"

    def place_of(self, position: int) -> int | None:
        """Which computation's body holds *position*."""
        place = bisect_right(self.starts, position) - 1
        return place if place >= 0 and position < self.computations[place].end else None

    def count(self, name: bytes) -> int | None:
        """A count of the header, None where it is not stated."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not _COUNT.fullmatch(value) or int(value) < 1:
            raise malformed(self.text, 0, f"{name.decode()}={shown(value)} is not a count")
        return int(value)


def parse_module(text: Text, lines: Sequence[int] | None = None) -> Module:
    """Find the frame of the one module in *text*.

    *lines* are the positions of all lines that do not start with a blank or a digit, when the
    caller has them already. Raises InvalidProgram for text that is no module, is cut off, holds
    several modules or has no ENTRY computation.
    """
    start = skip_space(text, 0, len(text))
    match = _MODULE.match(text, start)
    if match is None:
        raise malformed(text, start, "no HloModule here", fix="give HLO text as XLA prints it")
    header, position = attributes(text, match.end(), len(text))
    frame = None
    if len(text) >= _SMALL:
        frame = _by_columns(text, position, _column_zero(text) if lines is None else lines)
    computations, tables = frame or _by_brackets(text, position)
    computations = _with_entry(text, header, computations)
    module = Module(text, match[1].decode("utf-8", "replace"), header, computations, tables)
    _check_frame(module)
    return module


def _with_entry(
    text: Text, header: dict[bytes, bytes], computations: tuple[Computation, ...]
) -> tuple[Computation, ...]:
    """*computations* with one ENTRY: where none is marked, XLA takes the last.

    XLA never prints such text, so a header as XLA prints it then means that the end is missing.
    """
    entries = [comp for comp in computations if comp.entry]
    if len(entries) > 1:
        raise malformed(text, entries[1].start, "a second ENTRY computation stands here")
    if not computations or (not entries and b"entry_computation_layout" in header):
        raise malformed(
            text,
            len(text),
            "the module is cut off: no ENTRY computation",
            fix="dump it again, whole",
        )
    if entries:
        return computations
    return (*computations[:-1], replace(computations[-1], entry=True))


def _check_frame(module: Module) -> None:
    if len(module.by_name) != len(module.computations):
        seen: set[bytes] = set()
        for comp in module.computations:
            if comp.name in seen:
                raise malformed(
                    module.text, comp.start, f"computation {shown(comp.name)!r} is defined twice"
                )
            seen.add(comp.name)


def _column_zero(text: Text) -> list[int]:
    return [match.start() + 1 for match in re.finditer(rb"\n[^\s\d]", text)]


def _by_columns(
    text: Text, position: int, lines: Sequence[int]
) -> tuple[tuple[Computation, ...], tuple[tuple[int, int], ...]] | None:
    """The frame of text as XLA prints it; None where the first column does not tell it all."""
    computations: list[Computation] = []
    tables: list[tuple[int, int]] = []
    opened: tuple[bytes, int, bool] | None = None
    for start in lines:
        if start < position:
            continue
        if text[start : start + 1] == b"}":
            if opened is None:
                return None
            rest, _ = attributes(text, start + 1, min(start + 4096, len(text)))
            name, body, entry = opened
            thread = rest.get(b"execution_thread", b'"main"')
            computations.append(
                Computation(name=name, start=body, end=start, entry=entry, thread=thread)
            )
            opened = None
        elif opened is not None:
            return None
        else:
            end = text.find(b"\n", start)
            line = text[start : end if end >= 0 else len(text)].rstrip()
            if line.startswith(_TABLE_NAMES):
                table = _TABLE.match(text, start)
                tables.append(table.span() if table else (start, start))
            elif line.startswith(b"HloModule"):
                raise _several(text, start)
            elif line.endswith(b"{") and (match := _HEADER.match(line)):
                opened = match[2], start + len(line), match[1] is not None
            elif line[:2] != b"//":
                return None
    if opened is not None:
        raise _cut_off(text, opened[0])
    # A computation that is indented would hide inside another: then more lines end in a brace.
    opens = sum(1 for _ in _LINE_OPENS.finditer(text, position))
    return (tuple(computations), tuple(tables)) if opens == len(computations) else None


def _by_brackets(
    text: Text, position: int
) -> tuple[tuple[Computation, ...], tuple[tuple[int, int], ...]]:
    computations: list[Computation] = []
    tables: list[tuple[int, int]] = []
    end = len(text)
    while (position := skip_space(text, position, end)) < end:
        if table := _TABLE.match(text, position):
            tables.append(table.span())
            position = table.end()
            continue
        if _MODULE.match(text, position):
            raise _several(text, position)
        computation, position = _computation(text, position, end)
        computations.append(computation)
    return tuple(computations), tuple(tables)


def _computation(text: Text, position: int, end: int) -> tuple[Computation, int]:
    match = _HEADER.match(text, position, end)
    if match is None:
        found = shown(text[position : position + 40])
        raise malformed(text, position, f"a computation is expected, not {found!r}")
    brace = match.end()
    if text[brace : brace + 1] == b"(":
        brace = closing(text, brace, end)
        arrow = _ARROW.match(text, brace, end)
        if arrow is None:
            raise malformed(text, brace, "'->' and a shape are expected")
        brace = arrow.end()
        if text[brace : brace + 1] == b"(":
            brace = closing(text, brace, end)
        elif result := _RESULT.match(text, brace, end):
            brace = result.end()
        brace = skip_space(text, brace, end)
    if text[brace : brace + 1] != b"{":
        raise malformed(text, brace, f"'{{' is expected after computation {shown(match[2])!r}")
    try:
        close = closing(text, brace, end)
    except InvalidProgram as error:
        if "is not closed" in error.reason and skip_space(text, brace + 1, end) <= end:
            raise _cut_off(text, match[2]) from error
        raise
    rest, after = attributes(text, close, end)
    thread = rest.get(b"execution_thread", b'"main"')
    entry = match[1] is not None
    return (
        Computation(name=match[2], start=brace + 1, end=close - 1, entry=entry, thread=thread),
        after,
    )


def _several(text: Text, position: int) -> InvalidProgram:
    return malformed(
        text, position, "a second HloModule begins here", fix="give each module its own file"
    )


def _cut_off(text: Text, name: bytes) -> InvalidProgram:
    return malformed(
        text,
        len(text),
        f"the module is cut off: computation {shown(name)!r} is not closed",
        fix="dump it again, whole",
    )
