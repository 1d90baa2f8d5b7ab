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
CLOSING = struct.Struct("<4sBBH")  # magic, version, "ready" or "go", zero; a no's causes follow
assert VERDICT.size == 0x11, "S0 §5: ncclBootstrapSend(..., 0x11)"
assert TICKET.size == 0x81, "S0 §5: ncclBootstrapSend(..., 0x81)"
assert BARRIER.size == 1
assert CLOSING.size == 8

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


def pack_closing(causes: bytes = b"") -> bytes:
    """Frame a report or an answer: *causes* make it a no, none a yes."""
    return CLOSING.pack(CLOSING_MAGIC, CLOSING_VERSION, not causes, 0) + causes


def unpack_closing(frame: bytes) -> bytes:
    """The causes of a no, or b"" for a yes."""
    head, causes = frame[: CLOSING.size], frame[CLOSING.size :]
    magic, version, flag, zero = _unpack(CLOSING, head, "closing")
    if (magic, version, zero) != (CLOSING_MAGIC, CLOSING_VERSION, 0):
        raise RemoteProtocolError(
            f"a closing frame begins with {head.hex()}",
            fix=f"expected {CLOSING_MAGIC!r}, version {CLOSING_VERSION}",
        )
    if _flag(flag, "closing") == bool(causes):
        raise RemoteProtocolError(
            f"a closing frame says {'yes with' if causes else 'no without'} causes"
        )
    return causes


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
