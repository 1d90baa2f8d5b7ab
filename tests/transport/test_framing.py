"""Frames survive any cut of the stream, and nothing that was tampered with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.errors import LocalProtocolError, RemoteProtocolError
from rankmuster.transport.framing import BOUND, HEADER, INNER, Frame, Kind, Opener, Sealer, pack

KEY = bytes(range(32))
SMALL = Frame(Kind.GROUP, b"seventeen bytes..", b"k" * 16, 3, 7)


@given(st.lists(st.binary(max_size=200), max_size=6), st.integers(1, 64))
def test_frames_come_back_whole_however_the_stream_is_cut(payloads, step):
    """Frames that are sealed in order are opened in order, in pieces of any size."""
    sealer, opener = Sealer(KEY), Opener(KEY)
    frames = [Frame(Kind.GROUP, payload, b"k" * 16, 1, 2) for payload in payloads]
    stream = b"".join(map(sealer.seal, map(pack, frames)))
    opened = [opener.feed(stream[at : at + step]) for at in range(0, len(stream), step)]
    assert [frame for chunk in opened for frame in chunk] == frames


@given(st.integers(0, len(HEADER.pack(b"", 0, 1, b"", 0, 0)) + len(SMALL.payload) - 1))
def test_one_altered_byte_ends_the_connection(place):
    """No byte of a frame can change without its tag saying so."""
    stream = bytearray(Sealer(KEY).seal(pack(SMALL)))
    stream[place] ^= 1
    try:
        opened = Opener(KEY).feed(bytes(stream))
    except RemoteProtocolError:
        return
    assert opened == []  # a longer length: it waits for bytes that the tag will not fit


def test_a_repeated_frame_is_refused():
    """The tag covers the frame's place in the stream."""
    sealed = Sealer(KEY).seal(pack(SMALL))
    opener = Opener(KEY)
    assert opener.feed(sealed) == [SMALL]
    with pytest.raises(RemoteProtocolError, match="frame 1 carries a wrong tag"):
        opener.feed(sealed)


def test_another_key_is_refused():
    """A frame of another connection, or of another direction, does not open."""
    with pytest.raises(RemoteProtocolError, match="wrong tag"):
        Opener(bytes(32)).feed(Sealer(KEY).seal(pack(SMALL)))


@pytest.mark.parametrize("kind", Kind)
def test_a_frame_over_its_bound_is_refused_by_its_header(kind):
    """A length that is too large is refused before a byte of the payload is kept."""
    header = HEADER.pack(bytes(16), BOUND[kind] + 1, kind, bytes(16), 0, 0)
    with pytest.raises(RemoteProtocolError, match="over the bound"):
        Opener(KEY).feed(header)


def test_an_unknown_kind_is_refused():
    """A kind that this version does not know ends the connection."""
    with pytest.raises(RemoteProtocolError, match="unknown kind 99"):
        Opener(KEY).feed(HEADER.pack(bytes(16), 0, 99, bytes(16), 0, 0))


def test_we_do_not_send_what_others_would_refuse():
    """The bound of a kind holds for the sender too."""
    with pytest.raises(LocalProtocolError, match="a GROUP frame of 4097 bytes"):
        pack(Frame(Kind.GROUP, bytes(4097)))


@given(st.lists(st.sampled_from([0, 17, 129, 4096, 4097]), max_size=40), st.integers(1, 99))
def test_frames_that_leave_together_come_back_one_by_one(sizes, step):
    """Small frames share tags, large ones have their own, and the order stays."""
    frames = [Frame(Kind.CALLER, bytes(n), b"k" * 16, n, at) for at, n in enumerate(sizes)]
    stream, opener = Sealer(KEY).seal_all(map(pack, frames)), Opener(KEY)
    opened = [opener.feed(stream[at : at + step]) for at in range(0, len(stream), step)]
    assert [frame for chunk in opened for frame in chunk] == frames


def test_many_small_frames_share_one_tag():
    """A thousand verdicts cost a thousand headers and two tags: a batch has a bound too."""
    verdicts = [SMALL] * 1500
    stream = Sealer(KEY).seal_all(map(pack, verdicts))
    assert len(stream) == 1500 * (INNER.size + len(SMALL.payload)) + 2 * HEADER.size
    assert Opener(KEY).feed(stream) == verdicts


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (INNER.pack(17, Kind.GROUP, bytes(16), 0, 0)[:-1], "ends inside a frame"),
        (INNER.pack(1, Kind.GROUP, bytes(16), 0, 0), "ends inside a frame"),
        (INNER.pack(0, Kind.BATCH, bytes(16), 0, 0), "holds another"),
        (INNER.pack(4097, Kind.GROUP, bytes(16), 0, 0) + bytes(4097), "over the bound"),
        (INNER.pack(0, 99, bytes(16), 0, 0), "unknown kind 99"),
    ],
)
def test_a_batch_that_is_not_whole_is_refused(inner, message):
    """What holds for a frame by itself holds for one among others."""
    with pytest.raises(RemoteProtocolError, match=message):
        Opener(KEY).feed(Sealer(KEY).seal(pack(Frame(Kind.BATCH, inner))))
