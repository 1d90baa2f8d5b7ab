"""One process's links to the other devices of a world: frames by sender, in order, or their loss.

Whoever sends dials. One thread at a time. Knows no communicator and no tree.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping

from rankmuster.errors import DeadlineExceeded, PeerLost, RemoteProtocolError, SetupFailed
from rankmuster.transport.base import Deadline, Event, Joined, Lost, Received, Role
from rankmuster.transport.framing import Frame, Kind
from rankmuster.transport.tcp import TcpEndpoint

LISTEN_S = 0.2  # silence after which a peer that we wait for is dialled, to learn whether it lives
GRACE_S = 0.1
PARKED_BYTES = 64 << 20  # that came before they were asked for
DRAIN_S = 1.0


class Links:
    """The links of device *me*; `addresses` says where each other device listens.

    A wait that ends by its deadline leaves the others out of step with us: from then on every
    exchange ends at once, with the same words.
    """

    def __init__(self, me: int, endpoint: TcpEndpoint) -> None:
        self.me, self.endpoint = me, endpoint
        self.addresses: Mapping[int, str] = {}
        self.device_of: dict[int, int] = {}  # of every proven connection, by handle
        self._dialled: dict[int, int] = {}
        self._inbound: dict[int, int] = {}  # the connection on which a device sends to us
        self._reached: set[int] = set()  # those that were proven
        self._came: dict[int, deque[bytes]] = {}
        self._lost: dict[int, str] = {}
        self._parked = 0
        self._broken = ""

    def send(self, peer: int, frame: bytes, deadline: Deadline) -> None:
        """Send to the device *peer*; returns once this machine's network has the frame.

        Whoever sends last may not come back to move bytes for a long time. Raises `PeerLost` and
        `DeadlineExceeded`.
        """
        self._check(peer)
        handle = self._way_to(peer)
        self.endpoint.send(handle, Frame(Kind.CALLER, frame, source=self.me, destination=peer))
        self._turn(0.0)  # mostly it is gone at once, and then nothing would wake a longer wait
        if not self._pump(lambda: self.endpoint.idle() or peer in self._lost, deadline.at):
            raise self._late(peer, deadline)
        if handle not in self._reached:  # whoever leaves after it has heard us is no loss
            self._check(peer)

    def recv(self, peer: int, nbytes: int, deadline: Deadline) -> bytes:
        """Wait for the next frame of *peer*. Raises `PeerLost` and `DeadlineExceeded`."""
        self._check()
        if not self._pump(lambda: self._has(peer), min(deadline.at, time.monotonic() + LISTEN_S)):
            self._way_to(peer)
            self._pump(lambda: self._has(peer), deadline.at)
        if not self._came.get(peer):  # its last words may be on a connection that is not in yet
            self._pump(lambda: self._spoke(peer), min(deadline.at, time.monotonic() + GRACE_S))
        if queue := self._came.get(peer):
            frame = queue.popleft()
            self._parked -= len(frame)
            if len(frame) > nbytes:
                what = f"device {peer} sent {len(frame)} bytes where at most {nbytes} are due"
                raise RemoteProtocolError(what)
            return frame
        self._check(peer)
        raise self._late(peer, deadline)

    def drain(self, deadline: Deadline) -> None:
        """Write out what is queued, for a second at most: peers wait for it."""
        self._turn(0.0)
        self._pump(self.endpoint.idle, min(deadline.at, time.monotonic() + DRAIN_S))

    def close(self) -> None:
        """Write out what is queued, then close every connection; closing twice is fine."""
        if self.endpoint.is_open:
            self.drain(Deadline.after(DRAIN_S))
        self.endpoint.close()

    def take(self, event: Event) -> None:
        """Note what happened on a connection."""
        match event:
            case Joined(handle, identity, Role.PEER) if handle not in self.device_of:
                self.device_of[handle] = identity.process
                self._inbound[identity.process] = handle
            case Joined(handle):
                self._reached.add(handle)
            case Received(handle, frame) if frame.kind is Kind.CALLER:
                self._park(handle, frame)
            case Lost(handle, why) if handle in self.device_of:
                device = self.device_of.pop(handle)
                self._lost.setdefault(device, why)
                if self._inbound.get(device) == handle:
                    del self._inbound[device]

    def _late(self, peer: int, deadline: Deadline) -> DeadlineExceeded:
        self._broken = f"device {peer} did not answer within {deadline.whole_s:g} s"
        return DeadlineExceeded(self._broken)

    def _spoke(self, peer: int) -> bool:
        return bool(self._came.get(peer))

    def _has(self, peer: int) -> bool:
        """Whether there is a frame, or there will be none: what it sent before it went counts."""
        return self._spoke(peer) or (peer in self._lost and peer not in self._inbound)

    def _check(self, peer: int | None = None) -> None:
        if self._broken:
            raise DeadlineExceeded(
                f"the world is out of step: {self._broken}", fix="nrt_close in every process"
            )
        if peer in self._lost:
            raise PeerLost(f"device {peer} was lost: {self._lost[peer]}")

    def _way_to(self, peer: int) -> int:
        if peer not in self._dialled:
            if peer not in self.addresses or peer == self.me:
                raise SetupFailed(f"device {self.me} has no way to device {peer}")
            # All listened before they met: a refused connection is a process that died.
            handle = self.endpoint.dial(self.addresses[peer], Role.PEER, patient=False)
            self._dialled[peer] = handle
            self.device_of[handle] = peer
        return self._dialled[peer]

    def _pump(self, done: Callable[[], bool], until: float) -> bool:
        while not done():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._turn(left)
        return True

    def _turn(self, wait_s: float) -> None:
        for event in self.endpoint.poll(wait_s):
            self.take(event)

    def _park(self, handle: int, frame: Frame) -> None:
        source = self.device_of.get(handle)
        self._parked += len(frame.payload)
        if source == frame.source and self._parked <= PARKED_BYTES:
            self._came.setdefault(source, deque()).append(frame.payload)
            return
        self._parked -= len(frame.payload)
        self.endpoint.drop(handle)
        if source is not None:
            self._lost.setdefault(source, "it sent what is not its own, or too much")
