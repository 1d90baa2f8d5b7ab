"""Worlds too large for whole processes: one group of all ranks, its protocol and nothing else.

Bootstrap and closing round of `protocol.muster`, as a real process runs them, without census and
connections: a hundred thousand ranks in seconds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

from rankmuster.errors import InvariantError
from rankmuster.finding import Finding, finding
from rankmuster.protocol.bootstrap import bootstrap
from rankmuster.protocol.causes import Cause
from rankmuster.protocol.closing import Answer
from rankmuster.protocol.muster import MusterRefused, muster
from rankmuster.testing.rehearsed import Ending, Rehearsed
from rankmuster.testing.scenario import Scenario
from rankmuster.testing.simulate import collector_paused, simulate
from rankmuster.testing.simulation import Simulation
from rankmuster.testing.virtual_network import LATENCY_S

SIGNATURE, OTHER = b"s" * 16, b"x" * 16
UNIQUE_ID = bytes(range(128))
AT_FIRST = "step0"


def unsupported(scenario: Scenario) -> Iterator[str]:
    """What of *scenario* has no meaning here, by the names of its options."""
    for name in ("absent", "differ", "outsiders", "claims", "sizes", "doubles", "strangers"):
        if getattr(scenario, name):
            yield name
    if scenario.program is not None:
        yield "program"
    if any(fault.kind == "delay" or _step(fault.when) is None for fault in scenario.faults):
        yield "faults but --kill and --stop at a step or at bootstrap"


def rehearse_group(scenario: Scenario) -> Rehearsed:
    """Run the protocol of a group with as many ranks as *scenario* has devices.

    Raises ValueError for what is `unsupported`.
    """
    if wrong := ", ".join(unsupported(scenario)):
        raise ValueError(f"one group knows no {wrong}")
    with collector_paused():
        ended = _run(scenario)
        if not scenario.faults and not gc.get_freeze_count():
            # Without an error that holds its own frame there is nothing to collect: let all of it
            # be old at once, instead of walking through it now.
            gc.freeze()
            gc.unfreeze()
        return ended


def _run(scenario: Scenario) -> Rehearsed:
    size, liars = scenario.world_size, set(scenario.liars)
    steps = [
        muster(n, size, OTHER if n in liars else SIGNATURE, UNIQUE_ID, form=bootstrap)
        for n in range(size)
    ]
    world = simulate(
        steps,
        scenario.seed,
        rendezvous=scenario.rendezvous,
        dies={f.process: _step(f.when) or 0 for f in scenario.faults if f.kind == "kill"},
        stops={f.process: _step(f.when) or 0 for f in scenario.faults if f.kind == "stop"},
        deadline=scenario.deadline_s / LATENCY_S,
    )
    return Rehearsed(
        scenario=scenario,
        scope="one group",
        endings=tuple(_endings(world, size)),
        said=(),
        phases={},
        messages=world.messages,
        payload_bytes=world.payload_bytes,
        rounds=world.rounds,
        slowest_path=(),
    )


def _step(when: float | str) -> int | None:
    text = AT_FIRST if when == "bootstrap" else str(when)
    return int(text[4:]) if text.startswith("step") else None


def _endings(world: Simulation[bytes], size: int) -> Iterator[Ending]:
    """How each rank ended; those that were told the same share their findings."""
    at = world.time * LATENCY_S
    told: Answer | None = None
    findings: tuple[Finding, ...] = ()
    for rank in range(size):
        outcome = world.outcome.get(rank)
        if isinstance(outcome, bytes):
            yield Ending(process=rank, at=at, phase="closing", how="go")
        elif outcome is None:
            yield Ending(process=rank, at=at, phase="", how="killed")
        elif isinstance(outcome, MusterRefused):
            if outcome.answer is not told:
                told, findings = outcome.answer, _findings(outcome.answer.causes)
            yield Ending(process=rank, at=at, phase="closing", how="no", findings=findings)
        else:
            raise InvariantError(f"rank {rank} ended with {outcome!r}")


def _findings(causes: tuple[Cause, ...]) -> tuple[Finding, ...]:
    return tuple(
        finding(c.code or "RM006", c.message, ranks=() if c.process is None else (c.process,))
        for c in causes
    )
