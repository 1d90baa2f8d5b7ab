"""`rankmuster simulate`: a whole bring-up in virtual time, with what befalls its processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import click

from rankmuster.cli.output import Output
from rankmuster.cli.programs import COUNT, Devices
from rankmuster.cli.progress import Progress
from rankmuster.cli.up import Seconds
from rankmuster.finding import Finding, Severity
from rankmuster.load import read_path
from rankmuster.ranks import fold
from rankmuster.render.words import printable
from rankmuster.testing.faults import PHASES, STEP, Double, Fault, Kind, Strangers
from rankmuster.testing.one_group import rehearse_group, unsupported
from rankmuster.testing.rehearsal import rehearse
from rankmuster.testing.rehearsed import Rehearsed
from rankmuster.testing.scenario import DEADLINE_S, Scenario

T = TypeVar("T")
WHOLE_PROCESSES = 4096  # above that, one group and nothing else
HOPS = 12  # of the slowest path that are shown, from its end
LATEST_S = 86400.0


class At(click.ParamType[tuple[int, float | str, float]]):
    """A process and a time: "12@0.3", "12@bootstrap", "12@step7"; with *more*, "12@0.3+2"."""

    name = "process@time"

    def __init__(self, *, more: bool = False) -> None:
        self.more = more

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float | str, float]:
        """The process, the time, and the seconds behind the +."""
        if isinstance(value, tuple):
            return value
        process, at, rest = value.partition("@")
        when, plus, seconds = rest.partition("+")
        if not (process.isascii() and process.isdigit() and at and bool(plus) is self.more):
            self.fail(f"{value!r} is not like 12@0.3{'+2' if self.more else ''}", param, ctx)
        return int(process), self._when(when, param, ctx), _seconds(self, seconds or "0")

    def _when(
        self, text: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        step = text.removeprefix(STEP)
        if text in PHASES or (step != text and step.isascii() and step.isdigit()):
            return text
        try:
            return _seconds(self, text)
        except click.BadParameter:
            names = ", ".join(PHASES)
            self.fail(f"{text!r} is no second, no phase ({names}) and no step7", param, ctx)


class Pair(click.ParamType[tuple[int, int]]):
    """A process and a number: "5=4"."""

    name = "process=number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Both numbers."""
        if isinstance(value, tuple):
            return value
        left, _, right = value.partition("=")
        if not (left.isascii() and left.isdigit() and right.isascii() and right.isdigit()):
            self.fail(f"{value!r} is not like 5=4", param, ctx)
        return int(left), int(COUNT(right, param, ctx)) if int(right) else 0


class Many(NamedTuple, Generic[T]):
    """An option that may be given more than once."""

    name: str
    type: click.ParamType[T]
    metavar: str
    help: str


OFTEN: tuple[Many[Any], ...] = (
    Many(
        "--kill",
        At(),
        "P@T",
        "Process P dies at T: a second, a phase, or step7, its packet 7 from 0.",
    ),
    Many("--stop", At(), "P@T", "P stands still for ever from T on, and nobody hears of it."),
    Many("--delay", At(more=True), "P@T+S", "P is busy for S seconds from T on."),
    Many("--duplicate", At(), "P@T", "Another process comes as P, from a second host."),
    Many("--stranger", At(), "K@T", "K connections that are not ours come to the root."),
    Many("--claim", Pair(), "P=D", "P says that it holds device D."),
    Many("--size", Pair(), "P=W", "P believes in a world of W devices."),
)
SETS = {
    "--liar": "These show one program to the root and hold another.",
    "--differ": "These hold another program, and say so.",
    "--absent": "These never start.",
    "--outsider": "These hold another secret.",
}


