"""`rankmuster up`: bring the communicators up for real, then become the job's command."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

import click
import msgspec

from rankmuster import launch
from rankmuster.cli.output import Output, use_color
from rankmuster.cli.programs import COUNT
from rankmuster.errors import WorldMismatch
from rankmuster.finding import finding
from rankmuster.launch.fork import Stopped, stops_raise
from rankmuster.launch.local import LocalWorld, hand_on
from rankmuster.load import process_path, read_path
from rankmuster.load.files import shown
from rankmuster.program import Program
from rankmuster.report import Disagreement, Report
from rankmuster.session import DEADLINE_S, join
from rankmuster.transport.base import Deadline
from rankmuster.world import World

ENDED = b"."  # what a process without a report says before it ends or becomes the command
LATE_S = 0.5  # for processes to end by themselves, once there is nothing left for them to do
# What every child would import for itself, were it not here before the fork.
FOR_CHILDREN = ("rankmuster.formats.json_program", "rankmuster.formats.hlo")
UNREAD = frozenset({"RM701", "RM702"})


class Said(msgspec.Struct, frozen=True):
    """What process 0 tells the parent: its report as it is to be printed, and the exit code."""

    text: str
    code: int
    go: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Muster:
    """What every process of this invocation is asked to do."""

    paths: tuple[str, ...]
    deadline_s: float
    replicas: int | None
    partitions: int | None
    command: tuple[str, ...]
    output: Output
    strict: bool

    def run(self, _number: int, result: int) -> int:
        """One process, from its start to its exit code: come up, report, become the command."""
        report = self.come_up()
        code = exit_code(report, strict=self.strict)
        if os.environ.get("RANKMUSTER_PROCESS") == "0":
            said = Said(self.rendered(report), code, report.ok)
            write_all(result, msgspec.json.encode(said))
        else:
            write_all(result, ENDED)
        if report.ok and self.command:
            become(self.command)
        return code

    def come_up(self) -> Report:
        """Join the world that this process was launched in; its report, whatever the answer."""
        deadline = Deadline.after(self.deadline_s)
        place = launch.place(os.environ)
        if place is None:
            raise WorldMismatch(
                "no launcher started this process", fix="say -n N to start N local processes"
            )
        path = self.paths[place.process]

        def read() -> Program:
            return read_path(
                path,
                world=place.world_size,
                replicas=self.replicas,
                partitions=self.partitions,
            )

        try:
            with join(place, read, deadline, path=shown(path), say=self.say) as session:
                return session.report
        except Disagreement as no:
            return no.report

    def say(self, text: str) -> None:
        """Tell people on standard error how it goes."""
        if not self.output.quiet:
            print(f"rankmuster: {text}", file=sys.stderr, flush=True)  # noqa: T201 no click here

    def rendered(self, report: Report) -> str:
        """The report as it will be printed: to standard output, or beside the command's own."""
        stream = sys.stderr if self.command else sys.stdout
        if self.output.is_json:
            data = msgspec.json.encode(report.to_dict())
            return (msgspec.json.format(data, indent=2) if stream.isatty() else data).decode()
        from rankmuster.render import text

        width = shutil.get_terminal_size().columns if stream.isatty() else None
        return text(report, color=use_color(stream), quiet=self.output.quiet, width=width)


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("--program", required=True, metavar="P", help="A file, or a pattern with {rank}.")
@click.option("-n", "processes", type=COUNT, metavar="N", help="Start N processes here.")
@click.option("--world", type=COUNT, metavar="W", help="Devices in all (default: N times K).")
@click.option(
    "--devices-per-process", type=COUNT, metavar="K", help="Devices of each process (default: 1)."
)
@click.option("--replicas", type=COUNT, metavar="R", help="Replicas, if the file says none.")
@click.option("--partitions", type=COUNT, metavar="P", help="Partitions, if it says none.")
@click.option(
    "--deadline",
    type=click.FloatRange(0, min_open=True, max=86400),
    default=DEADLINE_S,
    show_default=True,
    metavar="S",
    help="Seconds after which the answer is no.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the report there.",
)
@click.option("--strict", is_flag=True, help="Let warnings fail as well.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def up(
    *,
    program: str,
    processes: int | None,
    world: int | None,
    devices_per_process: int | None,
    deadline: float,
    report_file: str | None,
    command: tuple[str, ...],
    replicas: int | None,
    partitions: int | None,
    strict: bool,
) -> int:
    """Bring up the communicators of a program for real, and say whether all agree.

    With -n, N processes are started on this machine. With a command, each process becomes it once
    the answer is go; the report then goes to --report FILE, or to standard error.
    """
    if command and shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no command {command[0]!r}")
    if processes is None:
        raise click.UsageError("say -n N: no launcher started this process")
    devices = share(processes, world, devices_per_process)
    muster = Muster(
        paths=tuple(process_path(program, process) for process in range(processes)),
        deadline_s=deadline,
        replicas=replicas,
        partitions=partitions,
        command=command,
        output=Output.current(),
        strict=strict,
    )
    for path in dict.fromkeys(muster.paths):
        with open(path, "rb"):  # noqa: PTH123 paths stay as typed
            pass
    try:
        with stops_raise():
            return lead(muster, devices, report_file)
    except Stopped as stopped:
        return 128 + stopped.number


