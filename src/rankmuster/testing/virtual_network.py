"""A virtual network: the clock, which is an event queue, and what is on its way between processes.

Packets take times that the seed alone decides, and keep their order on each way of a connection. It
knows nothing of what they mean.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from typing import TYPE_CHECKING

from rankmuster.transport.base import Role
from rankmuster.transport.framing import Frame
from rankmuster.transport.handshake import CONFIRM, HELLO, REFUSAL

if TYPE_CHECKING:
    from rankmuster.testing.virtual import VirtualEndpoint

LATENCY_S = 50e-6  # of the fastest packet; mostly near that, sometimes SPREAD times as long
SPREAD = 100.0


class What(Enum):
    """What a packet is."""

    HELLO = auto()
    ANSWER = auto()
    REFUSAL = auto()
    CONFIRM = auto()
    FRAME = auto()
    END = auto()
    NOISE = auto()


BYTES = {
    What.HELLO: HELLO.size,
    What.ANSWER: HELLO.size,
    What.REFUSAL: REFUSAL.size,
    What.CONFIRM: CONFIRM.size,
}


@dataclass(slots=True, eq=False, kw_only=True)
class Packet:
    """One thing on its way. `after` is what its sender had taken last: the chain of causes."""

    what: What
    sender: Link
    sent_at: float
    frame: Frame | None = None
    why: str = ""
    after: Packet | None = None
    depth: int = 0
    taken_at: float = 0.0

    @property
    def name(self) -> str:
        """What people call it."""
        return self.frame.kind.name if self.frame else self.what.name


@dataclass(slots=True, eq=False)
class Link:
    """One end of a connection; `address` is "" where it was accepted."""

    owner: VirtualEndpoint
    handle: int
    role: Role
    address: str = ""
    patient: bool = True
    other: Link | None = None
    proven: bool = False
    knocked: bool = False
    queued: list[Frame] = field(default_factory=list)
    arrives: float = 0.0  # the last packet that it sent
    untaken: int = 0
    again_at: float = 0.0  # to be dialled again
    cut: bool = False  # what it sent and has not arrived goes nowhere


class VirtualNetwork:
    """The clock, what is on its way, and who listens where.

    With *rendezvous* a frame counts as written only once the other side took it, and a death takes
    along all that was not: the strictest thing that a network may do.
    """

    def __init__(self, seed: int, *, rendezvous: bool = False) -> None:
        self.random = random.Random(seed).random  # noqa: S311 - a schedule to replay, no secret
        self.rendezvous = rendezvous
        self.now = 0.0
        self.listeners: dict[str, VirtualEndpoint] = {}
        self.packets = self.payload_bytes = 0
        self._order = count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Call *act* at *time*, or now if that is over."""
        heapq.heappush(self._queue, (max(time, self.now), next(self._order), act))

    def run(self, until: float, running: Callable[[], bool]) -> None:
        """Let things happen while somebody is *running*, at most to the time *until*."""
        while running() and self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()

    def latency(self) -> float:
        """How long the next packet takes."""
        return LATENCY_S / (self.random() + 1.0 / SPREAD)

    def put(self, packet: Packet, at: float) -> None:
        """Bring *packet* to the other end, behind all that its sender sent before."""
        link = packet.sender
        if packet.what is not What.END or not link.cut:
            at = max(at, link.arrives)
        link.arrives = at
        self.at(at, lambda: self._arrive(packet))

    def _arrive(self, packet: Packet) -> None:
        to = packet.sender.other
        if to is None or (packet.sender.cut and packet.what is not What.END):
            return
        to.owner.take_in(packet, to)
