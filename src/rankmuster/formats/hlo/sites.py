"""Where the opcodes stand that matter: collectives, and the ops that call other computations.

A byte scan over the whole text; everything else is read only around what it finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
_OPCODE = re.compile(rb"[\s=]([a-z][a-z-]*+)\($")
_LONGEST = max(map(len, OPCODES)) + 2


def find_all(text: Text, needle: bytes, start: int = 0, end: int | None = None) -> Iterator[int]:
    """Every position of *needle* in text[start:end]."""
    end = len(text) if end is None else end
    position = text.find(needle, start, end)
    while position >= 0:
        yield position
        position = text.find(needle, position + 1, end)


def find_sites(text: Text) -> list[tuple[int, bytes]]:
    """(position, opcode) of every opcode of `OPCODES` that is followed by "(", ascending."""
    found = set()
    for needle in _NEEDLES:
        for position in find_all(text, needle):
            end = position + len(needle)
            match = _OPCODE.search(text[max(0, end - _LONGEST) : end])
            if match and match[1] in OPCODES:
                found.add((end - 1 - len(match[1]), match[1]))
    return sorted(found)
