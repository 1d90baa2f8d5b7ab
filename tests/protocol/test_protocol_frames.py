"""Bytes of the wire: what S0 fixes, and what is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.errors import LocalProtocolError, RemoteProtocolError
from rankmuster.protocol import frames
from rankmuster.protocol.causes import MESSAGE_CHARS, Cause, decode, encode
from rankmuster.protocol.unique_id import NONCE_BYTES, UniqueId, unpack_unique_id

UNPACKERS = [
    frames.unpack_verdict,
    frames.unpack_ticket,
    frames.unpack_barrier,
    frames.unpack_closing,
    decode,
    unpack_unique_id,
]


def test_verdict_is_a_signature_and_a_flag() -> None:
    """A verdict is 17 bytes: the signature as it is, then 0 or 1."""
    assert frames.pack_verdict(b"s" * 16, agrees=True) == b"s" * 16 + b"\x01"
    assert frames.unpack_verdict(b"s" * 16 + b"\x00") == (b"s" * 16, False)


def test_ticket_is_a_unique_id_and_a_flag() -> None:
    """A ticket is 129 bytes: the unique id as it is, then 0 or 1."""
    assert frames.pack_ticket(b"u" * 128, agrees=False) == b"u" * 128 + b"\x00"
    assert frames.unpack_ticket(b"u" * 128 + b"\x01") == (b"u" * 128, True)


def test_local_mistakes_are_not_padded_or_cut() -> None:
    """A signature or id of another size is our own error, not a silent change."""
    for wrong in (b"", b"s" * 15, b"s" * 17):
        with pytest.raises(LocalProtocolError, match=f"16 bytes, not {len(wrong)}"):
            frames.pack_verdict(wrong, agrees=True)
    with pytest.raises(LocalProtocolError, match="128 bytes, not 127"):
        frames.pack_ticket(b"u" * 127, agrees=True)


@pytest.mark.parametrize("unpack", UNPACKERS)
def test_wrong_size_is_a_remote_error(unpack) -> None:
    """No unpacker accepts an empty frame."""
    with pytest.raises(RemoteProtocolError):
        unpack(b"")


@pytest.mark.parametrize("flag", [2, 255])
def test_flags_are_zero_or_one(flag: int) -> None:
    """Any other byte where a flag stands is refused, never taken for true."""
    for frame, unpack in (
        (b"s" * 16, frames.unpack_verdict),
        (b"u" * 128, frames.unpack_ticket),
        (b"", frames.unpack_barrier),
    ):
        with pytest.raises(RemoteProtocolError, match=f"0 or 1, not {flag}"):
            unpack(frame + bytes([flag]))


def test_closing_yes_is_its_head_alone() -> None:
    """A yes carries no causes, a no at least one byte of them; both are checked."""
    yes, no = frames.pack_closing(), frames.pack_closing(b"why")
    assert (frames.unpack_closing(yes), frames.unpack_closing(no)) == (b"", b"why")
    for wrong in (
        yes + b"why",
        no[: frames.CLOSING.size],
        b"X" + yes[1:],
        yes[:4] + b"\x02" + yes[5:],
    ):
        with pytest.raises(RemoteProtocolError):
            frames.unpack_closing(wrong)


@given(st.sampled_from(UNPACKERS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(unpack, noise: bytes) -> None:
    """Noise gives a value or a protocol error, nothing else."""
    with suppress(RemoteProtocolError):
        unpack(noise)


def test_causes_fit_their_frame() -> None:
    """Too many causes are cut to the bound, the first ones kept, the rest counted."""
    causes = [Cause(message=f"{n}:" + "\0" * 600, code="RM602", process=n) for n in range(100)]
    body = encode(causes, frames.REPORT_BYTES)
    told = decode(body)
    assert len(frames.pack_closing(body)) <= frames.REPORT_BYTES
    assert [cause.process for cause in told.causes] == list(range(len(told.causes)))
    assert told.omitted == 100 - len(told.causes)
    assert all(len(cause.message) == MESSAGE_CHARS for cause in told.causes)


def test_texts_that_utf8_cannot_carry_are_cleaned() -> None:
    """A file name's surrogate does not stop a report."""
    body = encode([Cause(message="\udcff.hlo", code="RM701")], frames.REPORT_BYTES)
    assert decode(body).causes == (Cause(message="?.hlo", code="RM701"),)


def test_a_cause_survives_the_wire() -> None:
    """What is reported is what is read."""
    cause = Cause(message="m", code="RM601", phase="census", process=3, fix="f", hearsay=True)
    assert decode(encode([cause], frames.REPORT_BYTES)).causes == (cause,)


@given(
    st.ip_addresses(),
    st.integers(0, 65535),
    st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES),
    st.integers(0, 2**32 - 1),
)
def test_unique_id_survives_the_wire(host, port: int, nonce: bytes, scope: int) -> None:
    """Packing and unpacking an id are each other's inverse, and 128 bytes long."""
    unique_id = UniqueId(host=str(host).split("%")[0], port=port, nonce=nonce, scope=scope)
    assert len(unique_id.pack()) == 128
    assert unpack_unique_id(unique_id.pack()) == unique_id


def test_unique_id_holds_only_addresses() -> None:
    """A name, a port out of range and a short nonce have no place in an id."""
    good = {"host": "127.0.0.1", "port": 1, "nonce": bytes(NONCE_BYTES)}
    for wrong in ({"host": "localhost"}, {"port": 65536}, {"nonce": b"x"}):
        with pytest.raises(LocalProtocolError):
            UniqueId(**{**good, **wrong}).pack()
