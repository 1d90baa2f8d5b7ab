"""Whole bring-ups in virtual time: never a wait without end, one answer, the faulty one named."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rankmuster.census import margin_s
from rankmuster.testing.faults import PHASES, Double, Fault, Kind, Strangers
from rankmuster.testing.rehearsal import rehearse
from rankmuster.testing.rehearsed import Rehearsed
from rankmuster.testing.scenario import Scenario

SOON_S = 6.0
SEMANTICS = [pytest.param(False, id="buffered"), pytest.param(True, id="rendezvous")]


def kept(scenario: Scenario) -> Rehearsed:
    """The outcome of *scenario*, with every promise kept."""
    rehearsed = rehearse(scenario)
    assert list(rehearsed.broken()) == [], scenario.replay
    return rehearsed


def packets(scenario: Scenario) -> Iterator[tuple[int, int]]:
    """Every process, and every number of a packet that it sends or takes until it ends."""
    for process in range(scenario.processes):
        low, high = 0, 1 << 14
        while low < high:  # a fault behind the last packet changes nothing
            step = (low + high) // 2
            fault = Fault(kind="stop", process=process, when=f"step{step}")
            ended = rehearse(replace(scenario, faults=(fault,))).endings
            stopped = any(each.how == "stopped" for each in ended)
            low, high = (step + 1, high) if stopped else (low, step)
        yield from ((process, step) for step in range(low))


@pytest.mark.parametrize("rendezvous", SEMANTICS)
@pytest.mark.parametrize("each", [1, 3])
def test_healthy_worlds_agree(rendezvous: bool, each: int) -> None:
    """Without a fault every process goes, whatever the order of things."""
    for size in (1, 2, 3, 7, 16, 33):
        scenario = Scenario(processes=size, devices_each=each, seed=size, rendezvous=rendezvous)
        assert kept(scenario).verdict == "agree"


def test_a_scenario_always_ends_the_same_way() -> None:
    """The seed decides everything."""
    fault = Fault(kind="kill", process=3, when="bootstrap")
    scenario = Scenario(processes=8, seed=9, faults=(fault,))
    assert rehearse(scenario).to_dict() == rehearse(scenario).to_dict()
    assert rehearse(scenario).slowest_path != rehearse(replace(scenario, seed=10)).slowest_path


@pytest.mark.parametrize(
    ("scenario", "code", "named"),
    [
        pytest.param(
            Scenario(
                processes=2,
                seed=1,
                doubles=(Double(process=1, when=0.06),),
                faults=(Fault(kind="delay", process=1, when="read", seconds=0.5),),
            ),
            "RM605",
            {1},
            id="3 for 2",
        ),
        pytest.param(
            Scenario(processes=256, devices_each=8, absent=tuple(range(224, 256))),
            "RM601",
            set(range(1792, 2048)),
            id="1792 of 2048",
        ),
        pytest.param(
            Scenario(processes=8, claims=((5, 4),)), "RM605", {4, 5}, id="one device, two"
        ),
        pytest.param(Scenario(processes=8, sizes=((5, 16),)), "RM001", {5}, id="another size"),
    ],
)
def test_what_cannot_heal_is_named_soon(scenario: Scenario, code: str, named: set[int]) -> None:
    """Within six seconds, not at the deadline of sixty."""
    ended = kept(scenario)
    assert code in {found.code for found in ended.findings}
    assert {device for found in ended.findings for device in found.ranks} == named
    assert ended.named_at is not None
    assert ended.named_at < SOON_S


def test_a_root_with_the_wrong_size_is_the_odd_one() -> None:
    """The majority is believed, not the root, and soon."""
    ended = rehearse(Scenario(processes=8, sizes=((0, 16),)))
    found = next(each for each in ended.findings if each.code == "RM001")
    assert (found.ranks, found.majority) == ((0,), True)
    assert ended.seconds < SOON_S


@pytest.mark.parametrize("kind", ["kill", "stop"])
@pytest.mark.parametrize("rendezvous", SEMANTICS)
def test_a_fault_before_every_packet(kind: Kind, rendezvous: bool) -> None:
    """Whoever falls or freezes wherever in the bring-up, the living agree and name nobody else."""
    for size, each in ((2, 1), (3, 2), (5, 1)):
        scenario = Scenario(processes=size, devices_each=each, seed=size, rendezvous=rendezvous)
        for process, step in packets(scenario):
            fault = Fault(kind=kind, process=process, when=f"step{step}")
            kept(replace(scenario, faults=(fault,)))


@pytest.mark.parametrize("phase", PHASES)
def test_after_healing_the_verdict_comes_at_once(phase: str) -> None:
    """A process that was busy for ten seconds costs ten seconds, and no verdict."""
    for process in (0, 5):
        fault = Fault(kind="delay", process=process, when=phase, seconds=10.0)
        ended = kept(Scenario(processes=8, seed=3, faults=(fault,)))
        assert ended.verdict == "agree"
        assert ended.seconds < 10.0 + 1.5


@pytest.mark.parametrize("phase", PHASES[:-1])
@pytest.mark.parametrize("process", [0, 5])
def test_who_sleeps_past_the_deadline_is_named(process: int, phase: str) -> None:
    """By all others, and by itself when it wakes: nobody goes alone, nobody else is blamed."""
    fault = Fault(kind="delay", process=process, when=phase, seconds=30.0)
    ended = kept(Scenario(processes=8, deadline_s=5.0, faults=(fault,)))
    assert (ended.verdict, ended.named) == ("undecided", {process})


def wakes_late(rng: random.Random) -> Scenario:
    """Any world in which one process sleeps from anywhere until about when others give up."""
    processes, deadline_s = rng.randint(2, 16), rng.choice([3.0, 5.0, 20.0])
    margin = margin_s(deadline_s)
    sleeps = Fault(
        kind="delay",
        process=rng.randrange(processes),
        when=rng.choice([*PHASES, f"step{rng.randrange(60)}", rng.random() * 0.15]),
        seconds=deadline_s + rng.uniform(-3.2, 1.0) * margin,
    )
    return Scenario(
        processes=processes,
        devices_each=rng.choice([1, 1, 2]),
        seed=rng.randrange(1 << 30),
        deadline_s=deadline_s,
        rendezvous=rng.random() < 0.5,
        faults=(sleeps,),
    )


def test_who_wakes_in_the_last_moment_is_named_alone() -> None:
    """Before, in or after the margins: it wakes to find others silent, and knows better."""
    rng = random.Random(1)
    for _ in range(250):
        kept(wakes_late(rng))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 6))
def test_who_wakes_in_the_last_moment_in_many_worlds(seed: int) -> None:
    """All but three in five thousand, where it was ready itself, and too late for others only."""
    rng = random.Random(seed)
    worlds = [wakes_late(rng) for _ in range(5000)]
    broken = [each.replay for each in worlds if list(rehearse(each).broken())]
    assert len(broken) <= 3, broken


def test_whoever_lies_is_named() -> None:
    """A process whose frames contradict its card is named, wherever it stands in the tree."""
    for size in (3, 5, 8, 21):
        for liar in range(size):
            ended = kept(Scenario(processes=size, seed=size, liars=(liar,)))
            assert (ended.verdict, ended.named) == ("invalid", {liar})


def test_strangers_cost_nothing() -> None:
    """A thousand of them at the root's door change neither the answer nor its time."""
    crowd = (Strangers(number=1000, when=0.02),)
    ended = kept(Scenario(processes=8, strangers=crowd))
    assert (ended.verdict, ended.seconds < 1.0) == ("agree", True)


