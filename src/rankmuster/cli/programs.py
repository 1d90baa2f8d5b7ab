"""The options that say which programs a command is about, and loading them with progress shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from rankmuster.cli.progress import Progress
from rankmuster.errors import UnreadableInput
from rankmuster.load import MALFORMED, Loaded, LoadOptions, load
from rankmuster.load.devices import WORLD_MAX
from rankmuster.ranks import fold, unfold
from rankmuster.resolve import Resolved

F = TypeVar("F", bound=Callable[..., Any])
COUNT = click.IntRange(1, WORLD_MAX)


class Devices(click.ParamType[tuple[int, ...]]):
    """Device ids as people write them: "0-7,16"."""

    name = "ids"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The ids, ascending."""
        if isinstance(value, tuple):
            return value
        try:
            ids = unfold(value, limit=WORLD_MAX)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not ids or ids[-1] >= WORLD_MAX:
            self.fail(f"{value!r} must name ids from 0 to {WORLD_MAX - 1}", param, ctx)
        return ids


class DevicesOfFile(click.ParamType[tuple[tuple[int, ...], str]]):
    """Device ids and the file that they run: "0-3=a.hlo"."""

    name = "ids=file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], str]:
        """The ids and the path."""
        if isinstance(value, tuple):
            return value
        ids, equals, path = value.partition("=")
        if not (equals and path):
            self.fail(f"{value!r} is not like 0-3=a.hlo", param, ctx)
        return Devices().convert(ids, param, ctx), path


class Counts(click.ParamType[tuple[int, ...]]):
    """A number of devices for all processes, or one each: "2" or "2,2,4"."""

    name = "counts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The counts."""
        if isinstance(value, tuple):
            return value
        return tuple(int(COUNT(part, param, ctx)) for part in str(value).split(","))


OPTIONS = (
    click.option("--world", type=COUNT, metavar="W", help="How many devices the world has."),
    click.option("--replicas", type=COUNT, metavar="R", help="Replicas, if the file says none."),
    click.option("--partitions", type=COUNT, metavar="P", help="Partitions, if it says none."),
    click.option(
        "--devices-per-process",
        type=Counts(),
        envvar="NEURON_PJRT_PROCESSES_NUM_DEVICES",
        metavar="K",
        default=(),
        help="Devices of each process (or one number each: 2,2,4).",
    ),
    click.option(
        "--ranks",
        type=DevicesOfFile(),
        multiple=True,
        metavar="IDS=FILE",
        help="Devices that run this file, as in --ranks 0-3=a.hlo --ranks 4-7=b.hlo.",
    ),
    click.option(
        "--devices", type=Devices(), default=(), metavar="IDS", help="What one file runs on."
    ),
    click.option("--module", metavar="NAME", help="In XLA dump folders: only this module."),
)


def program_options(command: F) -> F:
    """Give *command* the options of `LoadOptions`, each as a keyword."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def load_programs(arguments: Sequence[str], said: dict[str, Any]) -> tuple[Loaded, ...]:
    """Load what *arguments* and the options *said* name, with a progress bar where it takes long.

    Raises `click.UsageError` where nothing is named.
    """
    if not arguments and not said["ranks"]:
        raise click.UsageError("name a program: a file, a folder, a pattern with {rank}, or -")
    with Progress("reading programs") as progress:
        return load(arguments, LoadOptions(**said), on_read=progress.update)


class Chosen(NamedTuple):
    """One program out of those that a command was given, and its world's size."""

    resolved: Resolved
    world_size: int


def load_one(path: str, said: dict[str, Any], device: int | None = None) -> Chosen:
    """The program at *path* that *device* runs; without a device there may be only one.

    Raises `click.UsageError` where it is not clear which one is meant, and `UnreadableInput` where
    a file is malformed.
    """
    modules = load_programs((path,), said)
    if len(modules) > 1:
        names = ", ".join(loaded.module for loaded in modules)
        raise click.UsageError(f"{path} holds several modules; say --module NAME: {names}")
    (loaded,) = modules
    for found in loaded.findings:
        if found.code in MALFORMED:
            raise UnreadableInput(found.message)
    if device is not None and device >= loaded.world.size:
        raise click.UsageError(f"device {device} is outside a world of {loaded.world.size}")
    copies = [copy for copy in loaded.copies if device is None or device in copy.devices]
    if not copies:
        raise click.UsageError(f"no program for device {device}")
    if len({id(copy.program) for copy in copies}) > 1:
        some = "; ".join(f"{copy.path}: {fold(copy.devices)}" for copy in copies[:4])
        raise click.UsageError(f"{path} holds several programs; say --device ({some})")
    return Chosen(Resolved(copies[0].program), loaded.world.size)
