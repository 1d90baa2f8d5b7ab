"""`rankmuster diff`: the first difference between two programs, whoever would run them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import click

from rankmuster.cli.output import Output, use_color
from rankmuster.cli.programs import Chosen, load_one, program_options
from rankmuster.compare import compare
from rankmuster.copies import ProgramCopy
from rankmuster.finding import Finding, Severity, Value
from rankmuster.render import findings_text
from rankmuster.wording import who


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.option("--device", type=click.IntRange(0), metavar="D", help="Of folders: what D runs.")
@program_options
def diff(one: str, other: str, device: int | None, **said: Any) -> int:
    """Name the differences between the programs A and B, the first of each kind.

    Exit code: 0 if every collective is alike, 1 if not.
    """
    output = Output.current()
    sides = tuple(load_one(path, said, device) for path in (one, other))
    findings = differences(sides, (one, other))
    if output.is_json:
        output.json([each.to_dict() for each in findings])
    else:
        click.echo(text(findings, (one, other)))
    return int(any(each.severity is Severity.ERROR for each in findings))


def text(findings: tuple[Finding, ...], names: tuple[str, str]) -> str:
    """The findings for people, under a line that says how it is."""
    if not findings:
        return f"identical: {names[0]} and {names[1]} post the same collectives"
    import sys

    return findings_text(findings, labels=names, color=use_color(sys.stdout))


def differences(sides: tuple[Chosen, ...], names: tuple[str, str]) -> tuple[Finding, ...]:
    """What the engine of `check` says when some devices run A and the others B.

    Once for every bit of a device id: any two devices differ in one, so that each communicator,
    and every two of them that share two devices, is held by both sides at least once.
    """
    world_size = max(side.world_size for side in sides)
    found: dict[object, Finding] = {}
    for bit in range(max(1, (world_size - 1).bit_length())):
        for each in compared(sides, world_size, bit):
            mine = labelled(each, bit, names)
            known = found.setdefault(identity(mine), mine)
            found[identity(mine)] = about(known, {*known.ranks, *mine.ranks})
    real = tuple(each for each in found.values() if each.code != "RM310")
    return real or tuple(found.values())


def compared(sides: tuple[Chosen, ...], world_size: int, bit: int) -> tuple[Finding, ...]:
    """Compare A on the devices whose *bit* is 0 with B on the others."""
    held: tuple[list[int], list[int]] = ([], [])
    for device in range(max(2, world_size)):
        held[device >> bit & 1].append(device)
    copies = [
        ProgramCopy(program=side.program, devices=tuple(devices))
        for side, devices in zip(sides, held, strict=True)
    ]
    return compare(copies, max(2, world_size), same=True)


def labelled(found: Finding, bit: int, names: tuple[str, str]) -> Finding:
    """The finding with names for the devices that stood for A and B; A's value comes first."""
    message, context = found.message, list(found.context)
    for ranks in sorted((value.ranks for value in found.values), key=len, reverse=True):
        name = names[ranks[0] >> bit & 1].replace("\\", r"\\")
        both = re.escape(who(ranks))
        message = re.sub(rf"{both} (post|run|form)\b", rf"{name} \1s", message)
        message = re.sub(rf"{both}(?: do\b)", f"{name} does", message)
        message = re.sub(rf"{both}(?=[ :])", name, message)
        context = [re.sub(rf"^{both}:", f"{name}:", line) for line in context]
    values = sorted(found.values, key=lambda value: value.ranks[0] >> bit & 1)
    return replace(
        found,
        message=message,
        context=tuple(context),
        values=tuple(values),
        ranks=tuple(sorted({*found.ranks, *found.others})),
        others=(),
        majority=False,
    )


def identity(found: Finding) -> object:
    """What findings of several splits have in common when they are about one difference."""
    values = tuple(str(value.value) for value in found.values)
    where = found.op and (found.op.index, found.op.in_group)
    return (found.code, found.field, where, values) if found.code != "RM310" else found.code


def about(found: Finding, devices: set[int]) -> Finding:
    """The finding, about *devices*, all of which would hold either value."""
    ranks = tuple(sorted(devices))
    return replace(
        found,
        ranks=ranks,
        values=tuple(Value(ranks=ranks, value=each.value) for each in found.values),
    )
