"""A struct as a table of members with their offsets, and the ctypes structure that proves it.

The structure is laid out by the C rules of ctypes, with bytes filled in only where something stands
that nobody has published. An offset or size that does not come out as the table says fails at
import. Knows no particular struct.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import LittleEndianStructure
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

Ctype = type[Any]  # what ctypes takes as a member type; its own base class is private
Names = Sequence[str] | Mapping[int, str]
Summary = Callable[[bytes], tuple[Any, str]]

SCALARS: Mapping[str, Ctype] = MappingProxyType(
    {
        "bool": ctypes.c_uint8,  # not c_bool: an image may hold 2, and then should say so
        "byte": ctypes.c_uint8,  # raw: shown as hex
        "char": ctypes.c_char,
        "u8": ctypes.c_uint8,
        "u16": ctypes.c_uint16,
        "u32": ctypes.c_uint32,
        "u64": ctypes.c_uint64,
        "i32": ctypes.c_int32,
    }
)
ADDRESS = ctypes.c_uint64
SPELLED = re.compile(r"(?P<word>[\w:<>]+\*?)(?:\[(?P<count>\d+)\])?")  # like "u32[4]", "void*"
HOLE = "not_public_"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member: `word` is a scalar, a pointer ("u32*"), or the name of the struct `layout`.

    `count` is None for a single one. `names` are the words for its numbers: a sequence has one for
    every number there is, a mapping for those that mean something special.
    """

    offset: int
    name: str
    word: str
    count: int | None = None
    layout: Layout | None = None
    names: Names = ()
    note: str = ""

    @property
    def is_pointer(self) -> bool:
        """Whether it is an address of the process that the image is from."""
        return self.word.endswith("*")

    @property
    def is_hole(self) -> bool:
        """Whether nobody has published what stands here."""
        return self.name.startswith(HOLE)

    @property
    def element(self) -> Ctype:
        """The ctypes type of one element."""
        if self.layout is not None:
            return self.layout.structure
        return ADDRESS if self.is_pointer else SCALARS[self.word]

    @cached_property
    def ctype(self) -> Ctype:
        """The ctypes type of the whole member."""
        return self.element if self.count is None else self.element * self.count

    @cached_property
    def size(self) -> int:
        """Its bytes."""
        return ctypes.sizeof(self.ctype)

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.offset + self.size

    def __str__(self) -> str:
        return self.word if self.count is None else f"{self.word}[{self.count}]"


def at(
    offset: int,
    name: str,
    kind: str | Layout,
    count: int | None = None,
    *,
    names: Names = (),
    note: str = "",
) -> Member:
    """A member at *offset*: *kind* is spelled as in C ("u32[4]", "char*") or is a layout."""
    if isinstance(kind, Layout):
        return Member(offset=offset, name=name, word=kind.name, count=count, layout=kind, note=note)
    match = SPELLED.fullmatch(kind)
    assert match is not None, kind
    return Member(
        offset=offset,
        name=name,
        word=match["word"],
        count=int(match["count"]) if match["count"] else None,
        names=names,
        note=note,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """A struct of `size` bytes; `members` leave no byte out but what C pads.

    `summary` reads a container whose members mean something only together: it takes the struct's
    bytes and answers a value and a note.
    """

    name: str
    size: int
    members: tuple[Member, ...]
    structure: type[LittleEndianStructure]
    about: str = ""
    summary: Summary | None = None

    def place(self, path: str) -> tuple[int, Member]:
        """The offset and the member of a path like "comm.ring.channels[3].id".

        Raises KeyError for a path that does not exist.
        """
        base, layout = 0, self
        member: Member | None = None
        for name, index in re.findall(r"(\w+)(?:\[(\d+)\])?", path):
            member = next((each for each in layout.members if each.name == name), None)
            if member is None or int(index or 0) >= (member.count or 1):
                raise KeyError(path)
            base += member.offset + int(index or 0) * ctypes.sizeof(member.element)
            layout = member.layout or NOTHING
        if member is None:
            raise KeyError(path)
        return base, member

    def offset_of(self, path: str) -> int:
        """The offset of a member, also of one deeper down."""
        return self.place(path)[0]


def declare(
    name: str, size: int, *members: Member, about: str = "", summary: Summary | None = None
) -> Layout:
    """Make a layout from its known members, in order; what lies between becomes raw bytes."""
    filled = tuple(_fill(members, size))
    structure: type[LittleEndianStructure] = type(
        name, (LittleEndianStructure,), {"_fields_": [(each.name, each.ctype) for each in filled]}
    )
    for each in members:
        found = getattr(structure, each.name).offset
        assert found == each.offset, f"{name}.{each.name} is at {found}, not {each.offset}"
    assert ctypes.sizeof(structure) == size, f"{name} has {ctypes.sizeof(structure)} B, not {size}"
    return Layout(
        name=name, size=size, members=filled, structure=structure, about=about, summary=summary
    )


def _fill(members: Sequence[Member], size: int) -> Iterator[Member]:
    end, alignment = 0, 1
    for each in members:
        step = ctypes.alignment(each.ctype)
        if _rounded(end, step) < each.offset:
            yield _hole(end, each.offset)
        yield each
        end, alignment = each.end, max(alignment, step)
    if _rounded(end, alignment) < size:
        yield _hole(end, size)


def _rounded(offset: int, step: int) -> int:
    return -(-offset // step) * step


def _hole(start: int, end: int) -> Member:
    return Member(offset=start, name=f"{HOLE}{start}", word="byte", count=end - start)


NOTHING = declare("nothing", 0)
