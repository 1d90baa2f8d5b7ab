"""Where the opcodes stand that matter: collectives, and the ops that call other computations.

A byte scan over the whole text; everything else is read only around what it finds.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rankmuster.formats.hlo.lines import Lines
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
DONES = frozenset(name + b"-done" for name in (*COLLECTIVES, *POINT_TO_POINT))
_OPCODES = (*COLLECTIVES, *STARTS, *POINT_TO_POINT, *DONES, *CALLERS)
OPCODES = dict(zip(_OPCODES, _OPCODES, strict=True))  # by their words: sites share the objects

# Each opcode of OPCODES ends in one of these; what a needle finds is then read backwards.
_NEEDLES = (
    *(name + b"(" for name in COLLECTIVES if name != b"ragged-all-to-all"),
    b"-start(",
    b"-done(",
    *(name + b"(" for name in (*POINT_TO_POINT, *CALLERS[:3])),
)
# Attributes that only collectives have: one on any other opcode is a collective newer than this.
OF_COLLECTIVES = (b"replica_groups=", b"source_target_pairs=")
# Fusions and custom calls are too many to be sites; they are looked at where a computation with
# collectives has no other caller.
CALLS = (b" calls=", b"to_apply=", b"computations=")
_GLUED = re.compile(rb"[=\]})]([a-z][a-z-]*+)$")
_LONGEST = max(map(len, OPCODES)) + 2
_COLUMN_ZERO = re.compile(rb"\n([^\x00- \d])")
_LINE_OPENS = re.compile(rb"\{\n")

_CHUNK = 1 << 18
_WORTH_ARRAYS = 1 << 17
_WORTH_IMPORTING = 1 << 23  # numpy costs as much to import as this many bytes to search


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over the bytes finds: (position, opcode) of each site, ascending; the lines.

    `marks` are the positions behind `OF_COLLECTIVES`, ascending.
    """

    sites: list[tuple[int, bytes]]
    marks: list[int]
    lines: Lines


def scan(text: Text) -> Scan:
    """Find all places of *text* that matter; by arrays where it is large."""
    return scan_by_arrays(text) if worth_arrays(text) else scan_by_search(text)


def behind(text: Text, needles: Sequence[bytes]) -> list[int]:
    """Where each of *needles* ends in *text*, ascending."""
    if not worth_arrays(text):
        return behind_by_search(text, needles)
    from rankmuster.formats.hlo import arrays

    return arrays.behind(text, needles)


def behind_by_search(text: Text, needles: Sequence[bytes]) -> list[int]:
    """`behind` by searching once for each needle."""
    return sorted(p + len(n) for n in needles for p in find_all(text, n))


def worth_arrays(text: Text) -> bool:
    """Whether *text* is so large that numpy saves time."""
    return len(text) >= (_WORTH_ARRAYS if "numpy" in sys.modules else _WORTH_IMPORTING)


def find_all(text: Text, needle: bytes) -> Iterator[int]:
    """Every position of *needle* in *text*; in copies, which are searched faster than a map is."""
    for low in range(0, len(text), _CHUNK):
        piece = text[low : low + _CHUNK + len(needle) - 1]
        position = piece.find(needle)
        while position >= 0:
            yield low + position
            position = piece.find(needle, position + 1)


def scan_by_search(text: Text) -> Scan:
    """`scan` by searching once for each needle."""
    brackets = {p + len(n) - 1 for n in _NEEDLES for p in find_all(text, n)}
    starts = array("q", [match.start(1) for match in _COLUMN_ZERO.finditer(text)])
    ends = array("q", [text.find(b"\n", start) for start in starts])
    if ends and ends[-1] < 0:
        ends[-1] = len(text)
    lines = Lines(
        starts=starts,
        ends=ends,
        firsts=bytes([text[start] for start in starts]),
        lasts=bytes([text[end - 1] for end in ends]),
        opening=sum(1 for _ in _LINE_OPENS.finditer(text)),
    )
    return Scan(_opcodes(text, sorted(brackets)), behind_by_search(text, OF_COLLECTIVES), lines)


def scan_by_arrays(text: Text) -> Scan:
    """`scan` with numpy, in memory that does not grow with *text*."""
    from rankmuster.formats.hlo import arrays

    brackets, marks, lines = arrays.scan(text, OPCODES, OF_COLLECTIVES)
    return Scan(_opcodes(text, brackets), marks, lines)


def _opcodes(text: Text, brackets: Iterable[int]) -> list[tuple[int, bytes]]:
    found = []
    for bracket in brackets:
        before = text[bracket - _LONGEST if bracket > _LONGEST else 0 : bracket]
        word = before[before.rfind(b" ") + 1 :]
        opcode = OPCODES.get(word)
        if opcode is None and not word.isalpha():  # a whole word, as "broadcast", is another op
            opcode = OPCODES.get(_last_word(before))
        if opcode:
            found.append((bracket - len(opcode), opcode))
    return found


def _last_word(before: bytes) -> bytes:
    words = before.split()
    word = words[-1] if words else b""
    glued = _GLUED.search(word)  # "u16[1]reduce-scatter(" needs no blank
    return glued[1] if glued else word
