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
    *(name + b"(" for name in (*POINT_TO_POINT, *CALLERS[:3])),
)
# Attributes that only collectives have: one on any other opcode is a collective newer than this.
_OF_COLLECTIVES = (b"replica_groups=", b"source_target_pairs=")
# Fusions and custom calls are too many to be sites; they are looked at where a computation with
# collectives has no other caller.
_CALLS = (b" calls=", b"to_apply=", b"computations=")
_BEFORE = b" \t\r\n=]})"  # what an opcode may follow
_GLUED = re.compile(rb"[=\]})]([a-z][a-z-]*+)$")
_LONGEST = max(map(len, OPCODES)) + 2
_COLUMN_ZERO = re.compile(rb"\n[^\s\d]")
_LINE_OPENS = re.compile(rb"\{\n")

_WORTH_ARRAYS = 1 << 17
_WORTH_IMPORTING = 1 << 23  # numpy costs as much to import as this many bytes to search
_MARGIN = 8
_CHUNK = 1 << 20  # large against the cost of a call, small against memory


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
        words = text[max(0, bracket - _LONGEST) : bracket].split()
        opcode = words[-1] if words else b""
        if opcode not in OPCODES:  # "u16[1]reduce-scatter(" needs no blank
            glued = _GLUED.search(opcode)
            opcode = glued[1] if glued else b""
        if opcode in OPCODES:
            found.append((bracket - len(opcode), opcode))
    return found


def scan_by_arrays(text: Text) -> Scan:
    """`scan` with numpy: one comparison per interesting byte, then the eight bytes before it.

    Memory holds one chunk and what is found, however long *text* is.
    """
    import numpy as np

    size = len(text)
    if size <= _MARGIN:
        return scan_by_search(text)
    view = np.frombuffer(text, np.uint8)
    # The same memory read as the two, and the eight, bytes that begin at each position.
    twos = np.ndarray((size - 1,), "<u2", buffer=text, strides=(1,))
    words = np.ndarray((size - 7,), "<u8", buffer=text, strides=(1,))
    ends_an_opcode = np.zeros(1 << 16, bool)
    ends_an_opcode[[int.from_bytes(name[-2:], "little") for name in OPCODES]] = True
    opcodes = _words([bytes((b,)) + name for name in OPCODES for b in _BEFORE])
    of_collectives = _words([name[:-1] for name in _OF_COLLECTIVES])
    calls = _words([name[:-1] for name in _CALLS])

    def known(word: Any, wanted: list[tuple[int, list[int]]]) -> Any:
        hits = np.zeros(len(word), bool)
        for mask, values in wanted:
            table = np.array([*values, (1 << 64) - 1], "<u8")
            masked = word & np.uint64(mask)
            hits |= table[np.searchsorted(table, masked)] == masked
        return hits

    found: dict[str, list[Any]] = {name: [] for name in ("(", "grouped", "called", "0", "{")}
    equal = np.empty(_CHUNK, bool)

    def positions(chunk: Any, byte: str) -> Any:
        """Where *byte* stands in *chunk*; the mask is reused, for fresh memory costs more."""
        return np.flatnonzero(np.equal(chunk, ord(byte), out=equal[: len(chunk)]))

    # No line, call or opcode begins before the end of the word HloModule.
    for low in range(_MARGIN, size, _CHUNK):
        chunk, before = view[low : low + _CHUNK], words[low - 8 :]
        at = positions(chunk, "\n")
        found["{"].append(at[view[low - 1 :][at] == ord("{")] + low)
        at = at[: -1 if low + _CHUNK >= size and at.size and at[-1] + low == size - 1 else None]
        first = view[low + 1 :][at]
        at, first = at[first > ord(" ")], first[first > ord(" ")]
        found["0"].append(at[(first < ord("0")) | (first > ord("9"))] + low + 1)
        at = positions(chunk, "(")
        at = at[ends_an_opcode[twos[low - 2 :][at]]]
        found["("].append(at[known(before[at], opcodes)] + low)
        at = positions(chunk, "=")
        last = view[low - 1 :][at]
        at = at[(last == ord("s")) | (last == ord("y"))]  # ..._groups=, calls=, to_apply=
        word = before[at]
        found["grouped"].append(at[known(word, of_collectives)] + low + 1)
        found["called"].append(at[known(word, calls)] + low + 1)
    lists: dict[str, list[int]] = {k: np.concatenate(v).tolist() for k, v in found.items()}
    return Scan(
        sites=_opcodes(text, lists["("]),
        grouped=lists["grouped"],
        called=lists["called"],
        lines=lists["0"],
        opens=lists["{"],
    )


def _words(names: Iterable[bytes]) -> list[tuple[int, list[int]]]:
    """The last eight bytes of each name as numbers, by the mask of the bytes that it has."""
    found: dict[int, set[int]] = {}
    for name in names:
        length = min(8, len(name))
        mask = int.from_bytes(bytes(8 - length) + b"\xff" * length, "little")
        word = int.from_bytes(name[-8:].rjust(8, b"\0"), "little")
        found.setdefault(mask, set()).add(word)
    return [(mask, sorted(values)) for mask, values in found.items()]
