"""A virtual network under a virtual clock: who moves next, what arrives when, who hears of a loss.

It knows steps and frames, and nothing of what a protocol means by them.
"""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from typing import Generic, TypeVar

from rankmuster.errors import DeadlineExceeded, MusterError, PeerLost, RemoteProtocolError
from rankmuster.protocol.steps import Recv, Send, Steps
from rankmuster.testing.simulation import Deadlock, Event, Reply, Simulation

T = TypeVar("T")

LATENCY_MAX = 100.0
LATENCY_LEAST = 1.0 / LATENCY_MAX
MARGIN = 1000 * LATENCY_MAX
LAST_GRACE = 2
BITS = 32
MASK = (1 << BITS) - 1


class _Wait(Enum):
    WAIT = 0


def feed(steps: Steps[T], answer: Reply) -> Send | Recv:
    """Answer *steps*' last step and take the next one."""
    if isinstance(answer, MusterError):
        return steps.throw(answer)
    return steps.send(answer)  # type: ignore[arg-type] # None starts a generator, or ends a send


class World(ABC, Generic[T]):
    """The state of one run. A link is `source << BITS | destination`, and so is a wait.

    A peer may be a rank that this world does not have: nothing ever comes from there.
    """

    def __init__(self, ranks: Sequence[Steps[T]], seed: int, *, trace: bool) -> None:
        self.ranks, self.size, self.tracing = ranks, len(ranks), trace
        self.dies: Mapping[int, int] = {}
        self.stops: Mapping[int, int] = {}
        self.delays: Mapping[int, float] = {}
        self.random = random.Random(seed).random  # noqa: S311 - a schedule to replay, no secret
        self.result = Simulation[T](steps=[0] * self.size)
        self.at: dict[int, Send | Recv] = {}  # where each waiting rank stands
        self.awaited: Counter[int] = Counter()  # by how many ranks
        self.depth = [0] * self.size
        self.left = self.size
        self.gone: set[int] = set()
        self.skew: Counter[int] = Counter()  # of a link: receives given up, less sends given up
        self.expired = -1
        self.now = 0.0
        self.order = count()
        self.events: list[tuple[float, int, Callable[[int], None], int]] = []

    @abstractmethod
    def attempt(self, rank: int, step: Send | Recv) -> Reply | _Wait:
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
        while self.left and self.events:
            self.now, _, act, subject = heapq.heappop(self.events)
            act(subject)
        if self.left:
            raise Deadlock({rank: step.peer for rank, step in self.at.items()})
        self.result.time, self.result.rounds = self.now, max(self.depth, default=0)
        return self.result

    def at_time(self, time: float, act: Callable[[int], None], subject: int) -> None:
        heapq.heappush(self.events, (time, next(self.order), act, subject))

    def soon(self, act: Callable[[int], None], subject: int, delay: float = 0.0) -> None:
        # Mostly near 1, sometimes up to LATENCY_MAX, so that orders differ in more than noise.
        time = self.now + 1.0 / (self.random() + LATENCY_LEAST) + delay
        heapq.heappush(self.events, (time, next(self.order), act, subject))

    def link(self, rank: int, step: Send | Recv) -> int:
        if isinstance(step, Send):
            return rank << BITS | step.peer
        return step.peer << BITS | rank

    def resume(self, rank: int, answer: Reply) -> None:
        """Take *rank* from one answer to its next wait, its end or its fault."""
        steps, taken = self.ranks[rank], self.result.steps
        dies, stops = self.dies.get(rank), self.stops.get(rank)
        try:
            while True:
                step = feed(steps, answer)
                number = taken[rank]
                if number == dies:
                    return self.leave(rank)
                if number == stops:
                    self.left -= 1
                    return None
                taken[rank] = number + 1
                outcome = self.attempt(rank, step)
                if outcome is _Wait.WAIT:
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
        self.awaited[step.peer] += 1
        if self.trouble(step):
            self.give_up_soon(rank)

    def end_wait(self, rank: int, answer: Reply) -> None:
        step = self.at.pop(rank)
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
            for waiter, step in self.at.items():
                if step.peer == rank and not self.is_settled(waiter, step):
                    self.give_up_soon(waiter)

    def expire(self, grace: int) -> None:
        self.expired = grace
        for rank, step in self.at.items():
            if step.grace <= grace:
                self.give_up_soon(rank)

    def give_up_soon(self, rank: int) -> None:
        self.soon(self.give_up, self.result.steps[rank] << BITS | rank)

    def give_up(self, wait: int) -> None:
        """Throw into a rank what ends its wait, unless that is over or about to be answered."""
        number, rank = wait >> BITS, wait & MASK
        step = self.at.get(rank)
        if step is None or number != self.result.steps[rank] or self.is_settled(rank, step):
            return
        if trouble := self.trouble(step):
            # The frame may come all the same: it must not be taken for the next one.
            self.skew[self.link(rank, step)] += 1 if isinstance(step, Recv) else -1
            self.end_wait(rank, trouble)
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
        self.depth[rank] = max(self.depth[rank], depth + 1)
        if len(frame) <= step.nbytes:
            return frame
        return RemoteProtocolError(
            f"rank {step.peer} sent {len(frame)} bytes where at most {step.nbytes} are due"
        )


