"""A virtual network under a virtual clock: who moves next, what arrives when, who hears of a loss.

It knows steps and frames, and nothing of what a protocol means by them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from rankmuster.errors import DeadlineExceeded, MusterError, PeerLost, RemoteProtocolError
from rankmuster.protocol.steps import Recv, Send, Steps, feed
from rankmuster.testing.simulation import Deadlock, Event, Reply, Simulation

S = TypeVar("S")
T = TypeVar("T")
Act: TypeAlias = tuple[float, Callable[[Any, Any], None], Any]
"""At what time the world does what, and to whom."""
TIME = itemgetter(0)

LATENCY_MAX = 100.0
LATENCY_LEAST = 1.0 / LATENCY_MAX
SLICES = 2  # of one unit of time: longer than one of them does every message take
MARGIN = 1000 * LATENCY_MAX
LAST_GRACE = 2
NEVER = -1
LINK = (1 << 32) + 1  # odd, so that the keys of a rank's links, to it or from it, end differently


class _Wait(Enum):
    WAIT = 0


WAIT = _Wait.WAIT


@dataclass(slots=True, eq=False)
class Rank(Generic[T]):
    """One rank: what befalls it, where it waits, and how far it is.

    It is all in one object, which others point at: of a hundred thousand that are woken in random
    order, each object looked at is one that no cache holds.
    """

    number: int
    steps: Steps[T]
    dies: int = NEVER  # before that step
    stops: int = NEVER
    delay: float = 0.0  # of all that it sends
    at: Send | Recv | None = None  # where it waits
    peer: Rank[T] | None = None  # for whom it waits there
    awaited: int = 0  # by how many
    taken: int = 0  # steps
    depth: int = 0
    here: int = 0  # frames that it has not taken
    gone: bool = False


class Link(msgspec.Struct, gc=False):
    """What *source* sent to *rank* and that one has not taken: a frame and its depth, or *more*.

    The first `here` of them have arrived; where some are *lost*, no other ever will.
    """

    key: int
    source: Rank[Any]
    rank: Rank[Any]
    depth: int
    frame: bytes
    more: list[tuple[int, bytes]] | None = None
    here: int = 0
    lost: bool = False


def key(rank: Rank[Any], step: Send | Recv) -> int:
    """Of the link over which *rank* takes *step*."""
    if isinstance(step, Send):
        return rank.number * LINK + step.peer
    return step.peer * LINK + rank.number


def silence() -> Steps[Any]:
    """The steps of nobody."""
    yield from ()


class World(ABC, Generic[T]):
    """The state of one run.

    A peer may be a rank that this world does not have: nothing ever comes from there.
    """

    def __init__(self, ranks: Sequence[Rank[T]], seed: int, *, trace: bool) -> None:
        self.ranks, self.size, self.tracing = ranks, len(ranks), trace
        self.nobody: Rank[T] = Rank(NEVER, silence())
        self.mortal = any(rank.dies != NEVER for rank in ranks)
        self.random = random.Random(seed).random  # noqa: S311 - a schedule to replay, no secret
        self.outcome: dict[int, T | MusterError] = {}
        self.messages = self.payload_bytes = 0
        self.trace: list[Event] = []
        self.left = self.size
        self.skew: Counter[int] = Counter()  # of a link: receives given up, less sends given up
        self.expired = -1
        self.now = 0.0
        self.slices: defaultdict[int, list[Act]] = defaultdict(list)  # of the time to come

    @abstractmethod
    def send(self, rank: Rank[T], peer: Rank[T], step: Send) -> MusterError | _Wait | None:
        """Carry out *step* now, or say that *rank* has to wait."""

    @abstractmethod
    def receive(self, rank: Rank[T], peer: Rank[T], step: Recv) -> bytes | MusterError | _Wait:
        """Answer *step* now, or say that *rank* has to wait."""

    @abstractmethod
    def is_settled(self, rank: Rank[T], peer: Rank[T], step: Send | Recv) -> bool:
        """Whether an event that will answer *rank*'s wait is under way already."""

    def run(self, deadline: float | None) -> Simulation[T]:
        if deadline is not None:
            for grace in range(LAST_GRACE + 1):
                self.at_time(deadline + grace * MARGIN, World.expire, grace)
        for rank in sorted(self.ranks, key=lambda _: self.random()):
            self.resume(rank, None)
        while self.left:
            if not self.slices:
                raise Deadlock({rank.number: step.peer for rank, _, step in self.waiting()})
            self.run_slice(self.slices.pop(min(self.slices)))
        return Simulation(
            outcome=self.outcome,
            steps=[rank.taken for rank in self.ranks],
            rounds=max((rank.depth for rank in self.ranks), default=0),
            messages=self.messages,
            payload_bytes=self.payload_bytes,
            time=self.now,
            trace=self.trace,
        )

    def run_slice(self, acts: list[Act]) -> None:
        """Do all that is due; whatever comes of it is due in a later slice.

        One sort of a slice costs a fraction of as many operations on a heap.
        """
        acts.sort(key=TIME)
        for self.now, act, subject in acts:
            act(self, subject)
            if not self.left:
                return

    def at_time(self, time: float, act: Callable[[Any, S], None], subject: S) -> None:
        self.slices[int(SLICES * time)].append((time, act, subject))

    def soon(self, act: Callable[[Any, S], None], subject: S, delay: float = 0.0) -> None:
        # Mostly near 1, sometimes up to LATENCY_MAX, so that orders differ in more than noise.
        self.at_time(self.now + 1.0 / (self.random() + LATENCY_LEAST) + delay, act, subject)

    def waiting(self) -> Iterator[tuple[Rank[T], Rank[T], Send | Recv]]:
        """Who waits for whom, and where."""
        for rank in self.ranks:
            if rank.at is not None and rank.peer is not None:
                yield rank, rank.peer, rank.at

    def resume(self, rank: Rank[T], answer: Reply) -> None:
        """Take *rank* from one answer to its next wait, its end or its fault."""
        try:
            while True:
                step = feed(rank.steps, answer)
                if rank.taken == rank.dies:
                    return self.leave(rank)
                if rank.taken == rank.stops:
                    self.left -= 1
                    return None
                rank.taken += 1
                peer = self.ranks[step.peer] if step.peer < self.size else self.nobody
                outcome = (
                    self.send(rank, peer, step)
                    if isinstance(step, Send)
                    else self.receive(rank, peer, step)
                )
                if outcome is WAIT:
                    return self.wait(rank, peer, step)
                answer = outcome
                if self.tracing:
                    self.record(rank, step, answer)
        except StopIteration as stop:
            self.outcome[rank.number] = stop.value
        except MusterError as error:
            self.outcome[rank.number] = error.with_traceback(None)  # it keeps its frames alive
        return self.leave(rank)

    def wait(self, rank: Rank[T], peer: Rank[T], step: Send | Recv) -> None:
        rank.at, rank.peer = step, peer
        peer.awaited += 1
        if peer.gone or step.grace <= self.expired:
            self.give_up_soon(rank)

    def end_wait(self, rank: Rank[T], peer: Rank[T], step: Send | Recv, answer: Reply) -> None:
        rank.at = rank.peer = None
        peer.awaited -= 1
        if self.tracing:
            self.record(rank, step, answer)

    def record(self, rank: Rank[T], step: Send | Recv, answer: Reply) -> None:
        self.trace.append(Event(rank=rank.number, step=step, answer=answer))

    def leave(self, rank: Rank[T]) -> None:
        """*rank* has ended or died: whoever waits for it hears of it, each in its own time."""
        self.left -= 1
        rank.gone = True
        rank.steps.close()
        if rank.awaited:  # seldom: a scan is cheaper than to keep lists of waiters
            for waiter, peer, step in self.waiting():
                if peer is rank and not self.is_settled(waiter, peer, step):
                    self.give_up_soon(waiter)

    def expire(self, grace: int) -> None:
        self.expired = grace
        for rank, _, step in self.waiting():
            if step.grace <= grace:
                self.give_up_soon(rank)

    def give_up_soon(self, rank: Rank[T]) -> None:
        self.soon(World.give_up, (rank, rank.taken))

    def give_up(self, wait: tuple[Rank[T], int]) -> None:
        """Throw into a rank what ends its wait, unless that is over or about to be answered."""
        rank, taken = wait
        step, peer = rank.at, rank.peer
        if step is None or peer is None or taken != rank.taken:
            return
        trouble = self.trouble(peer, step)
        if trouble and not self.is_settled(rank, peer, step):
            # The frame may come all the same: it must not be taken for the next one.
            self.skew[key(rank, step)] += 1 if isinstance(step, Recv) else -1
            self.end_wait(rank, peer, step, trouble)
            self.resume(rank, trouble)

    def trouble(self, peer: Rank[T], step: Send | Recv) -> MusterError | None:
        """What stands against *step* ever being answered."""
        if peer.gone:
            return PeerLost(f"rank {step.peer} is gone")
        if step.grace <= self.expired:
            return DeadlineExceeded(f"rank {step.peer} did not answer in time")
        return None

    def received(self, rank: Rank[T], step: Recv, depth: int, frame: bytes) -> bytes | MusterError:
        self.messages += 1
        self.payload_bytes += len(frame)
        if depth >= rank.depth:
            rank.depth = depth + 1
        if len(frame) <= step.nbytes:
            return frame
        return RemoteProtocolError(
            f"rank {step.peer} sent {len(frame)} bytes where at most {step.nbytes} are due"
        )


