"""Worlds of one group for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable

from rankmuster.errors import MusterError
from rankmuster.protocol.muster import MusterRefused, muster
from rankmuster.protocol.steps import Recv, Send, Steps
from rankmuster.testing.simulation import Simulation

SIGNATURE = b"s" * 16
OTHER = b"x" * 16
UNIQUE_ID = bytes(range(128))


def musters(size: int, *, liar: int | None = None, **kwargs) -> list[Steps[bytes]]:
    """One muster per rank; a *liar* holds another signature."""
    return [
        muster(rank, size, OTHER if rank == liar else SIGNATURE, UNIQUE_ID, **kwargs)
        for rank in range(size)
    ]


def verdicts(outcomes: Iterable[bytes | MusterError]) -> set[str]:
    """The different verdicts among living ranks; anything but a verdict is shown as it is."""
    return {verdict(outcome) for outcome in outcomes}


def verdict(outcome: bytes | MusterError) -> str:
    if outcome == UNIQUE_ID:
        return "go"
    return "no" if isinstance(outcome, MusterRefused) else repr(outcome)


def blamed(simulation: Simulation[bytes]) -> set[int | None]:
    """Whom the causes of any rank's no name."""
    return {
        cause.process
        for outcome in simulation.outcome.values()
        if isinstance(outcome, MusterRefused)
        for cause in outcome.answer.causes
    }


def says(*steps: Send | Recv) -> Steps[list[bytes]]:
    """A rank that takes these steps and returns what it was answered."""
    answers = []
    for step in steps:
        answers.append((yield step))
    return answers
