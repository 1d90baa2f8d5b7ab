"""Many groups of one process over one channel."""

from __future__ import annotations

import random
from collections import defaultdict, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_worlds import OTHER, SIGNATURE, UNIQUE_ID, says

from rankmuster.errors import (
    DeadlineExceeded,
    LocalProtocolError,
    NotAgreed,
    PeerLost,
    RemoteProtocolError,
)
from rankmuster.protocol.groups import Multiplexer
from rankmuster.protocol.muster import form_group
from rankmuster.protocol.steps import Recv, Send, Steps

Groups = dict[str, tuple[int, ...]]


class Channel:
    """Carries frames between processes of *held* devices, each link in order, links in any."""

    def __init__(self, held: int, world: int, seed: int) -> None:
        devices = range(world)
        self.held, self.random = held, random.Random(seed)
        self.processes = [Multiplexer(devices[n : n + held]) for n in range(0, world, held)]
        self.links: defaultdict[tuple[int, int], deque] = defaultdict(deque)
        self.dead: set[int] = set()

    def add(self, process: int, groups: Groups, liars: frozenset[tuple[str, int]]) -> None:
        """Start all groups of a process, in an order of its own."""
        for key in self.random.sample(sorted(groups), len(groups)):
            for rank, device in enumerate(groups[key]):
                if device // self.held == process:
                    signature = OTHER if (key, device) in liars else SIGNATURE
                    unique_id = key.encode().ljust(128) if rank == 0 else UNIQUE_ID
                    steps = form_group(rank, len(groups[key]), signature, unique_id)
                    self.processes[process].add(key, groups[key], rank, steps)

    def collect(self, process: int) -> None:
        for out in self.processes[process].outgoing():
            self.links[process, out.destination // self.held].append(out)

    def kill(self, process: int) -> None:
        """What it sent may be lost; everybody hears of it."""
        self.dead.add(process)
        for link in [link for link in self.links if process in link]:
            self.links[link].clear()
        for other in set(range(len(self.processes))) - self.dead:
            for device in range(process * self.held, (process + 1) * self.held):
                self.processes[other].lost(device)
            self.collect(other)

    def run(self, groups: Groups, liars=frozenset(), kill: tuple[int, int] | None = None) -> None:
        """Start the processes and deliver frames, all in random order, until nothing moves."""
        starts = self.random.sample(range(len(self.processes)), len(self.processes))
        moves = 0
        while starts or any(self.links.values()):
            if kill and moves == kill[1]:
                self.kill(kill[0])
            moves += 1
            waiting = sorted(link for link, frames in self.links.items() if frames)
            if starts and (not waiting or self.random.random() < 0.3):
                process = starts.pop()
                if process not in self.dead:
                    self.add(process, groups, liars)
                    self.collect(process)
            elif waiting:
                link = self.random.choice(waiting)
                frame = self.links[link].popleft()
                if link[1] not in self.dead:
                    self.processes[link[1]].receive(*frame)
                    self.collect(link[1])

    def outcomes(self) -> dict[tuple[str, int], bytes | NotAgreed]:
        living = [p for n, p in enumerate(self.processes) if n not in self.dead]
        assert all(process.done for process in living)
        return {place: what for process in living for place, what in process.outcome.items()}


GROUPS: Groups = {
    "world": tuple(range(8)),
    "pair": (6, 1),
    "half": (7, 5, 3, 1),
    "near": (2, 3),
    "far": (0, 4, 7),
}


@pytest.mark.parametrize("held", [1, 2, 4, 8])
def test_every_group_gets_the_id_of_its_root(held: int) -> None:
    """Whatever the order of groups and frames, each member learns its group's own unique id."""
    for seed in range(20):
        channel = Channel(held, 8, seed)
        channel.run(GROUPS)
        wanted = {(key, d): key.encode().ljust(128) for key, group in GROUPS.items() for d in group}
        assert channel.outcomes() == wanted


def test_a_process_that_holds_all_members_writes_nothing() -> None:
    """Devices of one process meet in memory."""
    process = Multiplexer(range(4))
    for rank in range(4):
        process.add("g", range(4), rank, form_group(rank, 4, SIGNATURE, UNIQUE_ID))
    assert (process.done, process.outgoing()) == (True, [])
    assert process.outcome == {("g", rank): UNIQUE_ID for rank in range(4)}


def test_a_liar_spoils_only_its_own_group() -> None:
    """One wrong signature makes its whole group refuse, and no other."""
    channel = Channel(2, 8, 3)
    channel.run(GROUPS, liars=frozenset({("half", 5)}))
    refused = {where for where, what in channel.outcomes().items() if isinstance(what, NotAgreed)}
    assert refused == {("half", device) for device in GROUPS["half"]}


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]), st.integers(0, 3), st.integers(0, 80))
def test_a_lost_process_leaves_no_group_waiting(seed, held: int, process: int, at: int) -> None:
    """Killed at any moment: every group ends everywhere, and groups without it agree."""
    victim = process % (8 // held)
    channel = Channel(held, 8, seed)
    channel.run(GROUPS, kill=(victim, at))
    for (key, _device), outcome in channel.outcomes().items():
        if not any(device // held == victim for device in GROUPS[key]):
            assert outcome == key.encode().ljust(128)
        elif isinstance(outcome, NotAgreed) and outcome.rank is not None:
            assert GROUPS[key][outcome.rank] // held == victim


def test_frames_before_their_group_are_parked() -> None:
    """A frame that comes before `add` is the first one read after it."""
    process = Multiplexer([0])
    process.receive("g", 1, 0, b"a")
    process.add("g", (0, 1), 0, says(Recv(1, 1)))
    assert process.outcome == {("g", 0): [b"a"]}


def test_parked_frames_have_a_bound() -> None:
    """A peer that floods is refused once the bound is reached; what was parked stays."""
    process = Multiplexer([0], parked_bytes=10)
    process.receive("g", 1, 0, bytes(10))
    with pytest.raises(RemoteProtocolError, match="device 1 sends faster"):
        process.receive("g", 1, 0, b"a")
    process.add("g", (0, 1), 0, says(Recv(1, 10), Recv(1, 1)))
    process.receive("g", 1, 0, b"a")
    assert process.outcome == {("g", 0): [bytes(10), b"a"]}


def test_addresses_are_checked() -> None:
    """A frame for a foreign device, or from one of our own, is not ours; nor is a foreign rank."""
    process = Multiplexer([0, 1])
    for source, destination in ((2, 3), (1, 0)):
        with pytest.raises(RemoteProtocolError):
            process.receive("g", source, destination, b"")
    with pytest.raises(LocalProtocolError, match=r"device 2 is not among \[0, 1\]"):
        process.add("g", (0, 2), 1, says())
    process.add("g", (0, 2), 0, says())
    with pytest.raises(LocalProtocolError, match="already"):
        process.add("g", (0, 2), 0, says())


def test_a_frame_above_the_bound_of_its_receive_is_refused() -> None:
    """The group hears a protocol error, as from a lost peer."""
    process = Multiplexer([0])
    process.add("g", (0, 1), 0, says(Recv(1, 2)))
    process.receive("g", 1, 0, b"abc")
    assert isinstance(process.outcome["g", 0], RemoteProtocolError)


def test_frames_of_a_lost_peer_are_read_before_its_loss() -> None:
    """What it sent before it went is delivered, then its loss, with the reason given."""
    process = Multiplexer([0])
    process.receive("g", 1, 0, b"a")
    process.lost(1, "process 7 was killed")

    def steps() -> Steps[bytes]:
        first = yield Recv(1, 1)
        with pytest.raises(PeerLost, match="process 7 was killed"):
            yield Recv(1, 1)
        with pytest.raises(PeerLost):
            yield Send(1, b"x")
        return first

    process.add("g", (0, 1), 0, steps())
    assert process.outcome == {("g", 0): b"a"}
    assert process.outgoing() == []


def test_expiry_ends_waits_by_their_grace() -> None:
    """Waits of no grace end first, now and later; a late frame is not taken for the next one."""
    process = Multiplexer([0])

    def steps() -> Steps[bytes]:
        with pytest.raises(DeadlineExceeded, match="device 1"):
            yield Recv(1, 1)
        return (yield Recv(1, 1, grace=1))

    process.add("g", (0, 1), 0, steps())
    assert process.waiting() == {("g", 0): 1}
    process.expire(grace=0)
    assert not process.done
    process.receive("g", 1, 0, b"a")
    process.receive("g", 1, 0, b"b")
    assert process.outcome == {("g", 0): b"b"}


def test_close_stops_what_runs() -> None:
    """After close nothing waits, and the steps have run their clean-up."""
    ended = []

    def steps() -> Steps[None]:
        try:
            yield Recv(1, 1)
        finally:
            ended.append(True)

    process = Multiplexer([0])
    process.add("g", (0, 1), 0, steps())
    process.close()
    assert (process.done, process.outcome, ended) == (True, {}, [True])