@click.command(
    params=[
        *(
            click.Option(
                [each.name], type=each.type, multiple=True, help=each.help, metavar=each.metavar
            )
            for each in OFTEN
        ),
        *(
            click.Option([name], type=Devices(), default=(), metavar="IDS", help=text)
            for name, text in SETS.items()
        ),
    ]
)
@click.option("--world", type=COUNT, required=True, metavar="N", help="How many devices.")
@click.option(
    "--devices-per-process", "each", type=COUNT, default=1, metavar="K", help="Default: 1."
)
@click.option("--seed", type=click.IntRange(0), default=0, metavar="S", help="Decides every delay.")
@click.option(
    "--runs",
    type=click.IntRange(1, 10**7),
    default=1,
    metavar="R",
    help="That many seeds from S on.",
)
@click.option(
    "--deadline",
    type=Seconds(0, min_open=True, max=LATEST_S),
    default=DEADLINE_S,
    metavar="S",
    help=f"Virtual seconds that each process gives it (default: {DEADLINE_S:g}).",
)
@click.option("--program", metavar="P", help="A file; all processes hold it.")
@click.option("--rendezvous", is_flag=True, help="A frame counts as sent only when it was taken.")
def simulate(
    *,
    world: int,
    each: int,
    seed: int,
    runs: int,
    deadline: float,
    program: str | None,
    rendezvous: bool,
    liar: tuple[int, ...],
    differ: tuple[int, ...],
    absent: tuple[int, ...],
    outsider: tuple[int, ...],
    **often: Any,
) -> int:
    """Bring up a world of N devices in virtual time, and say how it ends.

    Every process runs the code of a real one; only clock and connections are virtual, and the seed
    decides them. IDS and P are numbers of processes. Above 4,096 processes only the protocol of one
    group of all is run.

    Exit code: that of `up` for the same world; 1 also where a promise of the bring-up was broken,
    with the line that shows it again.
    """
    if world % each:
        raise click.UsageError(f"{each} devices a process do not make a world of {world}")
    scenario = Scenario(
        processes=world // each,
        devices_each=each,
        seed=seed,
        deadline_s=deadline,
        rendezvous=rendezvous,
        faults=tuple(_faults(often)),
        doubles=tuple(Double(process=p, when=_second(t)) for p, t, _ in often["duplicate"]),
        strangers=tuple(Strangers(number=p, when=_second(t)) for p, t, _ in often["stranger"]),
        liars=liar,
        differ=differ,
        absent=absent,
        outsiders=outsider,
        claims=often["claim"],
        sizes=often["size"],
        program=None if program is None else read_path(program, world=world),
        path=program or "",
    )
    _check(scenario)
    if runs > 1:
        return _many(scenario, runs)
    rehearsed = _run(scenario)
    Output.current().answer(_text(rehearsed), rehearsed.to_dict())
    return exit_code(rehearsed)


def exit_code(rehearsed: Rehearsed) -> int:
    """1 for a broken promise or a finding of severity error, 3 for "undecided", 0 for go."""
    severe = any(found.severity is Severity.ERROR for found in rehearsed.findings)
    if severe or any(rehearsed.broken()):
        return 1
    return 0 if rehearsed.verdict == "agree" else 3


def _check(scenario: Scenario) -> None:
    """Raises UsageError for processes that are not there, and what a large world cannot have."""
    named = [*scenario.liars, *scenario.differ, *scenario.absent, *scenario.outsiders]
    named += [each.process for each in scenario.faults]
    named += [each.process for each in scenario.doubles]
    named += [process for process, _ in (*scenario.claims, *scenario.sizes)]
    if unknown := [process for process in named if process >= scenario.processes]:
        last = scenario.processes - 1
        raise click.UsageError(f"there is no process {fold(unknown)}; the last one is {last}")
    if any(0 in claim for claim in scenario.claims):
        raise click.UsageError("--claim cannot move device 0: who holds it is the root, as ever")
    if _is_large(scenario) and (wrong := ", ".join(unsupported(scenario))):
        raise click.UsageError(
            f"{scenario.processes} processes are run as one group, which knows no {wrong}; "
            f"--devices-per-process makes fewer of them (up to {WHOLE_PROCESSES})"
        )


def _is_large(scenario: Scenario) -> bool:
    return scenario.processes > WHOLE_PROCESSES


def _run(scenario: Scenario) -> Rehearsed:
    with Progress("simulating"):
        return rehearse_group(scenario) if _is_large(scenario) else rehearse(scenario)


