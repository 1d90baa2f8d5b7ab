"""Channels and their driver: trouble with a peer goes into the steps, all else ends them."""

from __future__ import annotations

from contextlib import closing, contextmanager

import pytest

from rankmuster.errors import (
    Closed,
    DeadlineExceeded,
    NotAgreed,
    PeerLost,
    RemoteProtocolError,
)
from rankmuster.protocol.bootstrap import bootstrap
from rankmuster.protocol.steps import Recv, Send
from rankmuster.transport import channel
from rankmuster.transport.base import Deadline, Identity
from rankmuster.transport.channel import EndpointChannel, drive
from rankmuster.transport.loopback import Loopback


@contextmanager
def ranks(size=2):
    """A channel for each rank of a group, over mailboxes."""
    world = Loopback(size)
    addresses = [str(rank) for rank in range(size)]
    endpoints = [
        world.transport(rank).open(Identity(rank, rank, 1), Deadline.after(60))
        for rank in range(size)
    ]
    channels = [EndpointChannel(endpoint, addresses) for endpoint in endpoints]
    try:
        yield channels
    finally:
        for each in channels:
            each.close()


def soon() -> Deadline:
    return Deadline.after(0.2)


def test_steps_that_nobody_answers_end_in_a_no():
    """The protocol, not its driver, decides what silence means."""
    with ranks() as (zero, _), pytest.raises(NotAgreed):
        drive(bootstrap(0, 2, bytes(16), bytes(128)), zero, soon())


def test_a_lost_peer_is_thrown_into_the_steps():
    """It may be all the same to them."""

    def steps():
        try:
            yield Recv(1, 4)
        except PeerLost as lost:
            return str(lost)

    with ranks() as (zero, one):
        one.send(0, b"hello", Deadline.after(5))
        assert zero.recv(1, 5, Deadline.after(5)) == b"hello"
        one.close()
        assert drive(steps(), zero, Deadline.after(5)).startswith("rank 1 went away: ")


def test_our_own_close_ends_the_steps():
    """They do not hear of it, and clean up."""
    cleaned = []

    def steps():
        try:
            yield Send(1, b"x")
        finally:
            cleaned.append(True)

    with ranks() as (zero, _):
        zero.close()
        with pytest.raises(Closed):
            drive(steps(), zero, soon())
    assert cleaned == [True]


def test_waits_with_grace_outlive_ordinary_ones():
    """Every margin is a quarter of a short deadline: what waits for an answer waits longest."""

    def steps(grace):
        start = deadline.remaining()
        with pytest.raises(DeadlineExceeded):
            yield Recv(1, 1, grace)
        return start - deadline.remaining()

    waited = []
    with ranks() as (zero, _):
        for grace in range(3):
            deadline = Deadline.after(0.4)
            waited.append(round(drive(steps(grace), zero, deadline), 1))
    assert waited == [0.2, 0.3, 0.4]


def test_a_frame_over_what_is_due_is_the_senders_fault():
    """Its bytes are not handed on."""
    with ranks() as (zero, one):
        one.send(0, b"12345", Deadline.after(5))
        with pytest.raises(RemoteProtocolError, match="sent 5 bytes where at most 4 are due"):
            zero.recv(1, 4, Deadline.after(5))


def test_who_sends_faster_than_is_listened_to_is_dropped(monkeypatch):
    """What waits to be received has a bound; others are heard all the same."""
    monkeypatch.setattr(channel, "PARKED_BYTES", 8)
    with ranks(3) as (zero, one, two):
        one.send(0, bytes(8), Deadline.after(5))
        one.send(0, bytes(1), Deadline.after(5))
        with pytest.raises(DeadlineExceeded):
            zero.recv(2, 4, Deadline.after(0.05))
        assert zero.recv(1, 8, Deadline.after(5)) == bytes(8)
        with pytest.raises(PeerLost, match="faster than it is listened to"):
            zero.recv(1, 8, Deadline.after(5))
        two.send(0, b"here", Deadline.after(5))
        assert zero.recv(2, 4, Deadline.after(5)) == b"here"


def test_closing_twice_is_fine():
    """As everywhere."""
    with ranks() as (zero, _), closing(zero):
        zero.close()
