"""A virtual network under a virtual clock: who moves next, what arrives when, who hears of a loss.

It knows steps and frames, and nothing of what a protocol means by them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

from rankmuster.errors import DeadlineExceeded, MusterError, PeerLost, RemoteProtocolError
from rankmuster.protocol.steps import Recv, Send, Steps
from rankmuster.testing.simulation import Deadlock, Event, Reply, Simulation

S = TypeVar("S")
T = TypeVar("T")
Act: TypeAlias = tuple[float, Callable[[Any], None], Any]
"""What is done at a time, and to whom."""
TIME = itemgetter(0)

LATENCY_MAX = 100.0
LATENCY_LEAST = 1.0 / LATENCY_MAX
SLICES = 2  # of one unit of time: longer than one of them does every message take
MARGIN = 1000 * LATENCY_MAX
LAST_GRACE = 2
BITS = 32
MASK = (1 << BITS) - 1


class _Wait(Enum):
    WAIT = 0


WAIT = _Wait.WAIT


@dataclass(slots=True, eq=False)
class Link:
    """What *source* sent to *rank* and that one has not taken; the first `here` have arrived."""

    key: int
    source: int
    rank: int
    here: int = 0
    frames: list[tuple[int, bytes]] = field(default_factory=list)  # and the depth of each


def feed(steps: Steps[T], answer: Reply) -> Send | Recv:
    """Answer *steps*' last step and take the next one."""
    if isinstance(answer, MusterError):
        return steps.throw(answer)
    return steps.send(answer)  # type: ignore[arg-type] # None starts a generator, or ends a send


