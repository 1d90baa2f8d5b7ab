"""Frames on a byte stream: bounded, in order, each under a tag that only the two ends can make.

Knows no socket. A frame is a header, then the payload; the tag is keyed BLAKE2b over the frame's
position in the stream and everything else in it, so a frame that is altered, repeated, dropped or
moved to another group ends the connection. Small frames that leave together share one tag: they are
the payload of a frame of their own kind.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

from rankmuster.errors import LocalProtocolError, RemoteProtocolError

TAG_BYTES = 16
HEADER = struct.Struct("<16sIB16sII")  # tag, payload bytes, kind, group key, source, destination
INNER = struct.Struct("<IB16sII")  # the same without a tag: a frame among others
assert HEADER.size == TAG_BYTES + INNER.size == 45
COUNTER = struct.Struct("<Q")
NO_GROUP = bytes(16)


class Kind(IntEnum):
    """What a payload is; the numbers are on the wire."""

    CARD = 1  # to the root: who I am and what I hold
    ASK = 2  # from the root: hand in your program
    PROGRAM = 3
    PLAN = 4  # from the root: go on, and where the others listen; or what is wrong
    GONE = 5  # from the root: this process was lost
    CLOSING = 6  # to the root and back: ready or why not; go or no
    GROUP = 7  # between peers: a frame of the bootstrap or the barrier
    CALLER = 8  # between peers: a frame of the caller's own barriers and gathers
    STRANGERS = 9  # to the root: whom we turned away at our own door
    BATCH = 10  # several small frames under one tag


KINDS: dict[int, Kind] = {int(kind): kind for kind in Kind}  # quicker than Kind(number)
MIB = 1 << 20
BOUND = {
    Kind.CARD: MIB,
    Kind.ASK: 4096,
    Kind.PROGRAM: 80 * MIB,
    Kind.PLAN: 64 * MIB,
    Kind.GONE: 4096,
    Kind.CLOSING: MIB,
    Kind.GROUP: 4096,
    Kind.CALLER: 16 * MIB,
    Kind.STRANGERS: 4096,
    Kind.BATCH: 1 << 16,
}
"""The most that a payload of each kind may hold."""


class Frame(NamedTuple):
    """One message; `key`, `source` and `destination` (device ids) matter between peers only."""

    kind: Kind
    payload: bytes
    key: bytes = NO_GROUP
    source: int = 0
    destination: int = 0


def pack(frame: Frame) -> bytes:
    """A frame without its tag. Raises `LocalProtocolError` above the bound of its kind."""
    kind, payload, key, source, destination = frame
    if len(payload) > BOUND[kind]:
        raise LocalProtocolError(
            f"a {kind.name} frame of {len(payload)} bytes is over the bound of {BOUND[kind]}"
        )
    return INNER.pack(len(payload), kind, key, source, destination) + payload


class Sealer:
    """Turns packed frames into bytes for one direction of one connection."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def seal(self, packed: bytes) -> bytes:
        """The bytes of one frame."""
        tag = _tag(self._key, self._count, packed)
        self._count += 1
        return tag + packed

    def seal_all(self, packed: Iterable[bytes]) -> bytes:
        """The bytes of these frames, under as few tags as they have room in batches."""
        return b"".join([self.seal(_together(run)) for run in _runs(packed)])


def _runs(packed: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The same frames, as many together as go into a batch."""
    run: list[bytes] = []
    size = 0
    for each in packed:
        size += len(each)
        if run and size > BOUND[Kind.BATCH]:
            yield run
            run, size = [], len(each)
        run.append(each)
    if run:
        yield run


def _together(run: list[bytes]) -> bytes:
    return run[0] if len(run) == 1 else pack(Frame(Kind.BATCH, b"".join(run)))


class Opener:
    """Turns bytes of one direction of one connection back into frames."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take bytes as they came; return the frames that are now whole.

        Raises `RemoteProtocolError` for an unknown kind, a payload over its bound (before any of
        it is kept) and a tag that does not fit.
        """
        buffer = self._buffer
        buffer += chunk
        frames: list[Frame] = []
        at = 0
        while len(buffer) - at >= HEADER.size:
            tag, size, number, key, source, destination = HEADER.unpack_from(buffer, at)
            kind = _kind_of(number, size)
            end = at + HEADER.size + size
            if len(buffer) < end:
                break
            unsealed = bytes(buffer[at + TAG_BYTES : end])
            if not hmac.compare_digest(tag, _tag(self._key, self._count, unsealed)):
                raise RemoteProtocolError(f"frame {self._count} carries a wrong tag")
            self._count += 1
            payload = unsealed[INNER.size :]
            if kind is Kind.BATCH:
                frames += _apart(payload)
            else:
                frames.append(Frame(kind, payload, key, source, destination))
            at = end
        del buffer[:at]
        return frames


def _apart(batch: bytes) -> Iterator[Frame]:
    """The frames of a batch. Raises `RemoteProtocolError` where they are not whole."""
    end = 0
    while end < len(batch):
        start = end + INNER.size
        if start > len(batch):
            raise RemoteProtocolError("a batch ends inside a frame")
        size, number, key, source, destination = INNER.unpack_from(batch, end)
        kind, end = _kind_of(number, size), start + size
        if end > len(batch) or kind is Kind.BATCH:
            raise RemoteProtocolError("a batch ends inside a frame, or holds another")
        yield Frame(kind, batch[start:end], key, source, destination)


def _kind_of(number: int, size: int) -> Kind:
    """The kind, for a payload within its bound."""
    kind = KINDS.get(number)
    if kind is None:
        raise RemoteProtocolError(f"a frame of unknown kind {number}")
    if size > BOUND[kind]:
        raise RemoteProtocolError(
            f"a {kind.name} frame of {size} bytes is over the bound of {BOUND[kind]}"
        )
    return kind


def _tag(key: bytes, count: int, unsealed: bytes) -> bytes:
    tag = blake2b(COUNTER.pack(count), digest_size=TAG_BYTES, key=key)
    tag.update(unsealed)
    return tag.digest()
