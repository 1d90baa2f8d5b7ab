"""Many groups of one process at once: frames in, frames out, and nobody waits for anybody's order.

It knows no socket and no clock. The owner of the channel feeds it and empties it:

    groups = Multiplexer(my_devices)
    for key, members in ...:                 # any order; it may differ between processes
        for device in those of members that are mine:
            rank = members.index(device)
            groups.add(key, members, rank, form_group(rank, len(members), digest, unique_id))
    while not groups.done:
        for key, source, destination, frame in groups.outgoing():
            ...                              # write it to the process that holds `destination`
        groups.receive(key, source, destination, frame)    # a frame came in
        groups.lost(device, "process 5 ...")               # for each device of a lost process
        groups.expire(grace=0)                             # the time of ordinary waits is over
    ...                                      # write what `outgoing` still holds: peers wait for it

Addresses are global device ids (facts D14); in the closing round they are process numbers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rankmuster.errors import (
    DeadlineExceeded,
    LocalProtocolError,
    MusterError,
    PeerLost,
    RemoteProtocolError,
)
from rankmuster.protocol.steps import Recv, Send, Steps, feed

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

PARKED_BYTES = 4 << 20


class Outgoing(NamedTuple, Generic[K]):
    """One frame for the process that holds *destination*."""

    key: K
    source: int
    destination: int
    frame: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class _Run(Generic[K, T]):
    """One local device's part in one group.

    `awaits` is the receive at which it stands, and `awaited` the device that is to send.
    """

    key: K
    participants: Sequence[int]
    device: int
    place: tuple[K, int]
    steps: Steps[T]
    awaits: Recv | None = None
    awaited: int = -1


class Multiplexer(Generic[K, T]):
    """Runs every group in which the *local* devices take part, over one channel.

    Two local devices of a group meet in memory. Frames that come before their receive, or before
    their group was added, are parked up to *parked_bytes*. Sends never block: what `outgoing`
    holds is bounded by what the protocols owe.
    """

    def __init__(self, local: Iterable[int], *, parked_bytes: int = PARKED_BYTES) -> None:
        self.outcome: dict[tuple[K, int], T | MusterError] = {}
        """What each (key, local device) returned or raised, as far as they have ended."""
        self._local = frozenset(local)
        self._room = parked_bytes
        self._runs: dict[tuple[K, int], _Run[K, T]] = {}
        self._mail: dict[tuple[K, int], dict[int, deque[bytes]]] = {}  # by source
        self._late: defaultdict[tuple[K, int, int], int] = defaultdict(int)
        self._lost: dict[int, str] = {}
        self._expired = -1
        self._out: list[Outgoing[K]] = []
        self._ready: deque[_Run[K, T]] = deque()

    def add(self, key: K, participants: Sequence[int], rank: int, steps: Steps[T]) -> None:
        """Start the local device `participants[rank]` in group *key*.

        Raises `LocalProtocolError` if that device is not local or was added to this group before.
        """
        device = participants[rank]
        if device not in self._local:
            raise LocalProtocolError(f"device {device} is not among {sorted(self._local)}")
        place = (key, device)
        if place in self._runs or place in self.outcome:
            raise LocalProtocolError(f"device {device} already takes part in group {key!r}")
        run = _Run(key=key, participants=participants, device=device, place=place, steps=steps)
        self._runs[place] = run
        self._resume(run, None)
        self._ready.append(run)
        self._advance()

    def receive(self, key: K, source: int, destination: int, frame: bytes) -> None:
        """Take a frame that came in from *source*; one that nobody waits for any more is dropped.

        Raises `RemoteProtocolError` if the addresses are not those of a peer and a local device,
        or if more would be parked than the bound: drop that peer, then call `lost`.
        """
        if destination not in self._local or source in self._local:
            raise RemoteProtocolError(
                f"a frame from device {source} to device {destination} came to the process of "
                f"devices {sorted(self._local)}"
            )
        if len(frame) > self._room:
            raise RemoteProtocolError(f"device {source} sends faster than it is waited for")
        self._deliver(key, source, destination, frame)
        self._advance()

    def lost(self, device: int, reason: str = "") -> None:
        """Tell every group that waits for *device*, now or later, that it went away.

        Frames that it sent before are still delivered.
        """
        self._lost.setdefault(device, reason or f"device {device} went away")
        self._ready.extend(run for run in self._runs.values() if run.awaited == device)
        self._advance()

    def expire(self, grace: int = 2) -> None:
        """End all waits of at most *grace* margins, now and from here on, by `DeadlineExceeded`."""
        self._expired = max(self._expired, grace)
        self._ready.extend(self._runs.values())
        self._advance()

    def outgoing(self) -> list[Outgoing[K]]:
        """Hand over the frames to write, in order; each is given once."""
        out, self._out = self._out, []
        return out

    @property
    def done(self) -> bool:
        """Whether every added group has ended (its last frames may still stand in `outgoing`)."""
        return not self._runs

    def waiting(self) -> dict[tuple[K, int], int]:
        """For each (key, local device) that has not ended, the device whose frame it waits for."""
        return {place: run.awaited for place, run in self._runs.items()}

    def close(self) -> None:
        """Stop what still runs; those groups get no outcome."""
        for run in self._runs.values():
            run.steps.close()
        self._runs.clear()
        self._mail.clear()

    def _advance(self) -> None:
        while self._ready:
            run = self._ready.popleft()
            while run.awaits and (answer := self._answer(run, run.awaits)) is not None:
                self._resume(run, answer)

    def _answer(self, run: _Run[K, T], awaits: Recv) -> bytes | MusterError | None:
        """What *run* gets for the receive at which it stands, or None while that is open."""
        source, mail = run.awaited, self._mail.get(run.place)
        if mail and (frames := mail.get(source)):
            frame = frames.popleft()
            self._room += len(frame)
            if len(frame) <= awaits.nbytes:
                return frame
            return RemoteProtocolError(
                f"device {source} sent {len(frame)} bytes where at most {awaits.nbytes} are due"
            )
        if source in self._lost:
            return PeerLost(self._lost[source])
        # A device of ours that still waits itself will send what it owes: it is not at fault.
        if awaits.grace <= self._expired and (run.key, source) not in self._runs:
            self._late[run.key, source, run.device] += 1
            return DeadlineExceeded(f"device {source} did not answer in time")
        return None

    def _resume(self, run: _Run[K, T], answer: bytes | MusterError | None) -> None:
        """Take *run* to its next receive, or to its end."""
        run.awaits = None
        try:
            step = feed(run.steps, answer)
            while isinstance(step, Send):
                step = self._send(run, step)
            run.awaits, run.awaited = step, run.participants[step.peer]
        except StopIteration as stop:
            self._end(run, stop.value)
        except MusterError as error:
            self._end(run, error)

    def _send(self, run: _Run[K, T], step: Send) -> Send | Recv:
        destination = run.participants[step.peer]
        if destination in self._lost:
            return run.steps.throw(PeerLost(self._lost[destination]))
        if destination in self._local:
            self._deliver(run.key, run.device, destination, step.frame)
        else:
            self._out.append(Outgoing(run.key, run.device, destination, step.frame))
        return next(run.steps)

    def _deliver(self, key: K, source: int, destination: int, frame: bytes) -> None:
        place, link = (key, destination), (key, source, destination)
        if place in self.outcome:
            return
        if self._late.get(link):  # its receive was given up: it must not be taken for the next one
            self._late[link] -= 1
            return
        self._mail.setdefault(place, {}).setdefault(source, deque()).append(frame)
        self._room -= len(frame)
        if run := self._runs.get(place):
            self._ready.append(run)

    def _end(self, run: _Run[K, T], result: T | MusterError) -> None:
        del self._runs[run.place]
        self.outcome[run.place] = result
        if self._expired >= 0:
            ours = (self._runs.get((run.key, device)) for device in self._local)
            self._ready.extend(each for each in ours if each and each.awaited == run.device)
        for unread in self._mail.pop(run.place, {}).values():
            self._room += sum(map(len, unread))
