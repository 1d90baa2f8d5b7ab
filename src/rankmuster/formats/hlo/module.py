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

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.lines import Lines
from rankmuster.formats.hlo.names import HEADER, Names
from rankmuster.formats.hlo.scanner import (
    Text,
    attributes,
    beginning,
    closing,
    malformed,
    shown,
    skip_space,
)

_MODULE = re.compile(rb'HloModule\s++%?([^\s%=(){}\[\],"]++)')
_ARROW = re.compile(rb"\s*+->\s*+")
_RESULT = re.compile(rb"[^\s({]++(?:\{[^{}]*+\})?+")
_TABLE = re.compile(
    rb"(?:FileNames|FunctionNames|FileLocations|StackFrames)\b"
    rb'(?:\s++\d++\s++(?:"(?:[^"\\]|\\.)*+"|\{[^{}]*+\}))*+'
)
_TABLE_NAMES = (b"FileNames", b"FunctionNames", b"FileLocations", b"StackFrames")
_ENTRY = re.compile(rb"ENTRY\s")
_NO_HEADER = frozenset(b"}H/")
_MAIN = b'"main"'
_COUNT = re.compile(rb"\d{1,18}")
SMALL = 1 << 17  # up to here reading every line costs a few milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """One computation: its body lies in text[start:end], without the braces."""

    name: bytes
    start: int
    end: int


@dataclass(frozen=True)
class Module:
    """The frame of a module.

    A computation's place is its number in text order. `headers`, `starts` and `ends` hold where
    each header begins and where its body starts and ends; a program has thousands of computations
    and few matter, so the rest of each is read when asked for. `entry` is the place of ENTRY.
    """

    text: Text
    name: str
    attributes: dict[bytes, bytes]
    headers: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]
    tables: tuple[tuple[int, int], ...]
    names: Names
    entry: int
    _known: dict[int, Computation] = field(default_factory=dict)

    @property
    def is_scheduled(self) -> bool:
        """Whether the order of lines is the order of execution."""
        return self.attributes.get(b"is_scheduled") == b"true"

    def computation(self, place: int) -> Computation:
        """The computation at *place*."""
        if place not in self._known:
            self._known[place] = Computation(
                name=self.names.of(place), start=self.starts[place], end=self.ends[place]
            )
        return self._known[place]

    def thread(self, place: int) -> bytes:
        """The execution thread of the computation at *place*, with its quotes."""
        close = self.ends[place] + 1
        if self.text[close : close + 1] == b"\n":
            return _MAIN
        rest, _ = attributes(self.text, close, min(close + 4096, len(self.text)))
        return rest.get(b"execution_thread", _MAIN)

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


# Headers, their first bytes, where bodies start and end, tables.
_Frame = tuple[Sequence[int], bytes, Sequence[int], Sequence[int], list[tuple[int, int]]]


def parse_module(text: Text, lines: Lines, *, arrays: bool = False) -> Module:
    """Find the frame of the one module in *text*, whose lines of column zero are *lines*.

    With *arrays*, names are looked up by numpy. Raises InvalidProgram for text that is no module,
    is cut off, holds several modules or has no ENTRY computation.
    """
    start = beginning(text)
    match = _MODULE.match(text, start)
    if match is None:
        raise malformed(text, start, "no HloModule here", fix="give HLO text as XLA prints it")
    header, position = attributes(text, match.end(), len(text))
    frame = None
    if len(text) >= SMALL:
        frame = _by_columns(text, position, lines)
    headers, firsts, starts, ends, tables = frame or _by_brackets(text, position)
    return Module(
        text=text,
        name=match[1].decode("utf-8", "replace"),
        attributes=header,
        headers=headers,
        starts=starts,
        ends=ends,
        tables=tuple(tables),
        entry=_entry(text, headers, firsts, header),
        names=Names(text, headers, arrays=arrays),
    )


def _entry(text: Text, headers: Sequence[int], firsts: bytes, header: dict[bytes, bytes]) -> int:
    """The place of the ENTRY computation; where none is marked, XLA takes the last.

    XLA never prints such text, so under a header as XLA prints it the end is missing.
    """
    maybe = [match.start() for match in re.finditer(b"E", firsts)]
    entries = [place for place in maybe if _ENTRY.match(text, headers[place])]
    if len(entries) > 1:
        raise malformed(text, headers[entries[1]], "a second ENTRY computation stands here")
    if entries:
        return entries[0]
    if not headers or b"entry_computation_layout" in header:
        raise malformed(
            text,
            len(text),
            "the module is cut off: no ENTRY computation",
            fix="dump it again, whole",
        )
    return len(headers) - 1


def _by_columns(text: Text, position: int, lines: Lines) -> _Frame | None:
    """The frame of text as XLA prints it; None where the first column does not tell it all."""
    skip = bisect_left(lines.starts, position)
    starts, ends = lines.starts[skip:], lines.ends[skip:]
    firsts, lasts = bytearray(lines.firsts[skip:]), bytearray(lines.lasts[skip:])
    tables = []
    maybe = [match.start() for match in re.finditer(b"[FS]", firsts)]
    for n in reversed(maybe):
        if text[starts[n] : starts[n] + 16].startswith(_TABLE_NAMES):
            table = _TABLE.match(text, starts[n])
            tables.append(table.span() if table else (starts[n], starts[n]))
            del starts[n], ends[n], firsts[n], lasts[n]
    # Headers and closing braces take turns, and each header's line ends in "{". No line inside a
    # body does: an indented computation would hide there.
    count = len(starts[1::2])
    if not starts or firsts[1::2] != b"}" * count or not _NO_HEADER.isdisjoint(firsts[::2]):
        return None
    if lines.opening != len(starts[::2]) or lasts[::2] != b"{" * lines.opening:
        return None
    if count != lines.opening:
        raise _cut_off(text, text[starts[-1] : starts[-1] + 80].split(b"(")[0].strip())
    return starts[::2], bytes(firsts[::2]), ends[::2], starts[1::2], tables


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
    return headers, bytes([text[start] for start in headers]), starts, ends, tables


def _computation(text: Text, position: int, end: int) -> tuple[int, int]:
    """Where the body of the computation at *position* starts, and the end of its last brace."""
    match = HEADER.match(text, position, end)
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