class Buffered(World[T]):
    """Sends complete at once; frames of a link arrive in order, each in its own time."""

    def __init__(self, ranks: Sequence[Rank[T]], seed: int, *, trace: bool) -> None:
        super().__init__(ranks, seed, trace=trace)
        self.links: dict[int, Link] = {}  # those with frames

    def send(self, rank: Rank[T], peer: Rank[T], step: Send) -> MusterError | None:
        if peer.gone:  # a kernel may take it, or know better
            return self.trouble(peer, step) if self.random() < 0.5 else None
        if peer is self.nobody:
            return None
        link = self.links.get(number := key(rank, step))
        if link is None:
            link = self.links[number] = Link(number, rank, peer, rank.depth, step.frame)
        else:
            link.more = link.more or []
            link.more.append((rank.depth, step.frame))
        self.soon(Buffered.arrive, link, rank.delay)
        return None

    def receive(
        self,
        rank: Rank[T],
        peer: Rank[T],  # noqa: ARG002 - a rendezvous needs it
        step: Recv,
    ) -> bytes | MusterError | _Wait:
        if not rank.here:
            return WAIT
        link = self.links.get(key(rank, step))
        if link is None or not link.here:
            return WAIT
        rank.here -= 1
        link.here -= 1
        return self.take(link, step)

    def is_settled(self, rank: Rank[T], peer: Rank[T], step: Send | Recv) -> bool:
        return peer.gone and step.grace > self.expired and key(rank, step) in self.links

    def arrive(self, link: Link) -> None:
        rank, step = link.rank, link.rank.at
        if self.mortal and self.is_lost(link):
            return
        if self.skew and self.skew[link.key] > 0:
            self.skew[link.key] -= 1
            self.pop(link)
        elif rank.peer is link.source and isinstance(step, Recv):
            answer = self.take(link, step)
            self.end_wait(rank, link.source, step, answer)
            self.resume(rank, answer)
        else:
            rank.here += 1
            link.here += 1

    def take(self, link: Link, step: Recv) -> bytes | MusterError:
        depth, frame = link.depth, link.frame
        self.pop(link)
        return self.received(link.rank, step, depth, frame)

    def pop(self, link: Link) -> None:
        if link.more:
            link.depth, link.frame = link.more.pop(0)
        else:
            del self.links[link.key]

    def is_lost(self, link: Link) -> bool:
        """Whether its sender's death took along what has not arrived yet: a reset does."""
        dead = link.source.gone and link.source.dies != NEVER
        if dead and not link.lost and self.random() < 0.5:
            self.lose(link)
        return link.lost

    def lose(self, link: Link) -> None:
        link.lost = True
        if not link.here:
            del self.links[link.key]
        elif link.more:
            del link.more[link.here - 1 :]
        if link.rank.at:
            self.give_up_soon(link.rank)


