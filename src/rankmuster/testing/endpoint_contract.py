"""What an endpoint of any transport must keep: its events, its bounds and its ends.

The first half of `contract.check_transport`. Both ends are turned by hand, in one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from rankmuster.errors import Closed
from rankmuster.transport.base import Connections, Endpoint, Event, Lost, Received
from rankmuster.transport.framing import BOUND, Frame, Kind

Maker = Callable[[], AbstractContextManager[tuple[Connections, Connections, int]]]
PATIENCE_S = 10.0
LATE_S = 1.0  # within 100 ms on an idle machine; machines are not idle


def check_order(maker: Maker) -> None:
    """A thousand frames arrive once each, in the order in which they were sent."""
    with maker() as (sender, receiver, handle):
        sent = [Frame(Kind.GROUP, number.to_bytes(4, "little")) for number in range(1000)]
        for frame in sent:
            sender.send(handle, frame)
        assert received(sender, receiver, len(sent)) == sent


def check_sizes(maker: Maker) -> None:
    """Payloads of no bytes, of one, and of as many as a kind may have, arrive as they were."""
    with maker() as (sender, receiver, handle):
        bound = BOUND[Kind.CALLER]
        sent = [Frame(Kind.CALLER, bytes(size)) for size in (0, 1, 65535, 65536, bound)]
        for frame in sent:
            sender.send(handle, frame)
        assert received(sender, receiver, len(sent)) == sent


def check_addresses(maker: Maker) -> None:
    """Key, source and destination of a frame arrive as they were."""
    with maker() as (sender, receiver, handle):
        frame = Frame(Kind.GROUP, b"x", bytes(range(16)), 0xFFFFFFFF, 7)
        sender.send(handle, frame)
        assert received(sender, receiver, 1) == [frame]


def check_timeout(maker: Maker) -> None:
    """With nothing to hear, `poll` comes back with nothing once its time is over."""
    with maker() as (sender, receiver, _):
        settle(sender, receiver)
        start = time.monotonic()
        until = start + 0.05
        while (left := until - time.monotonic()) > 0:
            assert receiver.poll(left) == []
        assert time.monotonic() - until < LATE_S


def check_own_close(maker: Maker) -> None:
    """After our own `close` everything raises `Closed`, and closing again is fine."""
    with maker() as (sender, _, handle):
        sender.close()
        sender.close()
        for use in (lambda: sender.poll(0.0), lambda: sender.send(handle, Frame(Kind.ASK, b""))):
            try:
                use()
            except Closed:
                continue
            raise AssertionError("a closed endpoint was used without an error")


def check_peer_lost(maker: Maker) -> None:
    """When the other side goes, what it sent before arrives first, and then `Lost`, once."""
    with maker() as (sender, receiver, handle):
        settle(sender, receiver)
        frame = Frame(Kind.GROUP, b"last words")
        sender.send(handle, frame)
        sender.poll(0.01)
        sender.close()
        heard: list[Event] = []
        until = time.monotonic() + PATIENCE_S
        while not any(isinstance(event, Lost) for event in heard) and time.monotonic() < until:
            heard += receiver.poll(0.1)
        heard += receiver.poll(0.05)
        kinds = [type(event) for event in heard]
        assert kinds == [Received, Lost], heard


def check_sending_to_the_lost(maker: Maker) -> None:
    """A frame for a process that is gone goes nowhere, and breaks nothing."""
    with maker() as (sender, receiver, handle):
        settle(sender, receiver)
        receiver.close()
        until = time.monotonic() + PATIENCE_S
        lost = False
        while not lost and time.monotonic() < until:
            sender.send(handle, Frame(Kind.GROUP, b"hello?"))
            lost = any(isinstance(event, Lost) for event in sender.poll(0.02))
        assert lost, "the loss was never told"
        sender.send(handle, Frame(Kind.GROUP, b"hello?"))
        assert sender.poll(0.0) == []


ENDPOINT_CHECKS = (
    check_order,
    check_sizes,
    check_addresses,
    check_timeout,
    check_own_close,
    check_peer_lost,
    check_sending_to_the_lost,
)


def received(sender: Endpoint, receiver: Endpoint, count: int) -> list[Frame]:
    """The next *count* frames, with both ends turned by hand. Fails after ten seconds."""
    frames: list[Frame] = []
    until = time.monotonic() + PATIENCE_S
    while len(frames) < count and time.monotonic() < until:
        sender.poll(0.0)
        frames += [e.frame for e in receiver.poll(0.001) if isinstance(e, Received)]
    return frames


def settle(sender: Endpoint, receiver: Endpoint) -> None:
    """Turn both ends until whatever opens their connection has been said."""
    quiet = 0
    while quiet < 5:
        said = [*sender.poll(0.002), *receiver.poll(0.002)]
        quiet = 0 if said else quiet + 1
