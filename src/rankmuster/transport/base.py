"""What a transport owes to those above it: messages between processes, in order, within a deadline.

A session knows its peers by *handles*, small numbers that its endpoint gives out; whether a handle
is a TCP connection, an MPI rank or a queue is the endpoint's own affair.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from socket import socket
from typing import ClassVar, NamedTuple, Protocol

from rankmuster.errors import MusterError
from rankmuster.transport.framing import Frame


@dataclass(frozen=True, slots=True)
class Deadline:
    """One absolute time on the clock *now*, made once by the outermost caller."""

    at: float
    whole_s: float
    now: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, now: Callable[[], float] = time.monotonic) -> Deadline:
        """The deadline that many seconds from now. Raises ValueError for nan and for no time."""
        if math.isnan(seconds) or seconds <= 0:
            raise ValueError(f"a deadline lies some seconds ahead, not {seconds!r}")
        return cls(now() + seconds, seconds, now)

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - self.now())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.now() >= self.at


class Role(IntEnum):
    """What a connection is for; who dials says so in the first message."""

    CENSUS = 1  # a process to the root, both ways
    PEER = 2  # frames of groups; who has something to send dials, unless the other did before


class Identity(NamedTuple):
    """Who a process says it is: its number, and its devices as first id and count.

    The census card holds the exact devices; this names a process that has not handed in its card.
    """

    process: int
    first_device: int
    devices: int


class Knocked(NamedTuple):
    """A connection showed that it knows the secret; it may not send frames yet."""

    handle: int
    identity: Identity
    role: Role


class Joined(NamedTuple):
    """A connection is proven on both sides."""

    handle: int
    identity: Identity
    role: Role


class Received(NamedTuple):
    """A frame arrived on a proven connection."""

    handle: int
    frame: Frame


class Lost(NamedTuple):
    """The other side went away, or broke the protocol; the handle is no longer of use.

    After `Knocked` it may come without `Joined`: anybody can repeat a hello that was overheard.
    """

    handle: int
    why: str


Event = Knocked | Joined | Received | Lost


class Endpoint(Protocol):
    """One process's links to all others. One thread at a time; frames of a handle keep order.

    `send` only queues; `poll` moves what is queued, waits up to its timeout for something to
    happen and returns what did. Using an endpoint after `close` raises `Closed`.
    """

    def dial(self, address: str, role: Role) -> int:
        """Want a connection; return its handle, on which frames may be sent at once."""

    def send(self, handle: int, frame: Frame) -> None:
        """Queue a frame; on a lost handle it goes nowhere."""

    def poll(self, timeout_s: float) -> list[Event]:
        """Move what is queued, wait for something to happen, return what did; it may be []."""

    def close(self) -> None:
        """Let go of everything; closing twice is fine."""


class Connections(Endpoint, Protocol):
    """An endpoint of a bring-up: it can also be dialled, and says how far its dialling is.

    `strangers` counts, by kind, who was turned away.
    """

    strangers: Counter[str]

    def listen(self, host: str) -> str:
        """Open a door on *host*; return the address that others may dial."""

    def adopt(self, listener: socket) -> str:
        """Use a door that is open already; it is closed with this endpoint."""

    def watch(self, descriptor: int, action: Callable[[], None]) -> None:
        """Call *action* in `poll` when *descriptor*, which stays the caller's, has news."""

    def dial(self, address: str, role: Role, *, patient: bool = True) -> int:
        """As an endpoint does; unless *patient*, an address where nobody listens is `Lost`."""

    def drop(self, handle: int) -> None:
        """Close one connection of ours; no `Lost` follows."""

    def has_spoken(self) -> bool:
        """Whether every connection that we dialled has our first message on its way."""

    def settled(self) -> bool:
        """Whether every connection that we dialled is proven."""

    def idle(self) -> bool:
        """Whether nothing waits to be written."""


class Transport(Protocol):
    """A way to carry a bring-up that another library owns: MPI, a store, the threads of a process.

    It knows which of `processes` we are (`process`), and makes endpoints that reach the others; the
    address of a process is its number. Where `must_stay`, a command that follows the muster runs
    below this process, which may not become another.
    """

    must_stay: ClassVar[bool]
    SOURCES: ClassVar[tuple[str, str]]
    """What people call the sources of `process` and `processes`."""

    @property
    def process(self) -> int:
        """This process's number."""

    @property
    def processes(self) -> int:
        """How many there are."""

    def open(self, me: Identity, deadline: Deadline) -> Connections:
        """An endpoint for this process's next bring-up; they are counted, on all alike."""

    def leave(self, code: int) -> None:
        """End our part in that library, before this process becomes another or exits with *code*.

        Where the others do not come so far, it may end the whole job with *code*.
        """


class Channel(Protocol):
    """One rank's link to the others of its group, by rank. One thread at a time; frames keep order.

    Every call raises `DeadlineExceeded` at its deadline, `PeerLost` where the other side went away,
    `Closed` after our own `close`, and `BusyError` where another thread is inside.
    """

    def send(self, peer: int, frame: bytes, deadline: Deadline) -> None:
        """Hand *frame* over for *peer*."""

    def recv(self, peer: int, nbytes: int, deadline: Deadline) -> bytes:
        """The next frame of *peer*; `RemoteProtocolError` if it has more than *nbytes*."""

    def close(self) -> None:
        """Let go of everything. The one call that may come from any thread, at any time."""


@contextlib.contextmanager
def map_errors(errors: Mapping[type[Exception], type[MusterError]], what: str) -> Iterator[None]:
    """Turn another library's exceptions into ours, said of *what* we did; the original stays."""
    try:
        yield
    except tuple(errors) as error:
        ours = next(mine for theirs, mine in errors.items() if isinstance(error, theirs))
        raise ours(f"{what}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """What *error* says, without the stack that some libraries append to it."""
    return next(iter(str(error).splitlines()), type(error).__name__)
