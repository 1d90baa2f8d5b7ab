"""`rankmuster up`: bring the communicators up for real, then become the job's command."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import IO, Any

import click
from click.core import ParameterSource

from rankmuster import launch
from rankmuster.cli.mustering import Muster, follow, follow_over, lead
from rankmuster.cli.output import Output
from rankmuster.cli.place import accept_place_options
from rankmuster.cli.programs import COUNT, Counts
from rankmuster.errors import UnreadableInput
from rankmuster.finding import finding
from rankmuster.launch import engines
from rankmuster.launch.base import LaunchOptions
from rankmuster.launch.fork import Stopped, stops_raise
from rankmuster.load import process_paths, read_path
from rankmuster.load.files import STDIN, is_read_once, shown
from rankmuster.ranks import fold
from rankmuster.report import Report
from rankmuster.session import DEADLINE_S
from rankmuster.transport.base import Deadline
from rankmuster.wording import short, who
from rankmuster.world import World

LOCAL = click.IntRange(1, 4096)  # of one machine; `rankmuster simulate` rehearses larger worlds
LAUNCHED_DEADLINE_S = 300.0  # under a launcher, whose processes start far apart


class Seconds(click.FloatRange):
    """A number within the range, and a number it must be."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds; nan is no time."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no time", param, ctx)
        return seconds


@click.command()
@click.option("--program", required=True, metavar="P", help="A file, or a pattern with {rank}.")
@click.option("-n", "local", type=LOCAL, metavar="N", help="Start N processes here.")
@click.option("--world", type=COUNT, metavar="W", help="Devices in all (default: N times K).")
@click.option(
    "--devices-per-process",
    "each",
    type=Counts(),
    envvar="NEURON_PJRT_PROCESSES_NUM_DEVICES",
    default=(),
    metavar="K",
    help="Devices of each process (or one number each: 2,2,4; default: 1).",
)
@click.option(
    "--engine",
    type=click.Choice(engines.ENGINES),
    default=engines.AUTO,
    envvar=engines.ENGINE,
    help="What carries the messages under a launcher (default: mpi under mpiexec, torch under "
    "torchrun, where these are installed, else tcp).",
)
@accept_place_options
@click.option("--replicas", type=COUNT, metavar="R", help="Replicas, if the file says none.")
@click.option("--partitions", type=COUNT, metavar="P", help="Partitions, if it says none.")
@click.option(
    "--deadline",
    type=Seconds(0, min_open=True, max=86400),
    metavar="S",
    help=f"Seconds until the answer is no (default: {DEADLINE_S:g} with -n, else "
    f"{LAUNCHED_DEADLINE_S:g}).",
)
@click.option(
    "--report",
    "report_file",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="FILE",
    help="Write the report there.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def up(
    *,
    program: str,
    local: int | None,
    world: int | None,
    each: tuple[int, ...],
    engine: str,
    replicas: int | None,
    partitions: int | None,
    deadline: float | None,
    report_file: IO[str] | None,
    command: tuple[str, ...],
    **place_options: Any,
) -> int:
    """Bring up the communicators of a program for real, and say whether all agree.

    With -n, N processes are started on this machine. With a command, each process becomes it once
    the answer is go; the report then goes to --report FILE, or to standard error.

    Exit code: 0 agree, 1 an error was found, 3 undecided, 2 wrong use or unreadable input; that of
    the command, once it runs.
    """
    if command and shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no command {command[0]!r}")
    muster = Muster(
        program=program,
        deadline_s=deadline or (DEADLINE_S if local else LAUNCHED_DEADLINE_S),
        replicas=replicas,
        partitions=partitions,
        command=command,
        output=Output.current(),
    )
    options = LaunchOptions(world_size=world, devices_each=each, **place_options)
    if local:
        typed = said_on_command_line()
        given = [name for name in place_options if name in typed]
        # RANKMUSTER_ENGINE is for whoever is launched, and no mistake here.
        if engine in {engines.MPI, engines.TORCH} and "engine" in typed:
            given.append("engine")
        if given:
            raise click.UsageError(
                f"--{given[0].replace('_', '-')} is for a launcher's processes, not for -n"
            )
        return start(muster, share(local, world, each), report_file)
    if options.insecure:
        click.echo("rankmuster: --insecure: anybody who reaches the root may take part", err=True)
    chosen = engines.choose(engine, os.environ, options, followed=bool(command))
    if chosen != engines.TCP:
        return follow_over(chosen, muster, options, report_file)
    ends = Deadline.after(muster.deadline_s)
    place = launch.place(os.environ, options, ends)
    if place is None:
        raise click.UsageError("no launcher started this process: say -n N to start N here")
    return follow(muster, place, ends, report_file)


def said_on_command_line() -> set[str]:
    """The options that were typed, not taken from the environment or a default."""
    context = click.get_current_context()
    typed = ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is typed}


def start(muster: Muster, devices: Sequence[range], report_file: IO[str] | None) -> int:
    """Start a process for each share of *devices*, and be their parent."""
    paths = process_paths(muster.program, range(len(devices)))
    if gaps := [number for number in range(len(devices)) if number not in paths]:
        report = gap(devices, gaps)
        muster.deliver(muster.said(report), report_file)
        return report.exit_code()
    muster = replace(
        muster,
        paths=paths,
        # What can be read once, the parent reads for all.
        given=read_path(muster.program, replicas=muster.replicas, partitions=muster.partitions)
        if is_read_once(muster.program)
        else None,
    )
    for path in dict.fromkeys(muster.paths.values()):
        if path != STDIN and not os.access(path, os.R_OK):
            raise UnreadableInput(f"{shown(path)}: permission denied")
    try:
        with stops_raise():
            return lead(muster, devices, report_file)
    except Stopped as stopped:
        return 128 + stopped.number


def gap(devices: Sequence[range], processes: Sequence[int]) -> Report:
    """The report where *processes* have no program: nothing was started."""
    size = sum(map(len, devices))
    absent = tuple(device for number in processes for device in devices[number])
    text = f"no program for {who(absent)} of {size} (process{'es' * (len(processes) > 1)} "
    return Report(
        world=World(size=size, source="launcher"),
        absent=absent,
        findings=(finding("RM601", f"{text}{short(fold(processes))})", ranks=absent),),
    )


def share(processes: int, world: int | None, each: tuple[int, ...]) -> list[range]:
    """The consecutive devices of every process. Raises UsageError where the counts do not fit."""
    if not each:
        each = (max(1, (world or processes) // processes),)
    counts = each * processes if len(each) == 1 else each
    if len(counts) != processes:
        raise click.UsageError(
            f"--devices-per-process names {len(counts)} processes, not {processes}"
        )
    if world is not None and sum(counts) != world:
        raise click.UsageError(
            f"{processes} processes with {fold(counts)} device(s) each make {sum(counts)}, "
            f"not a world of {world}; choose -n and --devices-per-process so that they do"
        )
    return [range(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]