def share(processes: int, world: int | None, each: int | None) -> list[range]:
    """The consecutive devices of every process."""
    if each is None:
        if world is not None and (world % processes or world < processes):
            raise click.UsageError(
                f"{processes} processes do not divide a world of {world} devices; "
                "choose -n so that each process holds as many"
            )
        each = (world or processes) // processes
    if world is not None and world != processes * each:
        raise click.UsageError(
            f"{processes} processes with {each} devices each are not a world of {world}"
        )
    return [range(start, start + each) for start in range(0, processes * each, each)]


def lead(muster: Muster, devices: Sequence[range], report_file: str | None) -> int:
    """The parent: start all, print the one report, pass the exit code on."""
    size = sum(map(len, devices))
    said: Said | None = None
    for name in FOR_CHILDREN:
        import_module(name)
    with LocalWorld(muster.run, devices, size) as world:
        until: float | None = time.monotonic() + muster.deadline_s + LATE_S
        while got := world.family.next_result(until):
            number, result = got
            if number == 0 and result:
                said = msgspec.json.decode(result, type=Said)
                deliver(said, report_file, beside=bool(muster.command))
                # Who became the command may take its time; the others have nothing left to do.
                until = None if said.go and muster.command else time.monotonic() + LATE_S
            elif not result:
                world.tell_death(number)
                if number == 0:
                    break
        if said is None:
            said = mourn_root(muster, world, size)
            deliver(said, report_file, beside=bool(muster.command))
        elif said.go and muster.command:
            return next((code for code in world.family.wait() if code), 0)
        world.family.end(0.0)
    return said.code


def mourn_root(muster: Muster, world: LocalWorld, size: int) -> Said:
    """Process 0 died or fell silent without a report: the parent makes one that says so."""
    until = time.monotonic() + LATE_S
    code = world.family.exited(0, 0.1)
    for number in range(1, len(world.family)):  # they have noticed; let them say so
        world.family.exited(number, until - time.monotonic())
    if code is None:
        how = f"had no answer after {muster.deadline_s:g} s"
    else:
        by = f"by signal {code - 128}" if code > 128 else f"with code {code}"
        how = f"ended {by} before it had an answer"
    lost = finding(
        "RM603" if code is None else "RM602",
        f"process 0, which led the muster, {how}",
        ranks=(0,),
        others=range(1, size),
    )
    report = Report(world=World(size=size, source="option"), findings=(lost,))
    return Said(muster.rendered(report), exit_code(report, strict=muster.strict), go=False)


def deliver(said: Said, report_file: str | None, *, beside: bool) -> None:
    """Put the report where it belongs: a file, standard output, or beside the command's own."""
    if report_file is None:
        click.echo(said.text, err=beside, color=True)
        return
    with open(report_file, "w", encoding="utf-8") as file:  # noqa: PTH123 paths stay as typed
        file.write(said.text + "\n")


def exit_code(report: Report, *, strict: bool) -> int:
    """2 where a program could not be read, else the report's own."""
    if any(found.code in UNREAD for found in report.findings):
        return 2
    return report.exit_code(strict=strict)


def become(command: tuple[str, ...]) -> NoReturn:
    """Turn this process into the command; the secret of this muster does not come along."""
    environ = hand_on(os.environ)
    # Python ignores SIGPIPE; what we become expects the system's own way.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.flush()  # exec forgets what is buffered
    sys.stderr.flush()
    os.execvpe(command[0], command, environ)  # noqa: S606 the command line was typed by the user


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, in the parts that a pipe takes; a parent that is gone wants nothing."""
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]
