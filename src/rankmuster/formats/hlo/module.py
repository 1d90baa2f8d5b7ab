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
from itertools import repeat

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
_ENTRY = re.compile(rb"ENTRY\s")
_NOT_IN_NAMES = re.compile(rb'[\s=(){}\[\],"]')
_NO_HEADER = frozenset(b"}H/")
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
        return dict(zip(self._names, range(len(self.headers)), strict=True))

    @cached_property
    def _names(self) -> list[bytes]:
        text = self.text
        words = [text[start : start + 96].partition(b" ")[0] for start in self.headers]
        # "%name (" or "name {" nearly always; what has another character in it is matched.
        plain = _NOT_IN_NAMES.search(b"".join(words)) is None
        return [
            word.lstrip(b"%") if plain and word != b"ENTRY" else self._name(place)
            for place, word in enumerate(words)
        ]

    def _name(self, place: int) -> bytes:
        match = _HEADER.match(self.text, self.headers[place])
        if match is None:
            raise malformed(self.text, self.headers[place], "a computation has no name")
        return match[2]

    @cached_property
    def entry(self) -> int:
        """The place of the ENTRY computation; where none is marked, XLA takes the last.

        XLA never prints such text, so under a header as XLA prints it the end is missing.
        """
        text = self.text
        entries = [
            place
            for place, start in enumerate(self.headers)
            if text[start] == ord("E") and _ENTRY.match(text, start)
        ]
        if len(entries) > 1:
            raise malformed(
                text, self.headers[entries[1]], "a second ENTRY computation stands here"
            )
        if entries:
            return entries[0]
        if not self.headers or b"entry_computation_layout" in self.attributes:
            raise malformed(
                text,
                len(text),
                "the module is cut off: no ENTRY computation",
                fix="dump it again, whole",
            )
        return len(self.headers) - 1

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
    firsts = bytes(map(text.__getitem__, lines))
    tables = []
    if b"F" in firsts or b"S" in firsts:
        maybe = [n for n, first in enumerate(firsts) if first in b"FS"]
        places = [n for n in maybe if text[lines[n] : lines[n] + 16].startswith(_TABLE_NAMES)]
        for n in reversed(places):
            table = _TABLE.match(text, lines[n])
            tables.append(table.span() if table else (lines[n], lines[n]))
            del lines[n]
        firsts = bytes(map(text.__getitem__, lines))
    # Headers and closing braces take turns, and each header's line ends in "{". No line inside a
    # body does: an indented computation would hide there.
    headers, ends = lines[::2], lines[1::2]
    if not headers or firsts[1::2] != b"}" * len(ends) or not _NO_HEADER.isdisjoint(firsts[::2]):
        return None
    if list(map(text.find, repeat(b"\n"), headers)) != opens:
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
