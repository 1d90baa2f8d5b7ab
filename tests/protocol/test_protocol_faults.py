"""One answer for all, with a fault before every step of every rank, in both send semantics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_worlds import OTHER, SIGNATURE, UNIQUE_ID, blamed, musters, verdicts

from rankmuster.errors import InvalidProgram
from rankmuster.protocol.bootstrap import bootstrap, confirm
from rankmuster.protocol.frames import NO_SIGNATURE, NO_UNIQUE_ID
from rankmuster.protocol.muster import muster
from rankmuster.testing.simulate import simulate
from rankmuster.testing.simulation import Simulation

SEMANTICS = [pytest.param(False, id="buffered"), pytest.param(True, id="rendezvous")]
DEADLINE = 100_000.0


def places(sizes: range, rendezvous: bool) -> Iterator[tuple[int, int, int]]:
    """Every step of every rank of every size."""
    for size in sizes:
        clean = simulate(musters(size), rendezvous=rendezvous)
        assert verdicts(clean.outcome.values()) == {"go"}
        for victim, steps in enumerate(clean.steps):
            for step in range(steps):
                yield size, victim, step


def check_one_answer(world: Simulation[bytes], size: int, victim: int) -> None:
    """All living ranks end alike, and a no names the victim."""
    assert set(world.outcome) == set(range(size)) - {victim}
    found = verdicts(world.outcome.values())
    if victim == 0 and found == {"go", "no"}:  # the root fell between two of its go frames
        assert blamed(world) == {0}
    elif found:
        assert found in ({"go"}, {"no"})
        assert blamed(world) == ({victim} if found == {"no"} else set())


def check_deaths(sizes: range, seed: int, rendezvous: bool) -> int:
    runs = 0
    for runs, (size, victim, step) in enumerate(places(sizes, rendezvous), 1):  # noqa: B007
        ranks = musters(size)
        world = simulate(ranks, seed, rendezvous=rendezvous, dies={victim: step})
        check_one_answer(world, size, victim)
    return runs


def check_stops(sizes: range, seed: int, rendezvous: bool) -> int:
    runs = 0
    for runs, (size, victim, step) in enumerate(places(sizes, rendezvous), 1):  # noqa: B007
        ranks, stops = musters(size), {victim: step}
        world = simulate(ranks, seed, rendezvous=rendezvous, stops=stops, deadline=DEADLINE)
        check_one_answer(world, size, victim)
    return runs


@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_a_death_before_any_step_gives_one_answer(rendezvous: bool) -> None:
    """Sizes to 24: whoever dies wherever, the living agree, and name it where they say no."""
    assert check_deaths(range(1, 25), 1, rendezvous) > 4_500


@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_a_death_gives_one_answer_in_another_order(rendezvous: bool) -> None:
    """The same with another seed, for sizes to 14."""
    check_deaths(range(1, 15), 2, rendezvous)


@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_a_stop_before_any_step_gives_one_answer(rendezvous: bool) -> None:
    """Sizes to 16: a rank that falls silent, unseen, ends in one answer that names it."""
    check_stops(range(1, 17), 1, rendezvous)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3, 5))
@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_faults_in_more_orders(rendezvous: bool, seed: int) -> None:
    """Deaths to size 40 and stops to 32, with further seeds."""
    check_deaths(range(1, 41), seed, rendezvous)
    check_stops(range(1, 33), seed, rendezvous)


@pytest.mark.nightly
@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_deaths_in_the_largest_sizes(rendezvous: bool) -> None:
    """Sizes from 41 to 64, in one order."""
    check_deaths(range(41, 65), 5, rendezvous)


def test_one_wrong_signature_makes_everybody_refuse() -> None:
    """Any rank of any size from 2 to 64 may be the odd one: every rank says no."""
    for size in range(2, 65):
        for liar in range(size):
            ranks = [
                bootstrap(n, size, OTHER if n == liar else SIGNATURE, UNIQUE_ID)
                for n in range(size)
            ]
            world = simulate(ranks, liar)
            assert len(world.outcome) == size
            assert not any(isinstance(outcome, bytes) for outcome in world.outcome.values())


@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_a_wrong_signature_is_shown_with_both_values(rendezvous: bool) -> None:
    """The answer of the whole muster holds both values, and names whose is not that of most."""
    for size in (2, 3, 8, 13):
        for liar in range(size):
            world = simulate(musters(size, liar=liar), 3, rendezvous=rendezvous)
            assert verdicts(world.outcome.values()) == {"no"}
            causes = {
                cause for refused in world.outcome.values() for cause in refused.answer.causes
            }
            assert blamed(world) == ({liar} if size > 2 else {None})
            assert all(OTHER.hex() in c.message and SIGNATURE.hex() in c.message for c in causes)


@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_a_rank_that_fails_before_its_part_refuses(rendezvous: bool) -> None:
    """It sends every frame it owes, so everybody ends, with its own reason in the answer."""
    failure = InvalidProgram("not a program", where="5.hlo")
    for size in (1, 2, 7, 16):
        for victim in range(size):
            ranks = musters(size)
            ranks[victim] = muster(victim, size, SIGNATURE, UNIQUE_ID, failure)
            world = simulate(ranks, 1, rendezvous=rendezvous)
            assert verdicts(world.outcome.values()) == {"no"}
            assert blamed(world) == {victim}
            assert {str(refused) for refused in world.outcome.values()} == {str(failure)}


def test_a_group_that_is_there_is_confirmed() -> None:
    """Verdicts of 17 bytes go up and come down; whoever differs makes it a no for all."""
    for size in (1, 2, 5, 9):
        world = simulate([confirm(n, size, SIGNATURE) for n in range(size)])
        assert world.outcome == dict.fromkeys(range(size), NO_SIGNATURE)
        assert world.payload_bytes == 2 * 17 * (size - 1)
        for odd in range(size if size > 1 else 0):
            ranks = [confirm(n, size, OTHER if n == odd else SIGNATURE) for n in range(size)]
            world = simulate(ranks, 1, rendezvous=True)
            assert not any(isinstance(outcome, bytes) for outcome in world.outcome.values())


def test_a_group_that_is_there_for_some_is_refused() -> None:
    """Whoever holds a communicator and whoever holds none refuse each other, and nobody waits."""
    for fresh in range(1, 2**5 - 1):
        ranks = [
            bootstrap(n, 5, SIGNATURE, UNIQUE_ID) if fresh >> n & 1 else confirm(n, 5, OTHER)
            for n in range(5)
        ]
        world = simulate(ranks, 1, rendezvous=True)
        assert not any(isinstance(outcome, bytes) for outcome in world.outcome.values())


def test_a_bootstrap_may_be_joined_to_say_no() -> None:
    """The refuser gets its own error back, the others a no."""
    failure = InvalidProgram("no unique id")
    ranks = [
        bootstrap(0, 5, NO_SIGNATURE, NO_UNIQUE_ID, failure),
        *(bootstrap(n, 5, SIGNATURE, UNIQUE_ID) for n in range(1, 5)),
    ]
    world = simulate(ranks, 1, rendezvous=True)
    assert world.outcome[0] is failure
    assert not any(isinstance(outcome, bytes) for outcome in world.outcome.values())


def test_without_signatures_rank_zero_speaks_for_the_group() -> None:
    """No verdict is sent: one ticket a rank, and only rank 0's no is heard."""
    failure = InvalidProgram("no unique id")
    for no, wanted in ((None, {UNIQUE_ID}), (failure, set())):
        ranks = [bootstrap(n, 9, None, UNIQUE_ID, None if n else no) for n in range(9)]
        world = simulate(ranks)
        assert world.payload_bytes == 8 * 129
        assert {what for what in world.outcome.values() if isinstance(what, bytes)} == wanted


