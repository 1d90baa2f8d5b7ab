"""The simulator itself: seeded, replayable, never silent."""

from __future__ import annotations

import gc

import pytest
from protocol_worlds import OTHER, SIGNATURE, UNIQUE_ID, musters, says, verdicts

from rankmuster.errors import DeadlineExceeded, NotAgreed, PeerLost, RemoteProtocolError
from rankmuster.protocol.barrier import arrive, barrier
from rankmuster.protocol.bootstrap import bootstrap
from rankmuster.protocol.muster import muster
from rankmuster.protocol.steps import Recv, Send, Steps
from rankmuster.testing._network import Rank
from rankmuster.testing.simulate import replay, simulate
from rankmuster.testing.simulation import Deadlock


def test_a_seed_decides_everything() -> None:
    """The same seed gives the same run to the last event, another one another order."""
    one, again, other = (simulate(musters(9), seed, dies={4: 3}, trace=True) for seed in (1, 1, 2))
    assert [(e.rank, e.step) for e in one.trace] == [(e.rank, e.step) for e in again.trace]
    assert (one.time, one.rounds) == (again.time, again.rounds)
    assert [(e.rank, e.step) for e in one.trace] != [(e.rank, e.step) for e in other.trace]


def test_two_sizes_of_one_world_deadlock_loudly() -> None:
    """Ranks that disagree on the size of the world give the wait-for map, not silence."""
    with pytest.raises(Deadlock, match=r"rank 0 for 1, 1 for 3") as caught:
        simulate([bootstrap(0, 2, SIGNATURE, UNIQUE_ID), bootstrap(1, 4, SIGNATURE, UNIQUE_ID)])
    assert caught.value.waits == {0: 1, 1: 3}


def test_a_deadline_turns_the_same_into_an_answer() -> None:
    """With a deadline the wait ends by itself, and both say no."""
    ranks = [bootstrap(0, 2, SIGNATURE, UNIQUE_ID), bootstrap(1, 2, OTHER, UNIQUE_ID)]
    world = simulate(ranks, stops={1: 0}, deadline=1000.0)
    assert list(world.outcome) == [0]
    assert isinstance(world.outcome[0], NotAgreed)
    assert isinstance(world.outcome[0].__cause__, DeadlineExceeded)


@pytest.mark.parametrize("rendezvous", [False, True])
def test_frames_of_a_link_keep_their_order(rendezvous: bool) -> None:
    """A hundred frames of one rank arrive as they were sent."""
    frames = [bytes([n]) for n in range(100)]
    sender, receiver = says(*(Send(1, f) for f in frames)), says(*(Recv(0, 1) for _ in frames))
    assert simulate([sender, receiver], 7, rendezvous=rendezvous).outcome[1] == frames


def test_rendezvous_is_the_strict_one() -> None:
    """Two ranks that both send first get through only where sends are buffered."""
    both = [says(Send(1, b"a"), Recv(1, 1)), says(Send(0, b"b"), Recv(0, 1))]
    assert simulate(both).outcome == {0: [None, b"b"], 1: [None, b"a"]}
    both = [says(Send(1, b"a"), Recv(1, 1)), says(Send(0, b"b"), Recv(0, 1))]
    with pytest.raises(Deadlock):
        simulate(both, rendezvous=True)


def test_a_frame_above_the_bound_is_the_peers_fault() -> None:
    """A receive that allows one byte is answered with a protocol error for two."""
    world = simulate([says(Send(1, b"ab")), says(Recv(0, 1))])
    assert isinstance(world.outcome[1], RemoteProtocolError)


def test_who_waits_for_the_dead_hears_of_it() -> None:
    """A receive from a rank that ended or died is answered with its loss."""
    for dies in ({}, {0: 0}):
        world = simulate([says(Send(1, b"a")), says(Recv(0, 1), Recv(0, 1))], dies=dies)
        assert isinstance(world.outcome[1], PeerLost)


def test_a_late_frame_is_not_taken_for_the_next_one() -> None:
    """What comes after its receive was given up is dropped, and the one after it is read."""

    def patient() -> Steps[bytes]:
        with pytest.raises(DeadlineExceeded):
            yield Recv(0, 1)
        return (yield Recv(0, 1, grace=1))

    slow = says(Send(1, b"a"), Send(1, b"b"), Recv(1, 1, grace=1))  # it stays
    world = simulate([slow, patient()], delays={0: 500.0}, deadline=50)
    assert world.outcome[1] == b"b"


