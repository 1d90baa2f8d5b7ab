"""A real process is killed, stopped, leaves or raises, at every phase: one answer, and its name."""

from __future__ import annotations

import os
import signal
from itertools import product

import pytest
from session_worlds import Outcome, muster_world
from test_muster import step

PHASES = ("connect", "read", "census", "bootstrap", "barrier", "closing")
WAYS = ("kill", "stop", "exit", "raise")
DEADLINE_S = {8: 1.0, 32: 3.0}
LATE_S = 1.0

# One phase of each kind for those ways that others see alike; the rest is for the night.
BY_DAY = {
    *product(["stop"], ["read", "bootstrap", "closing"], [0, 5]),
    *product(["exit", "raise"], ["census", "barrier"], [0, 5]),
}


def cases() -> list:
    every = list(product([8, 32], WAYS, PHASES, [0, 5]))
    return [
        case
        if case[0] == 8 and case[1:] in BY_DAY
        else pytest.param(*case, marks=pytest.mark.nightly)
        for case in every
    ]


def befall(way: str, phase: str, process: int):
    def on_phase(number: int, name: str) -> None:
        if (number, name) != (process, phase):
            return
        if way == "exit":
            os._exit(3)
        if way == "raise":
            raise RuntimeError("only here")
        os.kill(os.getpid(), signal.SIGKILL if way == "kill" else signal.SIGSTOP)

    return on_phase


@pytest.mark.parametrize(("processes", "way", "phase", "process"), cases())
def test_whatever_befalls_a_process_the_others_end_in_time(processes, way, phase, process, capfd):
    """All others say the same no within the deadline and a second, and name the process."""
    deadline_s = DEADLINE_S[processes]
    outcomes, _ = muster_world(
        [lambda: step(processes)] * processes,
        on_phase=befall(way, phase, process),
        deadline_s=deadline_s,
    )
    living = [each for number, each in enumerate(outcomes) if number != process]
    assert {each.verdict for each in living} == {"undecided"}
    assert {tuple(each.findings) for each in living} == {tuple(living[0].findings)}
    assert {named(each) for each in living} == {str(process)}
    assert max(each.took_s for each in living) < deadline_s + LATE_S
    assert outcomes[process].verdict == ""
    capfd.readouterr()


def named(outcome: Outcome) -> str:
    """The devices that an outcome's only finding is about."""
    ((code, ranks),) = outcome.findings
    assert code in {"RM601", "RM602", "RM603"}
    return ranks