def search(schedules: int, seed: int, size: int) -> None:
    rng = random.Random(seed)
    for _ in range(schedules):
        kept(random_scenario(rng, size))


def random_scenario(rng: random.Random, size: int) -> Scenario:
    """Any world with any one thing wrong."""
    processes = rng.randint(1, size)
    victim = rng.randrange(processes)
    scenario = Scenario(
        processes=processes,
        devices_each=rng.choice([1, 1, 1, 2, 3]),
        seed=rng.randrange(1 << 30),
        rendezvous=rng.random() < 0.5,
    )
    match rng.choice(["kill", "kill", "stop", "stop", "delay", "liar", "differ", "absent", "two"]):
        case "liar":
            return replace(scenario, liars=(victim,))
        case "differ":
            return replace(scenario, differ=(victim,))
        case "absent":
            return replace(scenario, absent=(victim,))
        case "two":
            return replace(scenario, doubles=(Double(process=victim, when=rng.random() * 0.15),))
        case kind:
            when = rng.choice([*PHASES, f"step{rng.randrange(120)}", rng.random() * 0.15])
            seconds = rng.choice([0.01, 1.0, 10.0]) if kind == "delay" else 0.0
            fault = Fault(kind=kind, process=victim, when=when, seconds=seconds)
            return replace(scenario, faults=(fault,))


def test_any_fault_in_any_schedule() -> None:
    """Sizes to 12: every promise is kept."""
    search(400, 1, 12)


def test_any_fault_in_a_larger_world() -> None:
    """Sizes to 64."""
    search(50, 2, 64)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 14))
def test_any_fault_in_many_schedules(seed: int) -> None:
    """Five thousand more each, half of them small."""
    search(4000, seed, 12)
    search(1000, seed, 64)
