"""What an image of a struct holds: one row for each member, as deep as the layout goes.

Any bytes will do: what is cut off, zero, not public or nonsense is said in the row's note.
Pointers are shown, never followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from rankmuster.abi.layout import Layout, Member

FOLDED_ABOVE_BYTES = 256  # a larger struct that is all zero takes one row
HEX_SHOWN_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One member of an image; `field` is its path, `value` is ready for JSON.

    `value` is None where there is no saying, and for a NULL pointer; addresses are hex text.
    """

    field: str
    offset: int
    size: int
    type: str
    value: Any = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The row as `rankmuster.image/1` holds it."""
        return {name: getattr(self, name) for name in self.__slots__}


def rows(layout: Layout, image: bytes, *, whole: bool = False) -> Iterator[Row]:
    """The members of the struct that *image* begins with, or that it holds a part of.

    Zero elements of arrays of structs, and large zero structs, fold into one row unless *whole*.
    """
    return _Reader(image=image[: layout.size], whole=whole).members(layout, 0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    image: bytes
    whole: bool

    def members(self, layout: Layout, base: int, prefix: str) -> Iterator[Row]:
        for each in layout.members:
            path = f"{prefix}{each.name}"
            if each.layout is None:
                yield self.plain(each, base + each.offset, path)
            elif each.count is None:
                yield from self.struct(each.layout, base + each.offset, path, each.note)
            else:
                yield from self.array(each, each.layout, base + each.offset, path)

    def struct(self, layout: Layout, offset: int, path: str, note: str) -> Iterator[Row]:
        """A struct in one row where it is a container, missing, or large and zero."""
        chunk = self.image[offset : offset + layout.size]
        row = partial(Row, field=path, offset=offset, size=layout.size, type=layout.name)
        if not chunk:
            yield row(note="beyond the end of the image")
        elif layout.summary is not None:
            cut = len(chunk) < layout.size
            value, said = (None, cut_off(chunk, layout.size)) if cut else layout.summary(chunk)
            yield row(value=value, note=joined(said, note))
        elif not self.whole and layout.size > FOLDED_ABOVE_BYTES and is_zero(chunk, layout.size):
            yield row(note="all zero")
        else:
            yield from self.members(layout, offset, f"{path}.")

    def array(self, member: Member, layout: Layout, offset: int, path: str) -> Iterator[Row]:
        """The elements of an array of structs; runs of zero or missing ones are one row."""
        assert member.count is not None

        def is_blank(number: int) -> bool:
            at = offset + number * layout.size
            chunk = self.image[at : at + layout.size]
            return not chunk or (not self.whole and is_zero(chunk, layout.size))

        for blank, run in groupby(range(member.count), is_blank):
            numbers = tuple(run)
            if blank:
                yield self.fold(layout, path, offset, numbers[0], numbers[-1] + 1)
                continue
            for number in numbers:
                at = offset + number * layout.size
                yield from self.struct(layout, at, f"{path}[{number}]", member.note)

    def fold(self, layout: Layout, path: str, base: int, first: int, end: int) -> Row:
        """The row of elements *first* to *end* - 1."""
        offset, size = base + first * layout.size, (end - first) * layout.size
        missing = offset + size > len(self.image)
        return Row(
            field=f"{path}[{first}..{end - 1}]" if end - first > 1 else f"{path}[{first}]",
            offset=offset,
            size=size,
            type=f"{layout.name}[{end - first}]",
            note="all zero, or beyond the end of the image" if missing else "all zero",
        )

    def plain(self, member: Member, offset: int, path: str) -> Row:
        """The row of a number, a pointer, a text, or an array of them."""
        chunk = self.image[offset : offset + member.size]
        if len(chunk) < member.size:
            value, note = None, cut_off(chunk, member.size)
        else:
            value, said = value_of(member, chunk)
            note = joined(said, member.note)
        return Row(
            field=path, offset=offset, size=member.size, type=str(member), value=value, note=note
        )


def is_zero(chunk: bytes, size: int) -> bool:
    """Whether *chunk* is all there and holds nothing but zero bytes."""
    return len(chunk) == size == chunk.count(0)


def cut_off(chunk: bytes, size: int) -> str:
    """What to say of a member that the image does not hold whole."""
    if not chunk:
        return "beyond the end of the image"
    return f"cut off: {len(chunk)} of {size} bytes, {chunk[:HEX_SHOWN_BYTES].hex()}"


def joined(*notes: str) -> str:
    """Notes in one line."""
    return "; ".join(filter(None, notes))


def value_of(member: Member, chunk: bytes) -> tuple[Any, str]:
    """The value of a member and what is remarkable about it."""
    if member.word == "char":
        return text_of(chunk)
    if member.word == "byte":
        return raw(member, chunk)
    width = member.size // (member.count or 1)
    numbers = [
        int.from_bytes(chunk[at : at + width], "little", signed=member.word.startswith("i"))
        for at in range(0, len(chunk), width)
    ]
    words = [word_of(member, number) for number in numbers]
    if member.count is None:
        return words[0]
    return [value for value, _ in words], next((note for value, note in words if value), "")


def word_of(member: Member, number: int) -> tuple[Any, str]:
    """One number as what it stands for."""
    if member.is_pointer:
        return (hex(number), "") if number else (None, "NULL")
    if member.word == "bool":
        return (bool(number), "") if number < 2 else (number, "neither 0 nor 1")
    if isinstance(member.names, Mapping):
        return number, member.names.get(number, "")
    if not member.names:
        return number, ""
    return number, member.names[number] if 0 <= number < len(member.names) else "no known value"


def text_of(chunk: bytes) -> tuple[str, str]:
    """A C string."""
    text, end, _ = chunk.partition(b"\0")
    return text.decode("utf-8", "replace"), "" if end else "no terminating zero"


def raw(member: Member, chunk: bytes) -> tuple[str | None, str]:
    """Raw bytes: as hex where they are few, else how many of them are set."""
    said = "not public" if member.is_hole else ""
    if len(chunk) <= HEX_SHOWN_BYTES:
        return chunk.hex(), said
    return None, joined(said, f"{len(chunk) - chunk.count(0)} of {len(chunk)} bytes are not zero")
