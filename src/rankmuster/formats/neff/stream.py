"""The bytes of a NEFF's archive, going by once: unpacked if they are packed, within bounds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from rankmuster.errors import InvalidProgram
from rankmuster.formats.json_text import Buffer
from rankmuster.formats.neff.header import GZIP_MAGIC

CHUNK = 1 << 18
UNPACKED_BYTES_MAX = 8 << 30
RATIO_MAX, RATIO_FROM_BYTES = 200, 64 << 20  # weights and code pack a few times over, not this


def unpacked(data: Buffer, start: int, where: str) -> Iterator[bytes]:
    """The bytes of the tar, unpacked if they are gzip, a chunk at a time."""
    pieces = (data[at : at + CHUNK] for at in range(start, len(data), CHUNK))
    if data[start : start + len(GZIP_MAGIC)] != GZIP_MAGIC:
        return pieces
    return inflated(pieces, where)


def inflated(pieces: Iterator[bytes], where: str) -> Iterator[bytes]:
    """Unpack gzip; what follows its end is left alone."""
    unpacker = zlib.decompressobj(wbits=31)
    read = written = 0
    for piece in pieces:
        read += len(piece)
        rest = piece
        while rest and not unpacker.eof:
            try:
                chunk = unpacker.decompress(rest, CHUNK)
            except zlib.error as error:
                raise InvalidProgram(f"broken gzip data: {error}", where=where) from None
            written += len(chunk)
            if written > max(RATIO_FROM_BYTES, RATIO_MAX * read):
                what = f"{read} bytes unpack to {written} and more: over {RATIO_MAX} to one"
                raise InvalidProgram(what, where=where, fix="this is no NEFF of a compiler")
            yield chunk
            rest = unpacker.unconsumed_tail


@dataclass(slots=True, kw_only=True)
class Stream:
    """Bytes that go by once; `at` counts them."""

    chunks: Iterator[bytes]
    where: str
    at: int = 0
    _held: bytes = b""
    _used: int = 0

    def take(self, count: int, limit: int, what: str) -> bytes:
        """The next *count* bytes, which are *what*, in one piece of no more than *limit*."""
        if count > limit:
            raise self.error(f"{what} has {count} bytes, more than {limit}")
        return b"".join(self._pieces(count))

    def skip(self, count: int) -> None:
        """Let *count* bytes go by."""
        for _ in self._pieces(count):
            pass

    def ended(self) -> bool:
        """Whether nothing is left."""
        while self._used == len(self._held):
            if (chunk := next(self.chunks, None)) is None:
                return True
            self._held, self._used = chunk, 0
        return False

    def _pieces(self, count: int) -> Iterator[bytes]:
        if self.at + count > UNPACKED_BYTES_MAX:
            raise self.error(f"the archive holds more than {UNPACKED_BYTES_MAX} bytes")
        while count:
            if self.ended():
                raise self.error(f"the archive ends {count} bytes too early")
            piece = self._held[self._used : self._used + count]
            self._used += len(piece)
            self.at += len(piece)
            count -= len(piece)
            yield piece

    def error(self, what: str) -> InvalidProgram:
        """The error that *what* is wrong here, in bytes of the unpacked archive."""
        return InvalidProgram(f"{what} (byte {self.at} of the tar)", where=self.where)
