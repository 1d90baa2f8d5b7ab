"""What a channel over any transport must keep: calls that wait, and how each of them can end.

The second half of `contract.check_transport`. Its two ends run in two threads, as ranks run in two
processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rankmuster.errors import BusyError, Closed, DeadlineExceeded, MusterError, PeerLost
from rankmuster.protocol.barrier import barrier
from rankmuster.protocol.bootstrap import bootstrap
from rankmuster.protocol.frames import NO_UNIQUE_ID
from rankmuster.testing.endpoint_contract import LATE_S, PATIENCE_S, Maker
from rankmuster.transport.base import Channel, Deadline
from rankmuster.transport.channel import EndpointChannel, drive

T = TypeVar("T")
HOST = "127.0.0.1"
SIGNATURE = bytes(range(16))
UNIQUE_ID = bytes(range(128))
LONG_S = 60.0  # that no check comes to
ROUNDS = 10


def check_steps(maker: Maker) -> None:
    """Two ranks that run the bootstrap over their channels learn the same unique id."""
    with channels(maker) as (one, zero):
        with beside(lambda: drive(bootstrap(0, 2, SIGNATURE, UNIQUE_ID), zero, patience())) as root:
            mine = drive(bootstrap(1, 2, SIGNATURE, NO_UNIQUE_ID), one, patience())
        assert (mine, root.result()) == (UNIQUE_ID, UNIQUE_ID)


def check_deadline(maker: Maker) -> None:
    """Waiting for a frame that never comes ends by `DeadlineExceeded`, soon after the deadline."""
    with channels(maker) as (one, zero):
        meet(one, zero)
        start = time.monotonic()
        assert error_of(lambda: one.recv(0, 16, Deadline.after(0.05))) is DeadlineExceeded
        assert time.monotonic() - start < 0.05 + LATE_S


def check_close_from_another_thread(maker: Maker) -> None:
    """A call that waits ends by `Closed` when another thread closes the channel."""
    with channels(maker) as (one, zero):
        meet(one, zero)
        with beside(lambda: error_of(lambda: one.recv(0, 16, Deadline.after(LONG_S)))) as waiting:
            time.sleep(0.05)
            start = time.monotonic()
            one.close()
            assert waiting.result(PATIENCE_S) is Closed
        assert time.monotonic() - start < LATE_S
        assert error_of(lambda: one.recv(0, 16, Deadline.after(LONG_S))) is Closed


def check_busy(maker: Maker) -> None:
    """A second thread in a channel is told so at once, and the first one is not disturbed."""
    with channels(maker) as (one, zero):
        meet(one, zero)
        with beside(lambda: one.recv(0, 16, patience())) as waiting:
            time.sleep(0.05)
            assert error_of(lambda: one.recv(0, 16, patience())) is BusyError
            assert error_of(lambda: one.send(0, b"second", patience())) is BusyError
            zero.send(1, b"first", patience())
            assert waiting.result(PATIENCE_S) == b"first"


def check_peer_lost_by_a_channel(maker: Maker) -> None:
    """A peer's close is `PeerLost`, told apart from our own; what it sent before arrives first."""
    with channels(maker) as (one, zero):
        meet(one, zero)
        zero.send(1, b"last words", patience())
        zero.close()
        assert one.recv(0, 16, patience()) == b"last words"
        assert error_of(lambda: one.recv(0, 16, Deadline.after(LONG_S))) is PeerLost


def check_nothing_is_left(maker: Maker) -> None:
    """Threads and open files return to where they were after the first round, if not at once."""
    check_steps(maker)
    before = threading.active_count(), open_files()
    for _ in range(ROUNDS):
        check_steps(maker)
    until = time.monotonic() + LATE_S
    while (now := (threading.active_count(), open_files())) > before and time.monotonic() < until:
        time.sleep(0.01)
    assert now <= before, f"threads and open files: {before}, after {ROUNDS} more rounds {now}"


CHANNEL_CHECKS = (
    check_steps,
    check_deadline,
    check_close_from_another_thread,
    check_busy,
    check_peer_lost_by_a_channel,
    check_nothing_is_left,
)


@contextmanager
def channels(maker: Maker) -> Iterator[tuple[Channel, Channel]]:
    """The channels of rank 1 and of rank 0, over the endpoints that *maker* makes."""
    with maker() as (sender, receiver, _):
        at_one, at_zero = sender.listen(HOST), receiver.listen(HOST)
        one = EndpointChannel(sender, [at_zero, at_one])
        zero = EndpointChannel(receiver, [at_zero, at_one])
        try:
            yield one, zero
        finally:
            one.close()
            zero.close()


@contextmanager
def beside(act: Callable[[], T]) -> Iterator[Future[T]]:
    """Run *act* in a thread of its own while the block runs, and wait for it at the end."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(act())
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            outcome.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(LONG_S)


def meet(one: Channel, zero: Channel) -> None:
    """Let both ranks hear each other once: their connections are open then."""
    with beside(lambda: drive(barrier(0, 2), zero, patience())):
        drive(barrier(1, 2), one, patience())


def error_of(act: Callable[[], object]) -> type[MusterError] | None:
    """How *act* ends; None if it simply returns."""
    try:
        act()
    except MusterError as error:
        return type(error)
    return None


def patience() -> Deadline:
    """Enough time for what is to come."""
    return Deadline.after(PATIENCE_S)


def open_files() -> int:
    """How many descriptors this process has; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
