"""One rank's blocking link to its group over an endpoint, and the driver of steps over such links.

What an endpoint reports as events becomes calls that wait: each with a deadline, one thread at a
time, and an end that another thread may bring.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rankmuster.census import margin_s
from rankmuster.errors import (
    BusyError,
    Closed,
    DeadlineExceeded,
    PeerLost,
    RemoteProtocolError,
)
from rankmuster.protocol.steps import Recv, Send, Steps, carry_out
from rankmuster.transport.base import (
    Channel,
    Connections,
    Deadline,
    Event,
    Joined,
    Lost,
    Received,
    Role,
)
from rankmuster.transport.framing import Frame, Kind

T = TypeVar("T")
PARKED_BYTES = 64 << 20  # that came before they were asked for
TURN_S = 0.02  # how soon a call notices that another thread closes
MARGINS = 2  # between an ordinary wait's end and the deadline (see `steps.Recv`)


class EndpointChannel:
    """A `Channel` over *endpoint*, which it owns: rank r is process r and listens at addresses[r].

    Who sends, dials, when it first has something to send.
    """

    def __init__(self, endpoint: Connections, addresses: Sequence[str]) -> None:
        self._endpoint, self._addresses = endpoint, addresses
        self._inside = threading.Lock()
        self._closing = False
        self._outbound: dict[int, int] = {}  # peer -> handle
        self._peer_of: dict[int, int] = {}  # handle -> peer
        self._parked: defaultdict[int, deque[bytes]] = defaultdict(deque)
        self._room = PARKED_BYTES
        self._lost: dict[int, str] = {}

    def send(self, peer: int, frame: bytes, deadline: Deadline) -> None:
        """Return once *frame* is on its way to *peer* (see `base.Channel` for what it raises)."""
        with self._turn():
            if peer not in self._outbound:
                handle = self._endpoint.dial(self._addresses[peer], Role.PEER)
                self._outbound[peer] = handle
                self._peer_of[handle] = peer
            self._endpoint.send(self._outbound[peer], Frame(Kind.CALLER, frame))
            while not self._endpoint.idle() and peer not in self._lost:
                self._wait(peer, deadline)
            self._refuse_lost(peer)

    def recv(self, peer: int, nbytes: int, deadline: Deadline) -> bytes:
        """The next frame of *peer* (see `base.Channel` for what it raises)."""
        with self._turn():
            while not self._parked[peer]:
                lost = peer in self._lost
                self._wait(peer, deadline)
                if lost and not self._parked[peer]:
                    # A turn later: its last words may have come by another connection.
                    self._refuse_lost(peer)
            frame = self._parked[peer].popleft()
            self._room += len(frame)
        if len(frame) > nbytes:
            raise RemoteProtocolError(
                f"rank {peer} sent {len(frame)} bytes where at most {nbytes} are due"
            )
        return frame

    def close(self) -> None:
        """Close the endpoint; a call in another thread raises `Closed`. Closing twice is fine."""
        self._closing = True
        with self._inside:  # whoever is in there leaves within a turn
            self._endpoint.close()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread inside at a time."""
        if self._closing:
            raise Closed("this channel was closed")
        if not self._inside.acquire(blocking=False):
            raise BusyError("another thread uses this channel", fix="give each thread its own")
        try:
            yield
        finally:
            self._inside.release()

    def _wait(self, peer: int, deadline: Deadline) -> None:
        """Take what comes within a moment."""
        if self._closing:
            raise Closed("this channel was closed while it was used")
        if deadline.passed:
            raise DeadlineExceeded(f"rank {peer} did not answer within {deadline.whole_s:g} s")
        for event in self._endpoint.poll(min(TURN_S, deadline.remaining())):
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Joined(handle, identity, _):
                self._peer_of.setdefault(handle, identity.process)
            case Received(handle, frame) if len(frame.payload) <= self._room:
                self._room -= len(frame.payload)
                self._parked[self._peer_of[handle]].append(frame.payload)
            case Received(handle, _):
                self._endpoint.drop(handle)
                self._lost[self._peer_of[handle]] = "it sends faster than it is listened to"
            case Lost(handle, why) if handle in self._peer_of:
                self._lost.setdefault(self._peer_of[handle], why)

    def _refuse_lost(self, peer: int) -> None:
        if peer in self._lost:
            raise PeerLost(f"rank {peer} went away: {self._lost[peer]}")


def drive(steps: Steps[T], channel: Channel, deadline: Deadline) -> T:
    """Carry out one rank's *steps* over *channel*, and return what they return.

    Trouble with a peer is thrown into the steps, which decide what it means. `Closed`, `BusyError`
    and whatever the steps raise end the run. Ordinary waits end two margins before *deadline*, so
    that those which may outlive them still hear the answer.
    """
    return carry_out(steps, lambda step: _take(step, channel, deadline))


def _take(step: Send | Recv, channel: Channel, deadline: Deadline) -> bytes | None:
    early_s = max(0, MARGINS - step.grace) * margin_s(deadline.whole_s)
    until = Deadline(deadline.at - early_s, deadline.whole_s)
    if isinstance(step, Send):
        channel.send(step.peer, step.frame, until)
        return None
    return channel.recv(step.peer, step.nbytes, until)
