"""Sixteen bytes that stand for a program or a part of it: on the wire, in images and in print."""

from __future__ import annotations

from typing import Self


class Digest(bytes):
    """A digest of 16 bytes. It is its own wire form; `str(digest)` and `digest.hex()` print it."""

    SIZE = 16

    def __new__(cls, data: bytes) -> Self:
        """Take the raw bytes; raises ValueError unless there are 16."""
        if len(data) != cls.SIZE:
            raise ValueError(f"a digest has {cls.SIZE} bytes, not {len(data)}")
        return super().__new__(cls, data)

    def __str__(self) -> str:
        return self.hex()

    def __repr__(self) -> str:
        return f"Digest({self.hex()})"
