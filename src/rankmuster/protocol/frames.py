"""The bytes of every bring-up frame, packed and unpacked here and nowhere else.

It knows nothing of trees or of who sends what. What we would send wrongly is a
`LocalProtocolError`, what a peer sent wrongly a `RemoteProtocolError`; a flag is the byte 0 or 1.
"""

from __future__ import annotations

import struct
from typing import Any

from rankmuster.errors import LocalProtocolError, RemoteProtocolError

SIGNATURE_BYTES = 16
UNIQUE_ID_BYTES = 128

VERDICT = struct.Struct("<16sB")  # signature, "my subtree agrees" (facts D11)
TICKET = struct.Struct("<128sB")  # unique id, "the whole group agrees" (facts D12)
BARRIER = struct.Struct("<B")  # "nothing has failed, as far as I have heard"
CLOSING = struct.Struct(
    "<4sBBHI"
)  # magic, version, "ready" or "go", zero, bytes of causes that follow
assert VERDICT.size == 0x11, "S0 §5: ncclBootstrapSend(..., 0x11)"
assert TICKET.size == 0x81, "S0 §5: ncclBootstrapSend(..., 0x81)"
assert BARRIER.size == 1
assert CLOSING.size == 12

CLOSING_MAGIC = b"RMCL"
CLOSING_VERSION = 1
REPORT_BYTES = 16 << 10
ANSWER_BYTES = 256 << 10

NO_SIGNATURE = bytes(SIGNATURE_BYTES)
NO_UNIQUE_ID = bytes(UNIQUE_ID_BYTES)


def pack_verdict(signature: bytes, *, agrees: bool) -> bytes:
    """Frame a rank's own signature and whether its subtree agrees with it."""
    return _pack(VERDICT, signature, SIGNATURE_BYTES, "signature", flag=agrees)


def unpack_verdict(frame: bytes) -> tuple[bytes, bool]:
    """The child's signature, and whether its subtree agrees."""
    signature, flag = _unpack(VERDICT, frame, "verdict")
    return signature, _flag(flag, "verdict")


def pack_ticket(unique_id: bytes, *, agrees: bool) -> bytes:
    """Frame the group's unique id and the root's verdict."""
    return _pack(TICKET, unique_id, UNIQUE_ID_BYTES, "unique id", flag=agrees)


def unpack_ticket(frame: bytes) -> tuple[bytes, bool]:
    """The group's unique id, and whether the whole group agrees."""
    unique_id, flag = _unpack(TICKET, frame, "ticket")
    return unique_id, _flag(flag, "ticket")


def pack_barrier(*, well: bool) -> bytes:
    """Frame one round of the barrier: nothing has failed, or something has."""
    return BARRIER.pack(well)


def unpack_barrier(frame: bytes) -> bool:
    """Whether the sender has heard of no failure."""
    (flag,) = _unpack(BARRIER, frame, "barrier")
    return _flag(flag, "barrier")


def pack_closing(*, yes: bool, causes: bytes, at_most: int) -> bytes:
    """Frame the head of a report or an answer; *causes* is what will follow it, empty for a yes."""
    if yes == bool(causes) or len(causes) > at_most:
        raise LocalProtocolError(
            f"a closing frame says {'yes' if yes else 'no'} with {len(causes)} bytes of causes "
            f"(a no has 1 to {at_most}, a yes none)"
        )
    return CLOSING.pack(CLOSING_MAGIC, CLOSING_VERSION, yes, 0, len(causes))


def unpack_closing(frame: bytes, *, at_most: int) -> tuple[bool, int]:
    """Whether the sender says yes, and how many bytes of causes follow."""
    magic, version, flag, zero, length = _unpack(CLOSING, frame, "closing")
    if (magic, version, zero) != (CLOSING_MAGIC, CLOSING_VERSION, 0):
        raise RemoteProtocolError(
            f"a closing frame begins with {frame[:8].hex()}",
            fix=f"expected {CLOSING_MAGIC!r}, version {CLOSING_VERSION}",
        )
    yes = _flag(flag, "closing")
    if yes == bool(length) or length > at_most:
        raise RemoteProtocolError(
            f"a closing frame says {'yes' if yes else 'no'} with {length} bytes of causes "
            f"(a no has 1 to {at_most}, a yes none)"
        )
    return yes, length


def _pack(layout: struct.Struct, payload: bytes, size: int, name: str, *, flag: bool) -> bytes:
    if len(payload) != size:  # struct would pad or cut it in silence
        raise LocalProtocolError(f"a {name} has {size} bytes, not {len(payload)}")
    return layout.pack(payload, flag)


def _unpack(layout: struct.Struct, frame: bytes, name: str) -> tuple[Any, ...]:
    if len(frame) != layout.size:
        raise RemoteProtocolError(f"a {name} frame has {layout.size} bytes, not {len(frame)}")
    return layout.unpack(frame)


def _flag(flag: int, name: str) -> bool:
    if flag > 1:
        raise RemoteProtocolError(f"the flag of a {name} frame is 0 or 1, not {flag}")
    return flag == 1
