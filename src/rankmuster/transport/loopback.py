"""The transport between threads of one process: the reference that the contract was written to.

Knows no library and no descriptor: a mailbox for each process under one lock.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import ClassVar

from rankmuster.errors import LocalProtocolError
from rankmuster.transport.base import Deadline, Identity
from rankmuster.transport.carried import CarriedEndpoint

QUEUE_BYTES = 128 << 20  # what may lie in one mailbox


class Mailbox:
    """Messages for one process, in the order in which they came."""

    def __init__(self) -> None:
        self._messages: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._came = threading.Condition()

    def put(self, source: int, message: bytes) -> None:
        """Add a message. Raises `LocalProtocolError` where too much lies here already."""
        with self._came:
            if self._bytes + len(message) > QUEUE_BYTES:
                raise LocalProtocolError(f"over {QUEUE_BYTES} bytes wait to be read by one process")
            self._bytes += len(message)
            self._messages.append((source, message))
            self._came.notify()

    def take(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """All that is here, or that comes within *timeout_s*."""
        with self._came:
            self._came.wait_for(lambda: self._messages, timeout_s)
            taken = list(self._messages)
            self._messages.clear()
            self._bytes = 0
        return taken


class Loopback:
    """A world of *processes*, each of them a thread; `transport` gives every one its part."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._boxes: dict[tuple[int, int], Mailbox] = {}
        self._epochs = [0] * processes

    def transport(self, process: int) -> LoopbackTransport:
        """The part of one process."""
        return LoopbackTransport(self, process)

    def box(self, process: int, epoch: int) -> Mailbox:
        """Where the messages for a process lie, from before it comes until its next bring-up."""
        return self._boxes.setdefault((process, epoch), Mailbox())

    def begin(self, process: int) -> int:
        """The number of a process's next bring-up; what it left unread before is forgotten."""
        self._epochs[process] += 1
        epoch = self._epochs[process]
        for key in [(p, e) for p, e in list(self._boxes) if p == process and e < epoch]:
            self._boxes.pop(key, None)
        return epoch


class LoopbackTransport:
    """One process's part in a `Loopback` (see `base.Transport`)."""

    must_stay: ClassVar[bool] = True
    SOURCES: ClassVar[tuple[str, str]] = ("the loopback's number", "the loopback's count")

    def __init__(self, world: Loopback, process: int) -> None:
        self.process, self.processes = process, world.processes
        self._world = world

    def open(self, me: Identity, deadline: Deadline) -> CarriedEndpoint:
        """An endpoint over the mailboxes; nothing has to be waited for."""
        del deadline
        epoch = self._world.begin(self.process)
        return CarriedEndpoint(LoopbackCarrier(self._world, self.process, epoch), me, epoch)

    def leave(self, code: int) -> None:
        """Nothing to end."""


class LoopbackCarrier:
    """Messages through mailboxes (see `carried.Carrier`)."""

    def __init__(self, world: Loopback, process: int, epoch: int) -> None:
        self.process, self.processes = process, world.processes
        self._world, self._epoch = world, epoch

    def idle(self) -> bool:
        """What is posted is there at once."""
        return True

    def post(self, peer: int, message: bytes) -> None:
        """Put *message* into the mailbox of *peer*."""
        self._world.box(peer, self._epoch).put(self.process, message)

    def collect(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Take what lies in ours."""
        return self._world.box(self.process, self._epoch).take(timeout_s)

    def close(self) -> None:
        """Nothing to let go of."""
