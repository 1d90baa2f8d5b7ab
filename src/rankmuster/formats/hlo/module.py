"""The frame of an HLO module: header, computations and the tables of source lines.

Finds where each computation's body lies; does not look inside. Text as XLA prints it keeps its
instructions indented and everything else in the first column, and then only those lines are looked
at. Other text (indented as a whole, or one instruction over several lines) is walked bracket by
bracket.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
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
_SMALL = 1 << 17  # up to here walking every bracket costs a millisecond or two


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """One computation: its body lies in text[start:end], without the braces."""

    name: bytes
    start: int
    end: int
    thread: bytes = b'"main"'


@dataclass(frozen=True)
class Module:
    """The frame of a module.

    A computation's place is its number in text order. `headers`, `starts` and `ends` hold where
    each header begins and where its body starts and ends; a program has thousands of computations
    and few matter, so the rest of each is read when asked for.
    """

    text: Text
    name: str
    attributes: dict[bytes, bytes]
    headers: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]
    tables: tuple[tuple[int, int], ...]
    _known: dict[int, Computation] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[bytes, int]:
        """The place of each computation by its name."""
        return {name: place for place, name in enumerate(self._names)}

    @cached_property
    def _names(self) -> list[bytes]:
        text = self.text
        heads = [text[start : start + 80].split(None, 2) for start in self.headers]
        names = [(h[1] if h[0] == b"ENTRY" else h[0]) if len(h) > 2 else b"" for h in heads]
        return [
            name[1:] if name[:1] == b"%" and name[-1:] not in b"({" else self._name(place)
            for place, name in enumerate(names)
        ]

    def _name(self, place: int) -> bytes:
        match = _HEADER.match(self.text, self.headers[place])
        assert match is not None
        return match[2]

    @cached_property
    def entry(self) -> int:
        """The place of the ENTRY computation; where none is marked, XLA takes the last.

        XLA never prints such text, so under a header as XLA prints it the end is missing.
        """
        entries = [place for place, start in enumerate(self.headers) if self._is_entry(start)]
        if len(entries) > 1:
            raise malformed(
                self.text, self.headers[entries[1]], "a second ENTRY computation stands here"
            )
        if entries:
            return entries[0]
        if not self.headers or b"entry_computation_layout" in self.attributes:
            raise malformed(
                self.text,
                len(self.text),
                "the module is cut off: no ENTRY computation",
                fix="dump it again, whole",
            )
        return len(self.headers) - 1

    def _is_entry(self, start: int) -> bool:
        match = self.text[start : start + 6]
        return match[:5] == b"ENTRY" and match[5:].isspace()

    @property
    def is_scheduled(self) -> bool:
        """Whether the order of lines is the order of execution."""
        return self.attributes.get(b"is_scheduled") == b"true"

    def computation(self, place: int) -> Computation:
        """The computation at *place*."""
        if place not in self._known:
            close = self.ends[place] + 1
            rest, _ = attributes(self.text, close, min(close + 4096, len(self.text)))
            self._known[place] = Computation(
                name=self._names[place],
                start=self.starts[place],
                end=self.ends[place],
                thread=rest.get(b"execution_thread", b'"main"'),
            )
        return self._known[place]

    def place_of(self, position: int) -> int | None:
        """Which computation's body holds *position*."""
        place = bisect_right(self.starts, position) - 1
        return place if place >= 0 and position < self.ends[place] else None

    def count(self, name: bytes) -> int | None:
        """A count of the header, None where it is not stated."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not _COUNT.fullmatch(value) or int(value) < 1:
            raise malformed(self.text, 0, f"{name.decode()}={shown(value)} is not a count")
        return int(value)


_Frame = tuple[list[int], list[int], list[int], list[tuple[int, int]]]


def parse_module(text: Text, lines: list[int], opens: list[int]) -> Module:
    """Find the frame of the one module in *text*.

    *lines* are the lines that begin with neither blank nor digit, *opens* the line ends behind
    "{". Raises InvalidProgram for text that is no module, is cut off, holds several modules or
    has no ENTRY computation.
    """
    start = skip_space(text, 0, len(text))
    match = _MODULE.match(text, start)
    if match is None:
        raise malformed(text, start, "no HloModule here", fix="give HLO text as XLA prints it")
    header, position = attributes(text, match.end(), len(text))
    frame = None
    if len(text) >= _SMALL:
        frame = _by_columns(text, position, lines, opens)
    headers, starts, ends, tables = frame or _by_brackets(text, position)
    name = match[1].decode("utf-8", "replace")
    module = Module(text, name, header, headers, starts, ends, tuple(tables))
    _check_frame(module)
    return module


def _check_frame(module: Module) -> None:
    assert module.entry >= 0  # raises where there is none
    if len(module.by_name) != len(module.headers):
        seen: set[bytes] = set()
        for place in range(len(module.headers)):
            name = module.computation(place).name
            if name in seen:
                raise malformed(
                    module.text,
                    module.headers[place],
                    f"computation {shown(name)!r} is defined twice",
                )
            seen.add(name)


def _by_columns(text: Text, position: int, lines: list[int], opens: list[int]) -> _Frame | None:
    """The frame of text as XLA prints it; None where the first column does not tell it all."""
    lines = lines[bisect_left(lines, position) :]
    opens = opens[bisect_left(opens, position) :]
    tables = []
    computations = []
    for start in lines:
        if text[start] in b"FS" and text[start : start + 16].startswith(_TABLE_NAMES):
            table = _TABLE.match(text, start)
            tables.append(table.span() if table else (start, start))
        else:
            computations.append(start)
    # Headers and closing braces take turns, and each header's line ends in "{". No line inside a
    # body does: an indented computation would hide there.
    headers, ends = computations[::2], computations[1::2]
    if not headers or any(text[end] != ord("}") for end in ends):
        return None
    if any(text[start] in b"}H/" for start in headers) or len(opens) != len(headers):
        return None
    if any(text.find(b"\n", h) != o for h, o in zip(headers, opens, strict=True)):
        return None
    if len(headers) != len(ends):
        raise _cut_off(text, text[headers[-1] : headers[-1] + 80].split(b"(")[0].strip())
    return headers, opens, ends, tables


def _by_brackets(text: Text, position: int) -> _Frame:
    headers: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    tables: list[tuple[int, int]] = []
    end = len(text)
    while (position := skip_space(text, position, end)) < end:
        if table := _TABLE.match(text, position):
            tables.append(table.span())
            position = table.end()
            continue
        if _MODULE.match(text, position):
            raise _several(text, position)
        headers.append(position)
        start, close = _computation(text, position, end)
        starts.append(start)
        ends.append(close - 1)
        _, position = attributes(text, close, end)
    return headers, starts, ends, tables


def _computation(text: Text, position: int, end: int) -> tuple[int, int]:
    """Where the body of the computation at *position* starts, and the end of its last brace."""
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
    return brace + 1, close


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
