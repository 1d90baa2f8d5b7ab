"""What our own images point at: blocks of bytes at addresses that we make up.

An image of another process has no such blocks, and its pointers lead nowhere here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from rankmuster.abi.containers import VECTOR, VECTOR_BYTES
from rankmuster.errors import InvalidProgram

FIRST_ADDRESS = 0x7F00_0000_0000
ALIGNMENT = 16  # as malloc
ALL_BYTES_MAX = 1 << 30


class Memory:
    """Blocks by their address; a pointer that was not made here is refused, never followed."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytes] = {}
        self._stand_ins: dict[int, Any] = {}
        self._next = FIRST_ADDRESS

    def put(self, block: bytes) -> int:
        """Keep *block*; its address, 0 where it is empty."""
        if not block:
            return 0
        if self._next + len(block) > FIRST_ADDRESS + ALL_BYTES_MAX:
            raise InvalidProgram(f"images point at more than {ALL_BYTES_MAX} bytes")
        address = self._next
        self._blocks[address] = block
        self._next += -(-len(block) // ALIGNMENT) * ALIGNMENT
        return address

    def stand_in(self, thing: Any) -> int:
        """An address for an object of ours that has no bytes there; 0 for None."""
        if thing is None:
            return 0
        address = self.put(b"\0")
        self._stand_ins[address] = thing
        return address

    def stands_for(self, address: int) -> Any:
        """The object that `stand_in` gave this address, None for any other."""
        return self._stand_ins.get(address)

    def get(self, address: int, size: int) -> bytes:
        """The first *size* bytes of the block at *address*. Raises InvalidProgram without one."""
        if size == 0:
            return b""
        block = self._blocks.get(address, b"")
        if not 0 < size <= len(block):
            raise InvalidProgram(
                f"{size} bytes at {address:#x} are not part of this image", fix="pointers lead out"
            )
        return block[:size]

    def put_u32s(self, numbers: Iterable[int]) -> int:
        """Keep an array of u32."""
        held = tuple(numbers)
        return self.put(struct.pack(f"<{len(held)}I", *held))

    def get_u32s(self, address: int, count: int) -> tuple[int, ...]:
        """The array of *count* u32 at *address*."""
        return struct.unpack(f"<{count}I", self.get(address, 4 * count))

    def get_text(self, address: int) -> str:
        """The C string at *address*, empty for NULL."""
        block = self._blocks.get(address, b"") if address else b"\0"
        if b"\0" not in block:
            raise InvalidProgram(f"no text at {address:#x}", fix="pointers lead out")
        return block.partition(b"\0")[0].decode("utf-8", "replace")

    def put_vector(self, content: bytes) -> bytes:
        """The three pointers of a vector with this content."""
        begin = self.put(content)
        end = begin + len(content)
        return VECTOR.pack(begin, end, end)

    def get_vector(self, image: bytes) -> bytes:
        """The content of the vector with these three pointers."""
        begin, end, limit = VECTOR.unpack(image)
        if not begin <= end <= limit:
            raise InvalidProgram(f"no vector: begin {begin:#x}, end {end:#x}, storage {limit:#x}")
        return self.get(begin, end - begin)

    def put_u32_vector(self, numbers: Sequence[int]) -> bytes:
        """The image of a `vector<u32>`."""
        return self.put_vector(struct.pack(f"<{len(numbers)}I", *numbers))

    def get_u32_vector(self, image: bytes) -> tuple[int, ...]:
        """What a `vector<u32>` holds."""
        content = self.get_vector(image)
        return struct.unpack(f"<{len(content) // 4}I", whole(content, 4))

    def put_u32_lists(self, lists: Iterable[Sequence[int]]) -> bytes:
        """The image of a `vector<vector<u32>>`."""
        return self.put_vector(b"".join(map(self.put_u32_vector, lists)))

    def get_u32_lists(self, image: bytes) -> tuple[tuple[int, ...], ...]:
        """What a `vector<vector<u32>>` holds."""
        content = whole(self.get_vector(image), VECTOR_BYTES)
        starts = range(0, len(content), VECTOR_BYTES)
        return tuple(self.get_u32_vector(content[at : at + VECTOR_BYTES]) for at in starts)


def whole(content: bytes, element_bytes: int) -> bytes:
    """The content of a vector, if it holds whole elements."""
    if len(content) % element_bytes:
        raise InvalidProgram(f"{len(content)} bytes are no elements of {element_bytes}")
    return content
