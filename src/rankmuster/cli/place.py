"""The options by which a process under a launcher, or started by hand, says where it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rankmuster.cli.programs import COUNT, Devices
from rankmuster.load.devices import WORLD_MAX

F = TypeVar("F", bound=Callable[..., Any])


def accept_place_options(command: F) -> F:
    """Let *command* take them; their names are those of `LaunchOptions`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--launcher", default="", metavar="NAME", help="Who started us (default: found by itself)."
    ),
    click.option(
        "--process",
        type=click.IntRange(0, WORLD_MAX),
        metavar="I",
        help="This process's number (default: the launcher's).",
    ),
    click.option(
        "--processes", type=COUNT, metavar="N", help="How many there are (default: likewise)."
    ),
    click.option(
        "--devices",
        type=Devices(),
        default=(),
        metavar="IDS",
        help="This process's devices (default: consecutive ones).",
    ),
    click.option(
        "--root",
        default="",
        metavar="HOST:PORT",
        help="Where the process of device 0 listens (default: beside the job's own root).",
    ),
    click.option(
        "--interface",
        default="",
        metavar="NAME",
        help="Listen on this interface, address or network (default: the one that leads to the "
        "root).",
    ),
    click.option(
        "--secret-file",
        default="",
        metavar="FILE",
        help="What the processes of the job know and nobody else; mode 0600.",
    ),
    click.option(
        "--insecure", is_flag=True, help="Come up without a secret: anybody may take part."
    ),
)