class Buffered(World[T]):
    """Sends complete at once; frames of a link arrive in order, each in its own time."""

    def __init__(self, ranks: Sequence[Steps[T]], seed: int, *, trace: bool) -> None:
        super().__init__(ranks, seed, trace=trace)
        self.mail: dict[int, list[tuple[int, bytes]]] = {}  # (depth, frame), as sent
        self.arrived: dict[int, int] = {}  # how many of them, the first ones, are here
        self.arrives = self.arrive  # bound once: an event each holds it

    def attempt(self, rank: int, step: Send | Recv) -> Reply | _Wait:
        link = self.link(rank, step)
        if isinstance(step, Send):
            return self.send(rank, step, link)
        if self.arrived.get(link):
            self.arrived[link] -= 1
            return self.receive(link, step)
        return _Wait.WAIT

    def send(self, rank: int, step: Send, link: int) -> MusterError | None:
        if step.peer in self.gone:  # a kernel may take it, or know better
            return self.trouble(step) if self.random() < 0.5 else None
        self.mail.setdefault(link, []).append((self.depth[rank], step.frame))
        self.soon(self.arrives, link, self.delays.get(rank, 0.0))
        return None

    def is_settled(self, rank: int, step: Send | Recv) -> bool:
        left_frames = step.peer in self.gone and self.link(rank, step) in self.mail
        return left_frames and step.grace > self.expired

    def arrive(self, link: int) -> None:
        source, rank = link >> BITS, link & MASK
        here = self.arrived.get(link, 0)
        if len(self.mail.get(link, ())) == here:
            return  # lost with its sender
        step = self.at.get(rank)
        if source in self.gone and source in self.dies and self.random() < 0.5:
            self.lose(link, here)
        elif self.skew and self.skew[link] > 0:
            self.skew[link] -= 1
            self.pop(link)
        elif isinstance(step, Recv) and step.peer == source:
            answer = self.receive(link, step)
            self.end_wait(rank, answer)
            self.resume(rank, answer)
        else:
            self.arrived[link] = here + 1

    def receive(self, link: int, step: Recv) -> bytes | MusterError:
        depth, frame = self.pop(link)
        return self.received(link & MASK, step, frame, depth)

    def pop(self, link: int) -> tuple[int, bytes]:
        frames = self.mail[link]
        first = frames.pop(0)
        if not frames:
            del self.mail[link]
            self.arrived.pop(link, None)
        return first

    def lose(self, link: int, here: int) -> None:
        """Drop what of a dead rank has not arrived yet; a reset takes it along."""
        rank = link & MASK
        del self.mail[link][here:]
        if not here:
            del self.mail[link]
        if rank in self.at:
            self.give_up_soon(rank)


class Rendezvous(World[T]):
    """A send completes only when its peer stands at the receive."""

    def attempt(self, rank: int, step: Send | Recv) -> Reply | _Wait:
        link = self.link(rank, step)
        if self.is_settled(rank, step):
            self.soon(self.meet, link, self.delays.get(link >> BITS, 0.0))
        return _Wait.WAIT

    def is_settled(self, rank: int, step: Send | Recv) -> bool:
        other = self.at.get(step.peer)
        if other is None or other.peer != rank or type(other) is type(step):
            return False
        return not self.skew[self.link(rank, step)]

    def meet(self, link: int) -> None:
        source, rank = link >> BITS, link & MASK
        sends, receives = self.at[source], self.at[rank]
        assert isinstance(sends, Send), "a rank leaves a settled wait only by meeting"
        assert isinstance(receives, Recv), "a rank leaves a settled wait only by meeting"
        answer = self.received(rank, receives, sends.frame, self.depth[source])
        self.end_wait(source, None)
        self.end_wait(rank, answer)
        self.resume(rank, answer)
        self.resume(source, None)
