"""What the processes of one `rankmuster up` do: those that muster, and the parent that waits.

Knows how to print and to exit, not how the command line was spelled (`up`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, NoReturn, TextIO

import click
import msgspec

from rankmuster import streams
from rankmuster.cli.output import Output, use_color
from rankmuster.errors import MusterError, UnreadableInput
from rankmuster.finding import finding
from rankmuster.launch import detect, engines, hand_on
from rankmuster.launch.base import LaunchOptions, Place
from rankmuster.launch.below import run_below
from rankmuster.launch.fork import Stopped, stops_raise
from rankmuster.launch.local import LocalWorld, attach
from rankmuster.launch.place import carried
from rankmuster.load import process_path, read_path
from rankmuster.load.files import shown
from rankmuster.load.sources import one_of_many
from rankmuster.program import Program
from rankmuster.report import Disagreement, Report
from rankmuster.session import join
from rankmuster.transport.base import Deadline
from rankmuster.transport.watchdog import watchdog
from rankmuster.world import World

ENDED = b"."  # what a process without a report says before it ends or becomes the command
STUCK_S = 5.0  # after the deadline, for what cannot be interrupted from inside
LATE_S = 0.5  # for processes to end by themselves, once there is nothing left for them to do
# What every child would import for itself, were it not here before the fork.
FOR_CHILDREN = ("rankmuster.formats.json_program", "rankmuster.formats.hlo")
NOT_RUN = 126  # as shells say of a command that they found and could not run
UNREAD = frozenset({"RM701", "RM702"})


class Said(msgspec.Struct, frozen=True):
    """What process 0 tells the parent: its report as it is to be printed, and the exit code."""

    text: str
    code: int
    go: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Muster:
    """What every process of this invocation is asked to do.

    `program` is what the user named, `paths` the file of each process that is to start here, or
    `given` the program of all. Under a launcher every process finds its own.
    """

    program: str
    paths: Mapping[int, str] = field(default_factory=dict)
    given: Program | None = None
    deadline_s: float
    replicas: int | None = None
    partitions: int | None = None
    command: tuple[str, ...] = ()
    output: Output

    def child(self, number: int, result: int) -> int:
        """One local process, from its start to its exit code: come up, report, become."""
        try:
            place = attach(os.environ)
            report = self.come_up(place, Deadline.after(self.deadline_s))
        except (MusterError, OSError) as error:  # without a result, the parent calls it a death
            self.complain(f"process {number}: {error}")
            return 1
        said = msgspec.json.encode(self.said(report)) if number == 0 else ENDED
        with contextlib.suppress(BrokenPipeError):  # a parent that is gone wants nothing
            while said:
                said = said[os.write(result, said) :]
        return self.end(report, becoming(place))

    def come_up(self, place: Place, deadline: Deadline) -> Report:
        """Join the world at *place*; the report, whatever the answer."""
        path = self.path_of(place.process)
        if place.is_root and place.processes > 1 and path == self.program:
            self.ask_whose(path)

        def read() -> Program:
            return self.given or read_path(
                path or process_path(self.program, place.process),
                world=place.world_size,
                replicas=self.replicas,
                partitions=self.partitions,
            )

        try:
            with join(
                place, read, deadline, path=shown(path or self.program), say=self.say
            ) as session:
                report = session.report
                self.say_expected(place, report)
                return report
        except Disagreement as no:
            return no.report

    def ask_whose(self, path: str) -> None:
        """Say that one file is everybody's, where its name says that there are more."""
        number = one_of_many(path)
        if number is not None:
            alike = f"its name looks like process {number}'s"
            self.say(f"{shown(path)} is taken as every process's program; {alike}")

    def say_expected(self, place: Place, report: Report) -> None:
        """Our times beside those that `rankmuster doctor` once foretold for such a world."""
        if not place.is_root:
            return
        from rankmuster.doctor.expected import beside, recall

        if expected := recall(place.processes, os.environ):
            self.say(beside(report.timings, expected))

    def path_of(self, process: int) -> str:
        """The file of a process; "" where there is none, which reading will say."""
        try:
            return self.paths.get(process) or process_path(self.program, process)
        except UnreadableInput:
            return ""

    def end(self, report: Report, run: Callable[[Sequence[str]], int]) -> int:
        """*run* the command if the answer is go and there is one; return the exit code."""
        if not (report.ok and self.command):
            return exit_code(report)
        try:
            return run(self.command)
        except OSError as error:
            self.complain(f"cannot run {self.command[0]!r}: {error.strerror}")
            return NOT_RUN

    def say(self, text: str) -> None:
        """Tell people on standard error how it goes, unless they want nothing but the answer."""
        if not self.output.quiet:
            self.complain(text)

    def complain(self, text: str) -> None:
        """Say on standard error, in any case, why this process ends with its exit code."""
        line = f"rankmuster: {text}"
        streams.tell(lambda: print(line, file=sys.stderr, flush=True))  # noqa: T201 no click here

    def said(self, report: Report) -> Said:
        """The report as it will be printed: to standard output, or beside the command's own."""
        stream = sys.stderr if self.command else sys.stdout
        if self.output.is_json:
            data = msgspec.json.encode(report.to_dict())
            text = (msgspec.json.format(data, indent=2) if stream.isatty() else data).decode()
        else:
            text = self.readable(report, stream)
        return Said(text, exit_code(report), report.ok)

    def readable(self, report: Report, stream: TextIO) -> str:
        """The report for people who read *stream*."""
        from rankmuster.render import text

        width = shutil.get_terminal_size().columns if stream.isatty() else None
        return text(report, color=use_color(stream), quiet=self.output.quiet, width=width)

    def deliver(self, said: Said, report_file: IO[str] | None) -> None:
        """Put the report where it belongs: a file, standard output, or beside the command's own."""
        if report_file is None and self.command:
            streams.tell(lambda: click.echo(said.text, err=True, color=True))
        elif report_file is None:
            click.echo(said.text, color=True)
        else:
            report_file.write(said.text + "\n")
            report_file.flush()


