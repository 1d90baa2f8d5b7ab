"""Images of our own values: members by their paths in, bytes out, and back.

What a member points at goes into a `Memory` and is found there again; no other pointer is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rankmuster.abi.containers import U32_LISTS, U32S
from rankmuster.abi.layout import Layout, Member
from rankmuster.abi.memory import Memory
from rankmuster.errors import InvalidProgram


def members_of(layout: Layout, thing: object) -> dict[str, Any]:
    """What *thing* holds under the names of the layout's members."""
    return {m.name: getattr(thing, m.name) for m in layout.members if hasattr(thing, m.name)}


def pack(layout: Layout, values: Mapping[str, Any], memory: Memory) -> bytes:
    """The image with these *values* by path ("comm.ci.rank"), and zero elsewhere.

    A pointer takes None, an address, bytes, text (as a C string) or a tuple of u32; a vector takes
    its elements, a nested struct its own image. Raises ValueError for a value that does not fit.
    """
    image = bytearray(layout.size)
    for path, value in values.items():
        offset, member = layout.place(path)
        held = to_bytes(member, value, memory)
        if len(held) != member.size:
            raise ValueError(f"{path} of {layout.name} takes {member.size} bytes, not {len(held)}")
        image[offset : offset + member.size] = held
    return bytes(image)


def to_bytes(member: Member, value: Any, memory: Memory) -> bytes:
    """The bytes of one member; ValueError where the value does not fit."""
    if member.layout is U32S:
        return memory.put_u32_vector(value)
    if member.layout is U32_LISTS:
        return memory.put_u32_lists(value)
    if isinstance(value, bytes) and not member.is_pointer:
        return value
    if member.is_pointer and member.count is None:
        return integer(address(value, memory), 8)
    width = member.size // (member.count or 1)
    numbers = [value] if member.count is None else value
    return b"".join(integer(each, width) for each in numbers)


def integer(value: int, width: int) -> bytes:
    """A number as C stores it: -1 and the largest of its width are the same bytes."""
    if not -(1 << 8 * width - 1) <= value < 1 << 8 * width:
        raise ValueError(f"{value} does not fit {width} bytes")
    return (int(value) % (1 << 8 * width)).to_bytes(width, "little")


def address(value: Any, memory: Memory) -> int:
    """The address of what a pointer is to point at, NULL for nothing."""
    if isinstance(value, int) or not value:
        return value or 0
    if isinstance(value, str):
        return memory.put(value.encode() + b"\0")
    return memory.put(value) if isinstance(value, bytes) else memory.put_u32s(value)


def unpack(layout: Layout, image: bytes, paths: Iterable[str], memory: Memory) -> dict[str, Any]:
    """The members of *image* at *paths*, by the last name of each.

    Vectors come as tuples, pointers as addresses. Raises InvalidProgram for an image of another
    size, a truth value that is none, and a vector that leads out of *memory*.
    """
    if len(image) != layout.size:
        raise InvalidProgram(f"{layout.name} takes {layout.size} bytes, not {len(image)}")
    found = {}
    for path in paths:
        offset, member = layout.place(path)
        part = image[offset : offset + member.size]
        try:
            found[member.name] = from_bytes(member, part, memory)
        except InvalidProgram as error:
            what = f"{path} of {layout.name}: {error.reason}"
            raise InvalidProgram(what, offset=offset, fix=error.fix) from None
    return found


def from_bytes(member: Member, part: bytes, memory: Memory) -> Any:
    """What one member holds."""
    if member.layout is U32S:
        return memory.get_u32_vector(part)
    if member.layout is U32_LISTS:
        return memory.get_u32_lists(part)
    if member.layout is not None or member.word == "byte":
        return part
    width = member.size // (member.count or 1)
    numbers = [
        int.from_bytes(part[at : at + width], "little", signed=member.word == "i32")
        for at in range(0, len(part), width)
    ]
    if member.word == "bool":
        if numbers[0] > 1:
            raise InvalidProgram(f"{numbers[0]} is neither 0 nor 1")
        return bool(numbers[0])
    return numbers[0] if member.count is None else tuple(numbers)