def test_a_trace_replays_against_the_generator() -> None:
    """Every rank's recorded answers lead fresh steps through the same steps to the same end."""
    world = simulate(musters(11), 5, dies={3: 4}, trace=True)
    for rank in set(range(11)) - {3}:
        events = [event for event in world.trace if event.rank == rank]
        outcome = replay(muster(rank, 11, SIGNATURE, UNIQUE_ID), events)
        assert repr(outcome) == repr(world.outcome[rank])


def test_a_trace_of_another_protocol_does_not_replay() -> None:
    """The first step that differs is shown."""
    world = simulate(musters(4), trace=True)
    events = [event for event in world.trace if event.rank == 2]
    with pytest.raises(AssertionError, match="recorded Send"):
        replay(muster(2, 4, OTHER, UNIQUE_ID), events)


@pytest.mark.parametrize("rendezvous", [False, True])
def test_the_barrier_holds_everybody_until_the_last_has_come(rendezvous: bool) -> None:
    """For every size to 33 no rank leaves before each has come; the rounds are logarithmic."""

    def through(rank: int, size: int) -> Steps[set[int]]:
        came.add(rank)
        assert (yield from barrier(rank, size)) is None
        return set(came)

    for size in range(1, 34):
        came: set[int] = set()
        world = simulate([through(n, size) for n in range(size)], size, rendezvous=rendezvous)
        assert all(seen == set(range(size)) for seen in world.outcome.values())
        assert world.messages == size * (size - 1).bit_length()
        assert world.rounds <= 2 * (size - 1).bit_length()


def test_one_no_at_a_barrier_reaches_all() -> None:
    """A rank that comes with a no takes it to everybody."""
    for size in range(2, 20):
        ranks = [barrier(n, size, NotAgreed("no") if n == size // 2 else None) for n in range(size)]
        assert all(simulate(ranks, size).outcome.values())


@pytest.mark.parametrize("rendezvous", [False, True])
def test_rank_0_hears_of_everybody_who_arrives(rendezvous: bool) -> None:
    """One frame each; with one that says no, or that never comes, rank 0 has a reason to."""
    for size in range(1, 12):
        world = simulate([arrive(n, size) for n in range(size)], size, rendezvous=rendezvous)
        assert (world.outcome[0], world.messages) == (None, size - 1)
        last = size - 1
        one_no = [arrive(n, size, NotAgreed("no") if n == last else None) for n in range(size)]
        assert simulate(one_no, size, rendezvous=rendezvous).outcome[0]
    for dead in range(1, 5):
        world = simulate([arrive(n, 5) for n in range(5)], 5, dies={dead: 0})
        assert isinstance(world.outcome[0], NotAgreed)


def test_a_large_world_with_one_liar_refuses_in_seconds() -> None:
    """4,096 ranks, one liar: everybody refuses; rounds grow as the logarithm, frames as n."""
    world = simulate(musters(4096, liar=77, form=bootstrap), 1)
    assert verdicts(world.outcome.values()) == {"no"}
    assert world.messages == 4 * 4095
    assert world.rounds <= 2 * 12 + 2


def test_all_who_were_told_the_same_hold_one_answer() -> None:
    """The root's frame is read once, not again for each of a hundred thousand ranks."""
    world = simulate(musters(64, liar=7), 3)
    assert len({id(outcome.answer) for outcome in world.outcome.values()}) == 1


def test_a_world_goes_with_its_last_event() -> None:
    """Nothing of a world that has ended waits for the collector, which may come late."""
    gc.collect()
    gc.disable()
    try:
        for rendezvous in (False, True):
            simulate(musters(16, liar=3), stops={5: 4}, deadline=500.0, rendezvous=rendezvous)
        assert not [held for held in gc.get_objects() if isinstance(held, Rank)]
    finally:
        gc.enable()


def test_world_after_world_leaves_nothing_behind() -> None:
    """What a run leaves that holds itself, errors with their frames, is collected as ever."""

    def held_after(worlds: int) -> int:
        for seed in range(worlds):
            simulate(musters(16), seed, dies={5: seed % 9})
        return len(gc.get_objects())

    before = held_after(20)
    assert held_after(300) - before < 20_000