@given(st.data())
def test_any_fault_in_any_schedule_gives_one_answer(data: st.DataObject) -> None:
    """Sizes to 64, any death, stop or delay, any seed: one answer that names the faulty rank."""
    size, seed = data.draw(st.integers(1, 64)), data.draw(st.integers(0, 2**32))
    rendezvous, kind = data.draw(st.booleans()), data.draw(st.sampled_from(["dies", "stops"]))
    victim = data.draw(st.integers(0, size - 1))
    steps = simulate(musters(size), rendezvous=rendezvous).steps[victim]
    fault = {kind: {victim: data.draw(st.integers(0, steps))}, "deadline": DEADLINE}
    slow = {data.draw(st.integers(0, size - 1)): data.draw(st.floats(0, 500))}
    world = simulate(musters(size), seed, rendezvous=rendezvous, delays=slow, **fault)
    if victim in world.outcome:  # its fault lay behind its last step
        assert verdicts(world.outcome.values()) == {"go"}
    else:
        check_one_answer(world, size, victim)


@settings(max_examples=60)
@given(st.data())
def test_two_faults_still_give_one_answer(data: st.DataObject) -> None:
    """Two deaths, the root not among them: one answer that names only dead ranks."""
    size = data.draw(st.integers(3, 40))
    dies = {data.draw(st.integers(1, size - 1)): data.draw(st.integers(0, 12)) for _ in range(2)}
    world = simulate(musters(size), data.draw(st.integers(0, 2**32)), dies=dies)
    assert verdicts(world.outcome.values()) in ({"go"}, {"no"})
    assert blamed(world) <= set(dies)
