"""`rankmuster doctor`: what in this machine and in its environment variables will hurt."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from rankmuster.address import BadAddress, split_address
from rankmuster.cli.output import Output, use_color
from rankmuster.cli.programs import COUNT
from rankmuster.doctor.checkup import Checkup, State
from rankmuster.doctor.costs import measure
from rankmuster.doctor.expected import Expected, expect, store
from rankmuster.doctor.machine import (
    check_backlog,
    check_clock,
    check_descriptors,
    check_host_name,
    own_name,
    somaxconn,
)
from rankmuster.doctor.network import check_interfaces, check_name, look_up
from rankmuster.doctor.network import check_port as check_free
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
from rankmuster.libnccom.ours import own_host, parse_root, secret_for
from rankmuster.node import node_from
from rankmuster.render.table import Page
from rankmuster.render.words import printable
from rankmuster.transport.interfaces import interfaces
from rankmuster.transport.limits import limit

SCHEMA = "rankmuster.doctor/1"
NETWORK_S = 0.0001  # round trip between two machines of one cluster
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")


@click.command()
@click.option("--env", "show_env", is_flag=True, help="List every variable with type and value.")
@click.option(
    "--world", type=COUNT, metavar="N", help="Devices of the job: what they take, and how long."
)
@click.option(
    "--devices-per-process", "each", type=COUNT, default=1, metavar="K", help="Default: 1."
)
@click.option("--hosts", type=COUNT, default=1, metavar="H", help="Machines of the job (1).")
@click.option(
    "--root",
    default="",
    metavar="HOST:PORT",
    help=f"Where the process of device 0 listens (default: {ROOT_COMM_ID}).",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    show_env: bool,
    world: int | None,
    each: int,
    hosts: int,
    root: str,
    strict: bool,
) -> None:
    """Say what on this machine will hurt a bring-up.

    Looks at descriptors, names, interfaces, the backlog, the clock, the root's port and the
    runtime's variables. With --world, also how long each phase should take; 'rankmuster up' prints
    its own times beside that. Exits with 1 where something will hurt.
    """
    complaints = list(diagnose(os.environ))
    processes = -(-(world or 1) // each)
    expected = None if world is None else foresee(processes, hosts)
    checks = list(examine(processes, root or os.environ.get(ROOT_COMM_ID, "")))
    variables = [describe(each, os.environ) for each in VARIABLES]
    page = Page(color=use_color(sys.stdout))
    if show_env:
        header = ("variable", "value", "type", "effect")
        page.table(header, [[row[key] for key in ("name", "shown", "type", "effect")]
                            for row in variables])  # fmt: skip
    for check in checks:
        show(page, check)
    for complaint in complaints:
        page.line((complaint, "red"))
    if not complaints and not show_env:
        page.line("ok       environment: no variable will hurt")
    if expected is not None:
        phases = ", ".join(f"{name} {s * 1e3:.1f} ms" for name, s in expected.phases.items())
        page.line(f"expected for {processes} processes on {hosts} host(s): {phases}; "
                  f"total {expected.total_s * 1e3:.0f} ms")  # fmt: skip
    listed = [{k: v for k, v in row.items() if k != "shown"} for row in variables]
    answer = {
        "schema": SCHEMA,
        "complaints": complaints,
        "checks": [check.to_dict() for check in checks],
        "expected": expected and {"processes": processes, "phases": expected.phases},
    }
    Output.current().answer(str(page), answer | ({"variables": listed} if show_env else {}))
    bad = {State.ERROR, State.WARNING} if strict else {State.ERROR}
    ctx.exit(1 if complaints or any(check.state in bad for check in checks) else 0)


def examine(processes: int, root: str) -> Iterator[Checkup]:
    """All checks of the machine and its network; *root* is host:port, or "" where none is said."""
    known = interfaces()
    yield check_descriptors(processes, limit())
    yield check_backlog(processes, somaxconn())
    yield check_host_name(own_name())
    yield check_name("own name", own_name(), look_up(own_name()), is_root=False)
    yield check_interfaces(known)
    if root:
        try:
            host, port = split_address(root)
        except BadAddress as error:
            yield Checkup(name="root", state=State.ERROR, message=error.what, fix=error.fix)
        else:
            found = look_up(host)
            yield check_name("root name", host, found, is_root=True)
            yield check_free(host, port, found, known)
    yield check_clock()


def foresee(processes: int, hosts: int) -> Expected:
    """How long a world should take; kept, for `rankmuster up` to print its own beside it."""
    cores = os.cpu_count() or 1
    rtt = NETWORK_S if hosts > 1 else 0.0
    expected = expect(processes, measure(cores), round_trip_s=rtt, cores=hosts * cores)
    if store(expected, os.environ) is None:
        Output.current().log("rankmuster: the expected times could not be kept: no state folder")
    return expected


def show(page: Page, check: Checkup) -> None:
    """One line for a check, and one for what to do."""
    style = {State.OK: "green", State.WARNING: "yellow", State.ERROR: "red"}[check.state]
    page.line((f"{check.state:<8}", style), f" {check.name}: {printable(check.message)}")
    if check.fix:
        page.line(check.fix, indent=9)


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