class Rendezvous(World[T]):
    """A send completes only when its peer stands at the receive."""

    def send(self, rank: Rank[T], peer: Rank[T], step: Send) -> _Wait:
        if self.is_settled(rank, peer, step):
            self.soon(Rendezvous.meet, (rank, peer), rank.delay)
        return WAIT

    def receive(self, rank: Rank[T], peer: Rank[T], step: Recv) -> _Wait:
        if self.is_settled(rank, peer, step):
            self.soon(Rendezvous.meet, (peer, rank), peer.delay)
        return WAIT

    def is_settled(self, rank: Rank[T], peer: Rank[T], step: Send | Recv) -> bool:
        if peer.peer is not rank or type(peer.at) is type(step):
            return False
        return not self.skew[key(rank, step)]

    def meet(self, ends: tuple[Rank[T], Rank[T]]) -> None:
        source, rank = ends
        sends, receives = source.at, rank.at
        assert isinstance(sends, Send), "a rank leaves a settled wait only by meeting"
        assert isinstance(receives, Recv), "a rank leaves a settled wait only by meeting"
        answer = self.received(rank, receives, source.depth, sends.frame)
        self.end_wait(source, rank, sends, None)
        self.end_wait(rank, source, receives, answer)
        self.resume(rank, answer)
        self.resume(source, None)