class World(ABC, Generic[T]):
    """The state of one run. A wait is `step number << BITS | rank`, a link's key like it.

    A peer may be a rank that this world does not have: nothing ever comes from there.
    """

    def __init__(self, ranks: Sequence[Steps[T]], seed: int, *, trace: bool) -> None:
        self.ranks, self.size, self.tracing = ranks, len(ranks), trace
        self.dies: Mapping[int, int] = {}
        self.stops: Mapping[int, int] = {}
        self.delays: Mapping[int, float] = {}
        self.random = random.Random(seed).random  # noqa: S311 - a schedule to replay, no secret
        self.result = Simulation[T](steps=[0] * self.size)
        self.at: list[Send | Recv | None] = [None] * self.size  # where each waiting rank stands
        self.awaited = [0] * self.size  # by how many ranks
        self.depth = [0] * self.size
        self.left = self.size
        self.gone: set[int] = set()
        self.skew: Counter[int] = Counter()  # of a link: receives given up, less sends given up
        self.expired = -1
        self.now = 0.0
        self.slices: defaultdict[int, list[Act]] = defaultdict(list)  # of the time to come

    @abstractmethod
    def send(self, rank: int, step: Send) -> MusterError | _Wait | None:
        """Carry out *step* now, or say that *rank* has to wait."""

    @abstractmethod
    def receive(self, rank: int, step: Recv) -> bytes | MusterError | _Wait:
        """Answer *step* now, or say that *rank* has to wait."""

    @abstractmethod
    def is_settled(self, rank: int, step: Send | Recv) -> bool:
        """Whether an event that will answer *rank*'s wait is under way already."""

    def run(self, deadline: float | None) -> Simulation[T]:
        if deadline is not None:
            for grace in range(LAST_GRACE + 1):
                self.at_time(deadline + grace * MARGIN, self.expire, grace)
        for rank in sorted(range(self.size), key=lambda _: self.random()):
            self.resume(rank, None)
        while self.left:
            if not self.slices:
                raise Deadlock({rank: step.peer for rank, step in self.waiting()})
            self.run_slice(self.slices.pop(min(self.slices)))
        self.result.time, self.result.rounds = self.now, max(self.depth, default=0)
        return self.result

    def run_slice(self, acts: list[Act]) -> None:
        """Do all that is due; whatever comes of it is due in a later slice.

        One sort of a slice costs a fraction of as many operations on a heap.
        """
        acts.sort(key=TIME)
        for self.now, act, subject in acts:
            act(subject)
            if not self.left:
                return

    def at_time(self, time: float, act: Callable[[S], None], subject: S) -> None:
        self.slices[int(SLICES * time)].append((time, act, subject))

    def soon(self, act: Callable[[S], None], subject: S, delay: float = 0.0) -> None:
        # Mostly near 1, sometimes up to LATENCY_MAX, so that orders differ in more than noise.
        self.at_time(self.now + 1.0 / (self.random() + LATENCY_LEAST) + delay, act, subject)

    def waiting(self) -> Iterator[tuple[int, Send | Recv]]:
        return ((rank, step) for rank, step in enumerate(self.at) if step is not None)

    def key(self, rank: int, step: Send | Recv) -> int:
        if isinstance(step, Send):
            return rank << BITS | step.peer
        return step.peer << BITS | rank

    def resume(self, rank: int, answer: Reply) -> None:
        """Take *rank* from one answer to its next wait, its end or its fault."""
        steps, taken = self.ranks[rank], self.result.steps
        dies, stops = self.dies.get(rank), self.stops.get(rank)
        number = taken[rank]
        try:
            while True:
                step = feed(steps, answer)
                if number == dies:
                    return self.leave(rank)
                if number == stops:
                    self.left -= 1
                    return None
                taken[rank] = number = number + 1
                outcome = (
                    self.send(rank, step) if isinstance(step, Send) else self.receive(rank, step)
                )
                if outcome is WAIT:
                    return self.wait(rank, step)
                answer = outcome
                if self.tracing:
                    self.record(rank, step, answer)
        except StopIteration as stop:
            self.result.outcome[rank] = stop.value
        except MusterError as error:
            self.result.outcome[rank] = error.with_traceback(None)  # it keeps its frames alive
        return self.leave(rank)

    def wait(self, rank: int, step: Send | Recv) -> None:
        self.at[rank] = step
        if step.peer < self.size:
            self.awaited[step.peer] += 1
        if self.trouble(step):
            self.give_up_soon(rank)

    def end_wait(self, rank: int, step: Send | Recv, answer: Reply) -> None:
        self.at[rank] = None
        if step.peer < self.size:
            self.awaited[step.peer] -= 1
        if self.tracing:
            self.record(rank, step, answer)

    def record(self, rank: int, step: Send | Recv, answer: Reply) -> None:
        self.result.trace.append(Event(rank=rank, step=step, answer=answer))

    def leave(self, rank: int) -> None:
        """*rank* has ended or died: whoever waits for it hears of it, each in its own time."""
        self.left -= 1
        self.gone.add(rank)
        self.ranks[rank].close()
        if self.awaited[rank]:  # seldom: a scan is cheaper than to keep lists of waiters
            for waiter, step in self.waiting():
                if step.peer == rank and not self.is_settled(waiter, step):
                    self.give_up_soon(waiter)

    def expire(self, grace: int) -> None:
        self.expired = grace
        for rank, step in self.waiting():
            if step.grace <= grace:
                self.give_up_soon(rank)

    def give_up_soon(self, rank: int) -> None:
        self.soon(self.give_up, self.result.steps[rank] << BITS | rank)

    def give_up(self, wait: int) -> None:
        """Throw into a rank what ends its wait, unless that is over or about to be answered."""
        number, rank = wait >> BITS, wait & MASK
        step = self.at[rank]
        if step is None or number != self.result.steps[rank] or self.is_settled(rank, step):
            return
        if trouble := self.trouble(step):
            # The frame may come all the same: it must not be taken for the next one.
            self.skew[self.key(rank, step)] += 1 if isinstance(step, Recv) else -1
            self.end_wait(rank, step, trouble)
            self.resume(rank, trouble)

    def trouble(self, step: Send | Recv) -> MusterError | None:
        """What stands against *step* ever being answered."""
        if step.peer in self.gone:
            return PeerLost(f"rank {step.peer} is gone")
        if step.grace <= self.expired:
            return DeadlineExceeded(f"rank {step.peer} did not answer in time")
        return None

    def received(self, rank: int, step: Recv, frame: bytes, depth: int) -> bytes | MusterError:
        self.result.messages += 1
        self.result.payload_bytes += len(frame)
        if depth >= self.depth[rank]:
            self.depth[rank] = depth + 1
        if len(frame) <= step.nbytes:
            return frame
        return RemoteProtocolError(
            f"rank {step.peer} sent {len(frame)} bytes where at most {step.nbytes} are due"
        )


