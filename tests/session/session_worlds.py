"""Real worlds of forked processes: what each of them said, and how it ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

import rankmuster
from rankmuster.launch.base import NO_OPTIONS, LaunchOptions, Place
from rankmuster.launch.fork import Family
from rankmuster.launch.local import LocalWorld, attach
from rankmuster.program import Program
from rankmuster.report import Disagreement
from rankmuster.session import Session, join
from rankmuster.transport.base import Deadline

LATE_S = 0.8  # after the deadline


class Outcome(NamedTuple):
    """One process's verdict and findings (code, ranks), "" where it died, and its exit code."""

    verdict: str
    findings: list[tuple[str, str]]
    code: int
    took_s: float = 0.0


class Muster(NamedTuple):
    """A world that was mustered: what each process said, and what the root's report holds."""

    outcomes: list[Outcome]
    report: dict[str, Any]


def muster_world(
    programs: Sequence[Callable[[], Program]],
    *,
    devices_each: int = 1,
    deadline_s: float = 5.0,
    on_phase: Callable[[int, str], None] = lambda _process, _phase: None,
    change: Callable[[Place], Place] = lambda place: place,
    then: Callable[[Session], None] = lambda _session: None,
    meanwhile: Callable[[LocalWorld], None] = lambda _world: None,
    world_size: int | None = None,
) -> Muster:
    """Muster one process for each of *programs*.

    *on_phase* is called in each process as a phase begins, *change* may alter what a process
    believes of its place, *then* runs in each after *go*, and *meanwhile* in the parent.
    """

    def main(number: int, result: int) -> int:
        place = change(attach(os.environ))
        deadline = Deadline.after(deadline_s)
        start = time.monotonic()
        try:
            session = join(
                place,
                programs[number],
                deadline,
                path=f"{number}.json",
                on_phase=lambda phase: on_phase(number, phase),
            )
        except Disagreement as no:
            report = no.report
        else:
            with session:
                then(session)
                report = session.report
        said = msgspec.json.encode((time.monotonic() - start, report.to_dict()))
        while said:
            said = said[os.write(result, said) :]
        return report.exit_code()

    count = len(programs)
    devices = [range(n * devices_each, (n + 1) * devices_each) for n in range(count)]
    results: dict[int, bytes] = {}
    until = time.monotonic() + deadline_s + LATE_S
    with LocalWorld(main, devices, world_size or count * devices_each) as world:
        meanwhile(world)
        while got := world.family.next_result(until):
            results[got[0]] = got[1]
            if not got[1]:
                world.tell_death(got[0])
        world.family.end(0.0)  # who was stopped
        codes = world.family.wait()
    said = [results.get(n, b"") for n in range(count)]
    return Muster(
        list(map(outcome, said, codes)), msgspec.json.decode(said[0])[1] if said[0] else {}
    )


def outcome(result: bytes, code: int) -> Outcome:
    if not result:
        return Outcome("", [], code)
    took_s, report = msgspec.json.decode(result)
    found = [(each["code"], each["ranks"]) for each in report["findings"]]
    return Outcome(report["verdict"], found, code, took_s)


def die(phase_to_die_in: str, process: int, how: int = signal.SIGKILL):
    """A hook that ends one process as one phase begins."""

    def on_phase(number: int, phase: str) -> None:
        if (number, phase) == (process, phase_to_die_in):
            os.kill(os.getpid(), how)

    return on_phase


def hand_started(
    environs: Sequence[Mapping[str, str]],
    program: Callable[[], Program],
    *,
    deadline_s: float = 5.0,
    options: LaunchOptions = NO_OPTIONS,
) -> list[tuple[str, list[tuple[str, str]], int]]:
    """Verdict, findings and exit code of processes that share nothing but their variables."""

    def main(number: int, result: int) -> int:
        try:
            with rankmuster.muster(
                program(), deadline_s=deadline_s, environ=environs[number], options=options
            ) as session:
                report = session.report
        except Disagreement as no:
            report = no.report
        os.write(result, msgspec.json.encode((0.0, report.to_dict())))
        return report.exit_code()

    with Family(len(environs), main) as family:
        results = {}
        while got := family.next_result(time.monotonic() + deadline_s + LATE_S):
            results[got[0]] = got[1]
        family.end(0.0)
        codes = family.wait()
    return [outcome(results.get(number, b""), code)[:3] for number, code in enumerate(codes)]