def lead(muster: Muster, devices: Sequence[range], report_file: IO[str] | None) -> int:
    """The parent of local processes: start all, print the one report, pass the exit code on."""
    said: Said | None = None
    for name in FOR_CHILDREN:
        import_module(name)
    with LocalWorld(muster.child, devices, sum(map(len, devices))) as world:
        until: float | None = time.monotonic() + muster.deadline_s + LATE_S
        while got := world.family.next_result(until):
            number, result = got
            if number == 0 and result:
                said = msgspec.json.decode(result, type=Said)
                muster.deliver(said, report_file)
                # Who became the command may take its time; the others have nothing left to do.
                until = None if said.go and muster.command else time.monotonic() + LATE_S
            elif not result:
                world.tell_death(number)
                if number == 0:
                    break
        if said is None:
            said = muster.said(mourn_root(world, devices, muster.deadline_s))
            muster.deliver(said, report_file)
        elif said.go and muster.command:
            return next((code for code in world.family.wait() if code), 0)
        world.family.end(0.0)
    return said.code


def mourn_root(world: LocalWorld, devices: Sequence[range], deadline_s: float) -> Report:
    """The parent's own report where process 0 died, or fell silent, without one."""
    until = time.monotonic() + LATE_S
    code = world.family.exited(0, LATE_S)
    for number in range(1, len(devices)):  # they have noticed; let them say so
        world.family.exited(number, until - time.monotonic())
    how = f"had no answer after {deadline_s:g} s"
    if code is not None:
        by = f"by signal {code - 128}" if code > 128 else f"with code {code}"
        how = f"ended {by} before it had an answer"
    lost = finding(
        "RM603" if code is None else "RM602",
        f"process 0, which led the muster, {how}",
        ranks=devices[0],
        others=(device for share in devices[1:] for device in share),
    )
    return Report(
        world=World(size=sum(map(len, devices)), source="option"),
        findings=(lost,),
        absent=tuple(devices[0]),
    )


def follow(muster: Muster, place: Place, deadline: Deadline, report_file: IO[str] | None) -> int:
    """One process under a launcher, over TCP, from its start to its exit code."""
    try:
        with stops_raise():
            report = muster.come_up(place, deadline)
    except Stopped as stopped:
        return 128 + stopped.number
    tell(muster, place, report, report_file)
    return muster.end(report, becoming(place))


def follow_over(
    engine: str, muster: Muster, options: LaunchOptions, report_file: IO[str] | None
) -> int:
    """One process under a launcher, over *engine*, from its start to its exit code.

    The library that carries the messages is out of our hands; a second process sees to it that
    the deadline holds.
    """
    deadline = Deadline.after(muster.deadline_s)
    late = Deadline.after(muster.deadline_s + STUCK_S)
    stuck = f"this process was stuck in its {engine} engine, after {muster.deadline_s:g} s"
    with watchdog(late, stuck):
        transport = engines.connect(engine, os.environ, deadline)
        code = 1
        try:
            place = carried(transport, os.environ, options, detect(os.environ))
            report = muster.come_up(place, deadline)
            tell(muster, place, report, report_file)
            code = exit_code(report)
        finally:
            transport.leave(code)
    environ = engines.hand_on(engine, place, os.environ)
    if transport.must_stay:
        return muster.end(report, lambda command: run_below(command, environ))
    return muster.end(report, lambda command: become(command, environ))


def tell(muster: Muster, place: Place, report: Report, report_file: IO[str] | None) -> None:
    """Under a launcher the report is the root's to print; others say one line on failure."""
    if place.is_root:
        muster.deliver(muster.said(report), report_file)
    elif not report.ok:
        cause = next(iter(report.errors or report.findings), None)
        muster.complain(f"{report.verdict}: {cause.message if cause else 'no cause was told'}")


def exit_code(report: Report) -> int:
    """2 where a program could not be read, else the report's own."""
    if any(found.code in UNREAD for found in report.findings):
        return 2
    return report.exit_code()


def becoming(place: Place) -> Callable[[Sequence[str]], int]:
    """What turns this process, which mustered over TCP at *place*, into a command."""
    return lambda command: become(command, hand_on(os.environ, place))


def become(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Turn this process into the command; the secret of this muster does not come along."""
    # Python ignores SIGPIPE; what we become expects the system's own way.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.flush()  # exec forgets what is buffered
    streams.tell(sys.stderr.flush)
    os.execvpe(command[0], list(command), environ)  # noqa: S606 the command line was typed by the user