class Buffered(World[T]):
    """Sends complete at once; frames of a link arrive in order, each in its own time."""

    def __init__(self, ranks: Sequence[Steps[T]], seed: int, *, trace: bool) -> None:
        super().__init__(ranks, seed, trace=trace)
        self.links: dict[int, Link] = {}  # those with frames
        self.arrives = self.arrive  # bound once: an event each holds it

    def send(self, rank: int, step: Send) -> MusterError | None:
        if step.peer in self.gone:  # a kernel may take it, or know better
            return self.trouble(step) if self.random() < 0.5 else None
        if step.peer >= self.size:
            return None
        key = rank << BITS | step.peer
        link = self.links.get(key)
        if link is None:
            link = self.links[key] = Link(key, rank, step.peer)
        link.frames.append((self.depth[rank], step.frame))
        self.soon(self.arrives, link, self.delays.get(rank, 0.0))
        return None

    def receive(self, rank: int, step: Recv) -> bytes | MusterError | _Wait:
        link = self.links.get(step.peer << BITS | rank)
        if link is None or not link.here:
            return WAIT
        link.here -= 1
        return self.take(link, step)

    def is_settled(self, rank: int, step: Send | Recv) -> bool:
        left_frames = step.peer in self.gone and self.key(rank, step) in self.links
        return left_frames and step.grace > self.expired

    def arrive(self, link: Link) -> None:
        if len(link.frames) == link.here:
            return  # lost with its sender
        source, rank = link.source, link.rank
        step = self.at[rank]
        if source in self.gone and source in self.dies and self.random() < 0.5:
            self.lose(link)
        elif self.skew and self.skew[link.key] > 0:
            self.skew[link.key] -= 1
            self.pop(link)
        elif isinstance(step, Recv) and step.peer == source:
            answer = self.take(link, step)
            self.end_wait(rank, step, answer)
            self.resume(rank, answer)
        else:
            link.here += 1

    def take(self, link: Link, step: Recv) -> bytes | MusterError:
        depth, frame = self.pop(link)
        return self.received(link.rank, step, frame, depth)

    def pop(self, link: Link) -> tuple[int, bytes]:
        first = link.frames.pop(0)
        if not link.frames:
            del self.links[link.key]
        return first

    def lose(self, link: Link) -> None:
        """Drop what of a dead rank has not arrived yet; a reset takes it along."""
        del link.frames[link.here :]
        if not link.frames:
            del self.links[link.key]
        if self.at[link.rank]:
            self.give_up_soon(link.rank)


class Rendezvous(World[T]):
    """A send completes only when its peer stands at the receive."""

    def send(self, rank: int, step: Send) -> _Wait:
        if self.is_settled(rank, step):
            self.soon(self.meet, (rank, step.peer), self.delays.get(rank, 0.0))
        return WAIT

    def receive(self, rank: int, step: Recv) -> _Wait:
        if self.is_settled(rank, step):
            self.soon(self.meet, (step.peer, rank), self.delays.get(step.peer, 0.0))
        return WAIT

    def is_settled(self, rank: int, step: Send | Recv) -> bool:
        other = self.at[step.peer] if step.peer < self.size else None
        if other is None or other.peer != rank or type(other) is type(step):
            return False
        return not self.skew[self.key(rank, step)]

    def meet(self, ends: tuple[int, int]) -> None:
        source, rank = ends
        sends, receives = self.at[source], self.at[rank]
        assert isinstance(sends, Send), "a rank leaves a settled wait only by meeting"
        assert isinstance(receives, Recv), "a rank leaves a settled wait only by meeting"
        answer = self.received(rank, receives, sends.frame, self.depth[source])
        self.end_wait(source, sends, None)
        self.end_wait(rank, receives, answer)
        self.resume(rank, answer)
        self.resume(source, None)
