"""Virtual connections: the contract of `transport.base` kept without a socket.

It knows when a handshake is over and what a death takes along, and nothing of what frames mean.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from socket import socket

from rankmuster.errors import Closed, InvariantError
from rankmuster.testing.virtual_network import BYTES, Link, Packet, VirtualNetwork, What
from rankmuster.transport.base import Event, Identity, Joined, Knocked, Lost, Received, Role
from rankmuster.transport.framing import HEADER, Frame
from rankmuster.transport.handshake import WORDS, Credentials, Why

FIRST_PORT = 40000
PAUSE_S = 0.05  # between two tries to reach who does not listen yet


class VirtualEndpoint:
    """One process's end of everything (see `transport.base.Connections`).

    *step* is called before each packet that is sent or taken, and may raise; *wake* when something
    came. `busy_until` is for whoever slows the process down.
    """

    def __init__(
        self,
        network: VirtualNetwork,
        host: str,
        credentials: Credentials,
        me: Identity,
        *,
        step: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self.strangers: Counter[str] = Counter()
        self.busy_until = 0.0
        self.last: Packet | None = None  # that was taken
        self.depth = 0
        self.me = me
        self._network, self._host, self._us = network, host, credentials
        self._step, self._wake = step, wake
        self._links: dict[int, Link] = {}
        self._unsettled: dict[int, Link] = {}
        self._inbox: deque[tuple[Packet, Link]] = deque()
        self._events: list[Event] = []
        self._handles = count(1)
        self._doors: list[str] = []
        self._open = True

    def now(self) -> float:
        """The time as this process has it."""
        return max(self._network.now, self.busy_until)

    # what a switchboard calls

    def listen(self, host: str) -> str:
        """Open a door; whoever asks for *host* gets the one host that this process is on."""
        del host
        return self.listen_at(f"{self._host}:{FIRST_PORT + len(self._doors)}")

    def listen_at(self, address: str) -> str:
        """Open a door at a known *address*."""
        self._network.listeners[address] = self
        self._doors.append(address)
        return address

    def adopt(self, listener: socket) -> str:
        """There are no sockets here."""
        raise InvariantError(f"a virtual endpoint cannot adopt {listener!r}")

    def watch(self, descriptor: int, action: Callable[[], None]) -> None:
        """There are no descriptors here."""
        raise InvariantError(f"a virtual endpoint cannot watch {descriptor} for {action!r}")

    def dial(self, address: str, role: Role, *, patient: bool = True) -> int:
        """Want a connection to *address*."""
        self._check_open()
        link = Link(self, next(self._handles), role, address, patient)
        self._links[link.handle] = self._unsettled[link.handle] = link
        self._connect(link)
        return link.handle

    def send(self, handle: int, frame: Frame) -> None:
        """Send *frame*, or keep it until the connection is proven."""
        self._check_open()
        link = self._links.get(handle)
        if link is None:
            return
        if link.proven:
            self._send(link, What.FRAME, frame)
        else:
            link.queued.append(frame)

    def drop(self, handle: int) -> None:
        """Close one connection."""
        if link := self._links.get(handle):
            self._send(link, What.END)
            self._forget(link)

    def poll(self, timeout_s: float) -> list[Event]:
        """What came; the waiting is the event queue's."""
        del timeout_s
        self._check_open()
        for link in list(self._unsettled.values()):
            if link.other is None and self.now() >= link.again_at:
                self._connect(link)
        while self._inbox:
            self._take(*self._inbox.popleft())
        events, self._events = self._events, []
        return events

    def has_spoken(self) -> bool:
        """Whether whoever we dialled listens."""
        return all(link.other is not None for link in self._unsettled.values())

    def settled(self) -> bool:
        """Whether every connection that we dialled is proven."""
        return not self._unsettled

    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not any(link.queued or link.untaken for link in self._links.values())

    def close(self) -> None:
        """Close everything, after what was sent; closing twice is fine."""
        self._shut()
        for link in list(self._links.values()):
            self._put(link, What.END)
            self._forget(link)

    # what befalls it

    def die(self) -> None:
        """End as a killed process does: what is on its way may be lost."""
        self._shut()
        for link in list(self._links.values()):
            link.cut = self._network.rendezvous or self._network.random() < 0.5
            self._put(link, What.END)
            self._forget(link)

    def stranger(self, address: str, kind: str) -> None:
        """Knock at *address* without being one of us: *kind* is how the listener counts it."""
        target = self._network.listeners.get(address)
        if target is not None:
            link = Link(self, 0, Role.CENSUS, address)
            link.other = Link(target, 0, Role.CENSUS, other=link)
            self._put(link, What.NOISE, why=kind)

    def take_in(self, packet: Packet, link: Link) -> None:
        """Something arrived at our end *link*."""
        if packet.what is What.HELLO and not self._open:
            self._put(link, What.END)
        elif self._open and (link.handle in self._links or packet.what in {What.HELLO, What.NOISE}):
            self._inbox.append((packet, link))
            self._wake()

    # the handshake

    def _connect(self, link: Link) -> None:
        target = self._network.listeners.get(link.address)
        if target is not None:
            link.other = Link(target, 0, link.role, other=link)
            self._send(link, What.HELLO)
        elif link.patient:
            self._retry(link)
        else:
            self._lose(link, "nobody listens there any more")

    def _retry(self, link: Link) -> None:
        link.again_at = self.now() + PAUSE_S
        self._network.at(link.again_at, self.wake)

    def _take(self, packet: Packet, link: Link) -> None:
        self._step()
        packet.taken_at = self.now()
        if packet.what is not What.END or not self._events:  # an end says nothing after a word
            self.last, self.depth = packet, max(self.depth, packet.depth)
        self._confirm(packet)
        match packet.what:
            case What.HELLO:
                self._take_hello(link, packet.sender.owner)
            case What.ANSWER:
                self._prove(link, packet.sender.owner)
                self._send(link, What.CONFIRM)
                for frame in link.queued:
                    self._send(link, What.FRAME, frame)
                link.queued.clear()
            case What.REFUSAL:
                self._lose(link, f"refused: {packet.why}")
            case What.CONFIRM:
                self._prove(link, packet.sender.owner)
            case What.FRAME:
                assert packet.frame is not None, "a FRAME packet has one"
                self._events.append(Received(link.handle, packet.frame))
            case What.END:
                self._take_end(link)
            case What.NOISE:
                self.strangers[packet.why] += 1

    def _confirm(self, packet: Packet) -> None:
        """Where a send waits for its receive, let the sender know that it was taken."""
        if packet.what is What.FRAME and packet.sender.untaken:
            packet.sender.untaken -= 1
            sender = packet.sender.owner
            self._network.at(self.now() + self._network.latency(), sender.wake)

    def wake(self) -> None:
        """Have a look, if we are still there."""
        if self._open:
            self._wake()

    def _take_hello(self, link: Link, dialler: VirtualEndpoint) -> None:
        link.handle = next(self._handles)
        self._links[link.handle] = link
        why = self._objection(dialler)
        if why is not None:
            self.strangers[WORDS[why]] += 1
            self._send(link, What.REFUSAL, why=WORDS[why])
            self._forget(link)
            return
        link.knocked = True
        self._events.append(Knocked(link.handle, dialler.me, link.role))
        self._send(link, What.ANSWER)

    def _objection(self, dialler: VirtualEndpoint) -> Why | None:
        ours, theirs = self._us, dialler._us
        if (ours.secret, ours.job) != (theirs.secret, theirs.job):
            return Why.SECRET
        return None if ours.epoch == theirs.epoch else Why.EPOCH

    def _prove(self, link: Link, other: VirtualEndpoint) -> None:
        link.proven = True
        self._unsettled.pop(link.handle, None)
        self._events.append(Joined(link.handle, other.me, link.role))

    def _take_end(self, link: Link) -> None:
        if link.address and not link.proven:  # as over TCP: the listener of our attempt may come
            link.other = None
            self._retry(link)
        else:
            self._lose(link, "it closed the connection")

    def _lose(self, link: Link, why: str) -> None:
        self._forget(link)
        self._events.append(Lost(link.handle, why))
        self._network.at(self.now(), self.wake)

    # packets and books

    def _send(self, link: Link, what: What, frame: Frame | None = None, why: str = "") -> None:
        self._step()
        self._put(link, what, frame, why)

    def _put(self, link: Link, what: What, frame: Frame | None = None, why: str = "") -> None:
        network = self._network
        packet = Packet(
            what=what,
            sender=link,
            sent_at=self.now(),
            frame=frame,
            why=why,
            after=self.last,
            depth=self.depth + 1,
        )
        network.packets += what is not What.END
        network.payload_bytes += BYTES.get(what, 0)
        if frame is not None:
            network.payload_bytes += HEADER.size + len(frame.payload)
            link.untaken += network.rendezvous
        network.put(packet, self.now() + network.latency())

    def _shut(self) -> None:
        self._open = False
        for address in self._doors:
            self._network.listeners.pop(address, None)
        for packet, link in self._inbox:
            if packet.what is What.HELLO:
                self._put(link, What.END)
        self._inbox.clear()

    def _forget(self, link: Link) -> None:
        self._links.pop(link.handle, None)
        self._unsettled.pop(link.handle, None)

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("this endpoint was closed")
