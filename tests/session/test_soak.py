"""Many bring-ups in one process leave nothing behind: no thread, descriptor, memory or file."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from test_muster import step

import rankmuster
from rankmuster.finding import Finding, Severity
from rankmuster.launch.local import spawn

WARM = 10  # bring-ups until what is made once has been made
GROWTH_BYTES = 3 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ROUNDS = [20, pytest.param(200, marks=pytest.mark.nightly)]
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="reads /proc, which this system does not have"
)


class Held(NamedTuple):
    """What a process holds on to."""

    threads: int
    descriptors: int
    files: int
    memory_bytes: int


def held() -> Held:
    gc.collect()
    return Held(
        threads=threading.active_count(),
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        files=len(list(Path(tempfile.gettempdir()).glob("*rankmuster*"))),
        memory_bytes=int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES,
    )


def repeat(bring_up: Callable[[int], None], rounds: int) -> tuple[Held, Held]:
    """What this process holds once it is warm, and after *rounds* more."""
    for number in range(WARM):
        bring_up(number)
    before = held()
    for number in range(rounds):
        bring_up(WARM + number)
    return before, held()


def check(before: Held, after: Held) -> None:
    assert after[:3] == before[:3]
    assert after.memory_bytes - before.memory_bytes < GROWTH_BYTES


@pytest.mark.parametrize("rounds", ROUNDS)
def test_processes_that_muster_again_and_again(rounds: int) -> None:
    """Every process of a world of three ends with what it had, after go and after no."""

    def bring_up(number: int) -> None:
        disagrees = number % 4 == 3
        odd = disagrees and os.environ["RANKMUSTER_PROCESS"] == "1"
        findings: tuple[Finding, ...] = ()
        try:
            with rankmuster.muster(step(6, elements=8 + odd), deadline_s=30) as session:
                session.communicator(tuple(range(6))).barrier(deadline_s=30)
        except rankmuster.Disagreement as no:
            findings = no.report.findings
        errors = [found.code for found in findings if found.severity is Severity.ERROR]
        assert errors == ["RM302"] * disagrees, findings

    def target() -> bytes:
        return msgspec.json.encode(repeat(bring_up, rounds))

    for code, said in spawn(target, 3, devices_each=2, deadline_s=120):
        assert code == 0
        check(*msgspec.json.decode(said, type=tuple[Held, Held]))


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_parent_that_starts_world_after_world(rounds: int) -> None:
    """The process that launches ends with what it had."""

    def target() -> bytes:
        with rankmuster.muster(step(2), deadline_s=30) as session:
            return session.report.verdict.encode()

    def bring_up(_number: int) -> None:
        assert spawn(target, 2, deadline_s=60) == [(0, b"agree")] * 2

    check(*repeat(bring_up, rounds))
