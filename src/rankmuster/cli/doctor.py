"""`rankmuster doctor`: the environment variables of the runtime, and what in them will hurt."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from rankmuster.cli.output import Output, use_color
from rankmuster.environment import (
    ROOT_COMM_ID,
    SECRET_NAMES,
    VARIABLES,
    BadSetting,
    near_misses,
    read_settings,
    value_of,
)
from rankmuster.errors import MusterError
from rankmuster.libnccom.ours import own_host, parse_root
from rankmuster.libnccom.secret import secret_for
from rankmuster.node import node_from
from rankmuster.render.table import Page

SCHEMA = "rankmuster.doctor/1"
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")


@click.command()
@click.option("--env", "show_env", is_flag=True, help="List every variable with type and value.")
@click.pass_context
def doctor(ctx: click.Context, *, show_env: bool) -> None:
    """Say what in this machine's settings will hurt the runtime's bring-up.

    Exits with 1 where something will.
    """
    complaints = list(diagnose(os.environ))
    variables = [describe(each, os.environ) for each in VARIABLES]
    page = Page(color=use_color(sys.stdout))
    if show_env:
        header = ("variable", "value", "type", "effect")
        page.table(header, [[row[key] for key in ("name", "shown", "type", "effect")]
                            for row in variables])  # fmt: skip
    for complaint in complaints:
        page.line((complaint, "red"))
    if not complaints and not show_env:
        page.line("nothing in the environment will hurt a bring-up")
    listed = [{k: v for k, v in row.items() if k != "shown"} for row in variables]
    answer = {"schema": SCHEMA, "complaints": complaints}
    Output.current().answer(str(page), answer | ({"variables": listed} if show_env else {}))
    ctx.exit(1 if complaints else 0)


def describe(variable: Any, environ: Mapping[str, str]) -> dict[str, Any]:
    """A variable as the table and the JSON show it; secrets are not shown."""
    given = variable.name in environ
    try:
        value = value_of(variable, environ)
    except BadSetting:
        value = environ[variable.name]
    if isinstance(value, range):
        value = f"{value[0]}-{value[-1]}"
    if variable.name in SECRET_NAMES and value:
        value = "(set)"
    shown = "" if value is None else str(value)
    return {
        "name": variable.name,
        "value": value,
        "shown": shown if given else f"{shown} (default)" if shown else "unset",
        "set": given,
        "type": variable.type,
        "effect": variable.effect + ("" if variable.documented else " [undocumented]"),
        "documented": variable.documented,
    }


def diagnose(environ: Mapping[str, str]) -> Iterator[str]:
    """Everything that will hurt, in one line each."""
    for name, hint in near_misses(environ).items():
        yield f"{name} is not known; {hint}"
    misread = list(misfits(environ))
    yield from misread
    if misread:
        return
    try:
        settings = read_settings(environ)
        node_from(settings)
    except MusterError as error:
        yield str(error)
        return
    if root := settings[ROOT_COMM_ID]:
        try:
            host, port = parse_root(root)
            secret_for(settings, host)
            own_host(root)
        except MusterError as error:
            yield str(error)
        else:
            yield from check_port(root, port)


def misfits(environ: Mapping[str, str]) -> Iterator[str]:
    """The variables whose values are not of their type."""
    for variable in VARIABLES:
        try:
            value_of(variable, environ)
        except BadSetting as error:
            yield str(error)


def check_port(root: str, port: int) -> Iterator[str]:
    """Whether the kernel may hand the root's port to somebody else (facts §6.1)."""
    try:
        low, high = map(int, RANGE.read_text().split())
        reserved = RESERVED.read_text().strip()
    except OSError:  # not Linux, or hidden
        return
    if low <= port <= high and not is_reserved(port, reserved):
        yield (
            f"{ROOT_COMM_ID}={root}: the system hands out ports {low} to {high} to anybody; "
            f"reserve it on that machine: sysctl net.ipv4.ip_local_reserved_ports={port}"
        )


def is_reserved(port: int, listed: str) -> bool:
    """Whether *port* is in a list such as "8080,9000-9010"."""
    spans = [part.partition("-") for part in listed.split(",") if part]
    return any(int(low) <= port <= int(high or low) for low, _, high in spans)
