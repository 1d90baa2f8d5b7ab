"""What an endpoint over a carrier makes of messages that are not as they must be."""

from __future__ import annotations

from contextlib import closing, contextmanager

import pytest

from rankmuster.address import BadAddress
from rankmuster.errors import LocalProtocolError
from rankmuster.transport import carried
from rankmuster.transport.base import Deadline, Identity, Joined, Knocked, Lost, Received, Role
from rankmuster.transport.carried import ENVELOPE, FRAME, INTRODUCTION, MAGIC, VERSION, Word
from rankmuster.transport.framing import BOUND, Frame, Kind
from rankmuster.transport.loopback import Loopback

THEM = Identity(1, 4, 2)


@contextmanager
def process_0():
    """The endpoint of process 0, and a way to put raw messages of process 1 into its mailbox."""
    world = Loopback(2)
    endpoint = world.transport(0).open(Identity(0, 0, 4), Deadline.after(60))

    def post(word, body=b"", *, number=1, version=VERSION, epoch=1, magic=MAGIC):
        envelope = ENVELOPE.pack(magic, version, word, True, number, epoch)
        world.box(0, 1).put(1, envelope + body)

    with closing(endpoint):
        yield endpoint, post


def hello(role=Role.PEER) -> bytes:
    return INTRODUCTION.pack(role, *THEM)


def header(size: int, kind: int = Kind.GROUP) -> bytes:
    return FRAME.pack(kind, size, bytes(16), 4, 0)


def test_a_hello_is_joined_at_once():
    """Whoever the carrier brings is one of us."""
    with process_0() as (endpoint, post):
        post(Word.HELLO, hello())
        post(Word.FRAME, header(2) + b"hi")
        assert endpoint.poll(0.0) == [
            Knocked(1, THEM, Role.PEER),
            Joined(1, THEM, Role.PEER),
            Received(1, Frame(Kind.GROUP, b"hi", bytes(16), 4, 0)),
        ]


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"magic": b"HTTP"}, "not our protocol"),
        ({"version": 2}, "other version"),
        ({"body": hello()[:-1]}, "unknown role"),
        ({"body": INTRODUCTION.pack(9, *THEM)}, "unknown role"),
    ],
)
def test_who_does_not_fit_is_counted(how, kind):
    """A hello that is none of ours is turned away and listed by its kind."""
    with process_0() as (endpoint, post):
        post(Word.HELLO, **{"body": hello(), **how})
        assert endpoint.poll(0.0) == []
        assert endpoint.strangers == {kind: 1}


def test_one_process_cannot_open_connections_without_end(monkeypatch):
    """Above the bound they are turned away."""
    monkeypatch.setattr(carried, "LINKS_EACH", 3)
    with process_0() as (endpoint, post):
        for number in range(5):
            post(Word.HELLO, hello(), number=number)
        endpoint.poll(0.0)
        assert endpoint.strangers == {"too many connections": 2}


@pytest.mark.parametrize(
    ("word", "body"),
    [
        (Word.FRAME, b"short"),
        (Word.PIECE, header(BOUND[Kind.GROUP] + 1)),
        (Word.PIECE, header(4, kind=77)),
        (Word.PIECE, header(4) + b"12345"),
        (Word.FRAME, header(4) + b"123"),
        (Word.WELCOME, b""),
        (9, b""),
    ],
)
def test_who_breaks_the_protocol_is_lost(word, body):
    """Nothing that a peer says raises, or is kept beyond its bound."""
    with process_0() as (endpoint, post):
        post(Word.HELLO, hello())
        post(word, body)
        post(Word.FRAME, header(2) + b"hi")
        *_, last = endpoint.poll(0.0)
        assert (type(last), last.why[:21]) == (Lost, "it broke the protocol")


def test_messages_of_an_earlier_bring_up_mean_nothing():
    """A farewell that comes late does not end the connection of today."""
    with process_0() as (endpoint, post):
        post(Word.HELLO, hello())
        post(Word.BYE, b"", epoch=0)
        assert [type(event) for event in endpoint.poll(0.0)] == [Knocked, Joined]


def test_a_process_of_another_version_is_told_on_both_sides():
    """Its answer, in whatever version, ends the connection that we opened."""
    world = Loopback(2)
    with closing(world.transport(0).open(Identity(0, 0, 4), Deadline.after(60))) as endpoint:
        handle = endpoint.dial("1", Role.CENSUS)
        answer = ENVELOPE.pack(MAGIC, VERSION + 1, Word.BYE, False, handle, 1)
        world.box(0, 1).put(1, answer)
        assert endpoint.poll(0.0) == [Lost(handle, "refused: other version")]


@pytest.mark.parametrize("address", ["", "2", "-1", "1.0", "127.0.0.1:80"])
def test_an_address_that_is_no_process_is_refused(address):
    """Processes are dialled by number."""
    with process_0() as (endpoint, _), pytest.raises(BadAddress, match="none of the 2 processes"):
        endpoint.dial(address, Role.PEER)


def test_a_carrier_has_no_doors_and_watches_nothing():
    """What only sockets can do is an error of who asks for it."""
    with process_0() as (endpoint, _), pytest.raises(LocalProtocolError, match="descriptor 7"):
        endpoint.watch(7, print)