def _faults(often: dict[str, Any]) -> Iterable[Fault]:
    kinds: tuple[Kind, ...] = ("kill", "stop", "delay")
    for kind in kinds:
        for process, when, seconds in often[kind]:
            yield Fault(kind=kind, process=process, when=when, seconds=seconds)


def _second(when: float | str) -> float:
    if isinstance(when, str):
        raise click.UsageError(f"{when!r} is a moment of a process that is there; say a second")
    return when


def _seconds(kind: click.ParamType[Any], text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LATEST_S:
        kind.fail(f"{text!r} is no time in seconds, from 0 to {LATEST_S:g}")
    return seconds


def _many(scenario: Scenario, runs: int) -> int:
    """Run seed after seed until a promise is broken; print what came of them."""
    verdicts: Counter[str] = Counter()
    slowest = 0.0
    broken: tuple[str, ...] = ()
    with Progress("simulating") as progress:
        for number in range(runs):
            progress.update(number, runs)
            run = replace(scenario, seed=scenario.seed + number)
            rehearsed = rehearse_group(run) if _is_large(run) else rehearse(run)
            verdicts[rehearsed.verdict] += 1
            slowest = max(slowest, rehearsed.seconds)
            broken = tuple(rehearsed.broken())
            if broken:
                break
    total = verdicts.total()
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    lines = [f"{total} runs: {told}; the slowest took {slowest:.3f} s"]
    lines += [f"BROKEN PROMISE: {what}" for what in broken]
    lines += [f"replay: {rehearsed.scenario.replay}"] if broken else []
    Output.current().answer(
        "\n".join(lines),
        {
            "schema": "rankmuster.simulations/1",
            "runs": total,
            "verdicts": dict(verdicts),
            "slowest_s": slowest,
            "broken": list(broken),
            "replay": rehearsed.scenario.replay if broken else None,
        },
    )
    return int(bool(broken))


def _text(rehearsed: Rehearsed) -> str:
    """For people: the verdict, who is named, what it cost, and the line that does it again."""
    scenario = rehearsed.scenario
    size = f"{scenario.world_size} devices in {scenario.processes} processes"
    lines = [f"{rehearsed.verdict}: {size} ({rehearsed.scope})"]
    lines += [f"BROKEN PROMISE: {what}" for what in rehearsed.broken()]
    lines += map(_finding, rehearsed.findings)
    if late := ", ".join(fault.option for fault in rehearsed.too_late):
        lines.append(f"nothing came of {late}: the process had its answer before that time")
    if rehearsed.named_at is not None and rehearsed.named:
        who = "device" if len(rehearsed.named) == 1 else "devices"
        lines.append(f"{who} {fold(rehearsed.named)} named at {rehearsed.named_at:.3f} s")
    lines.append(
        f"{rehearsed.seconds:.3f} s of virtual time, {rehearsed.rounds} rounds, "
        f"{rehearsed.messages:,} messages, {rehearsed.payload_bytes:,} bytes"
    )
    if rehearsed.phases:
        phases = ", ".join(f"{name} {took:.3f} s" for name, took in rehearsed.phases.items())
        lines.append(f"longest phases: {phases}")
    lines += _path(rehearsed)
    return "\n".join([*lines, f"replay: {scenario.replay}"])


def _finding(found: Finding) -> str:
    where = f" [{fold(found.ranks)}]" if found.ranks else ""
    return f"{found.code} {found.severity}{where}: {printable(found.message)}"


def _path(rehearsed: Rehearsed) -> Iterable[str]:
    hops = rehearsed.slowest_path
    if not hops:
        return
    more = f" (the last {HOPS} of {len(hops)} messages)" if len(hops) > HOPS else ""
    yield f"slowest path{more}:"
    for hop in hops[-HOPS:]:
        took = (hop.taken_at - hop.sent_at) * 1e3
        yield (
            f"  {hop.sent_at:9.4f} s  process {hop.source} -> {hop.destination}  {hop.name}, "
            f"{took:.2f} ms"
        )
