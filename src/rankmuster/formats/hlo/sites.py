"""Where the opcodes stand that matter: collectives, and the ops that call other computations.

A byte scan over the whole text; everything else is read only around what it finds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rankmuster.formats.hlo.scanner import Text

COLLECTIVES = (
    b"all-reduce",
    b"all-gather",
    b"reduce-scatter",
    b"all-to-all",
    b"ragged-all-to-all",
    b"collective-broadcast",
    b"collective-permute",
)
POINT_TO_POINT = (b"send", b"recv")
CALLERS = (b"while", b"conditional", b"call", b"async-start")
STARTS = tuple(name + b"-start" for name in COLLECTIVES)
DONES = tuple(name + b"-done" for name in (*COLLECTIVES, *POINT_TO_POINT))
OPCODES = frozenset((*COLLECTIVES, *STARTS, *POINT_TO_POINT, *DONES, *CALLERS))

# Each opcode of OPCODES ends in one of these; what a needle finds is then read backwards.
_NEEDLES = (
    *(name + b"(" for name in COLLECTIVES if name != b"ragged-all-to-all"),
    b"-start(",
    b"-done(",
    *(b" " + name + b"(" for name in (*POINT_TO_POINT, *CALLERS[:3])),
)
# Attributes that only collectives have: one on any other opcode is a collective newer than this.
_OF_COLLECTIVES = (b"replica_groups=", b"source_target_pairs=")
# Fusions and custom calls are too many to be sites; they are looked at where a computation with
# collectives has no other caller.
_CALLS = (b"calls=", b"to_apply=", b"called_computations=")
_OPCODE = re.compile(rb"[\s=]([a-z][a-z-]*+)\($")
_LONGEST = max(map(len, OPCODES)) + 2
_COLUMN_ZERO = re.compile(rb"\n[^\s\d]")
_LINE_OPENS = re.compile(rb"\{\n")

_WORTH_ARRAYS = 1 << 17
_WORTH_IMPORTING = 1 << 23  # numpy costs as much to import as this many bytes to search
_CHUNK = 1 << 18  # stays in the cache between the passes


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over the bytes finds, all ascending.

    `sites` are (position, opcode); `grouped` and `called` are where attributes of collectives and
    attributes that name computations end, behind their "="; `lines` are the lines that begin with
    neither blank nor digit; `opens` are the line ends behind a "{".
    """

    sites: list[tuple[int, bytes]]
    grouped: Sequence[int]
    called: Sequence[int]
    lines: list[int]
    opens: list[int]


def scan(text: Text) -> Scan:
    """Find all places of *text* that matter; by arrays where it is large."""
    enough = _WORTH_ARRAYS if "numpy" in sys.modules else _WORTH_IMPORTING
    return scan_by_arrays(text) if len(text) >= enough else scan_by_search(text)


def find_all(text: Text, needle: bytes, start: int = 0, end: int | None = None) -> Iterator[int]:
    """Every position of *needle* in text[start:end]."""
    end = len(text) if end is None else end
    position = text.find(needle, start, end)
    while position >= 0:
        yield position
        position = text.find(needle, position + 1, end)


def scan_by_search(text: Text) -> Scan:
    """`scan` by searching once for each needle."""
    brackets = {p + len(n) - 1 for n in _NEEDLES for p in find_all(text, n)}
    return Scan(
        sites=_opcodes(text, sorted(brackets)),
        grouped=sorted(p + len(n) for n in _OF_COLLECTIVES for p in find_all(text, n)),
        called=sorted(p + len(n) for n in _CALLS for p in find_all(text, n)),
        lines=[match.start() + 1 for match in _COLUMN_ZERO.finditer(text)],
        opens=[match.start() + 1 for match in _LINE_OPENS.finditer(text)],
    )


def _opcodes(text: Text, brackets: Iterable[int]) -> list[tuple[int, bytes]]:
    found = []
    for bracket in brackets:
        match = _OPCODE.search(text[max(0, bracket + 1 - _LONGEST) : bracket + 1])
        if match and match[1] in OPCODES:
            found.append((bracket - len(match[1]), match[1]))
    return found


def scan_by_arrays(text: Text) -> Scan:
    """`scan` with numpy: one comparison per interesting byte, then the eight bytes before it.

    Memory holds one chunk and what is found, however long *text* is.
    """
    import numpy as np

    size = len(text)
    view = np.frombuffer(text, np.uint8)
    # The same memory read as the eight bytes that begin at each position.
    words = np.ndarray((max(0, size - 7),), "<u8", buffer=text, strides=(1,))
    endings = {
        "(": _words([b" " + name for name in OPCODES]),
        "grouped": _words([name[:-1] for name in _OF_COLLECTIVES]),
        "called": _words([b" calls", *(name[:-1] for name in _CALLS[1:])]),
    }

    def behind(ends: Any, known: list[tuple[int, int]]) -> Any:
        """Those of *ends* (positions of the byte behind a word) whose word is *known*."""
        ends = ends[ends >= 8]
        word = words[ends - 8]
        hits = np.zeros(len(ends), bool)
        for value, mask in known:
            hits |= (word & np.uint64(mask)) == np.uint64(value)
        return ends[hits]

    lines, opens, brackets, grouped, called = [], [], [], [], []
    for low in range(0, size, _CHUNK):
        chunk = view[low : low + _CHUNK]
        ends = np.flatnonzero(chunk == ord("\n")) + low
        first = view[np.minimum(ends + 1, size - 1)]
        lines.append(ends[(first > 32) & ((first < ord("0")) | (first > ord("9")))] + 1)
        opens.append(ends[view[ends - 1] == ord("{")])
        ends = np.flatnonzero(chunk == ord("(")) + low
        before = view[ends - 1]  # opcodes of OPCODES end in one of these letters
        letters = np.zeros(len(ends), bool)
        for letter in b"erltdv":
            letters |= before == letter
        brackets.append(behind(ends[letters], endings["("]))
        ends = np.flatnonzero(chunk == ord("=")) + low
        ends = ends[view[ends - 1] == ord("s")] if False else ends
        grouped.append(behind(ends, endings["grouped"]) + 1)
        called.append(behind(ends, endings["called"]) + 1)

    def joined(parts: list[Any]) -> list[int]:
        found: list[int] = np.concatenate(parts).tolist() if parts else []
        return found

    return Scan(
        sites=_opcodes(text, joined(brackets)),
        grouped=joined(grouped),
        called=joined(called),
        lines=joined(lines),
        opens=joined(opens),
    )


def _words(names: Iterable[bytes]) -> list[tuple[int, int]]:
    """(value, mask) of the last eight bytes of each name, shorter ones masked; each once."""
    found = set()
    for name in names:
        word = name[-8:].rjust(8, b"\0")
        mask = bytes(8 - min(8, len(name))) + b"\xff" * min(8, len(name))
        found.add((int.from_bytes(word, "little"), int.from_bytes(mask, "little")))
    return sorted(found)
