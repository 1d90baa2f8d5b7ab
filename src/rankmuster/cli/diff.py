"""`rankmuster diff`: the first difference between two programs, whoever would run them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import click

from rankmuster.checking import not_recorded
from rankmuster.cli.output import Output, use_color
from rankmuster.cli.programs import load_one, program_options
from rankmuster.compare import compare_classes
from rankmuster.copies import ProgramClass, ProgramCopy
from rankmuster.finding import Finding, Value, finding
from rankmuster.group import SubGroup
from rankmuster.render import findings_text
from rankmuster.report import exit_code
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import content_digest

STEPS_MAX = 1_000_000  # looks at two communicators of one device, for where programs take turns


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.option("--device", type=click.IntRange(0), metavar="D", help="Of folders: what D runs.")
@program_options
def diff(one: str, other: str, device: int | None, **said: Any) -> int:
    """Name the differences between the programs A and B, the first of each kind.

    Exit code: 0 if no device could tell them apart, 1 if one could, 3 if that cannot be told.
    """
    output = Output.current()
    mine, theirs = (load_one(path, said, device).resolved for path in (one, other))
    findings = differences((mine, theirs), (one, other))
    if output.is_json:
        output.json([each.to_dict() for each in findings])
    else:
        lacking = not_recorded(mine.program) | not_recorded(theirs.program)
        click.echo(text(findings, (one, other), sorted(lacking)))
    return exit_code(findings)


def text(findings: tuple[Finding, ...], names: tuple[str, str], lacking: Sequence[str] = ()) -> str:
    """The findings for people, under a line that says how it is; *lacking* was never recorded."""
    if not findings:
        known = f", in what is recorded (not recorded: {', '.join(lacking)})" if lacking else ""
        return f"identical: {names[0]} and {names[1]} post the same collectives{known}"
    return findings_text(findings, labels=names, color=use_color(sys.stdout))


def differences(sides: tuple[Resolved, Resolved], names: tuple[str, str]) -> tuple[Finding, ...]:
    """What the engine of `check` says when one device runs A and those around it B.

    Asked of a device for each kind of communicator, so that every difference has a witness.
    """
    one, other = sides
    if not any(any(each.program.walk()) for each in sides):
        return (finding("RM312", "neither program holds collectives"),)
    if content_digest(one) == content_digest(other):
        return ()
    found: dict[object, Finding] = {}
    for device in dict.fromkeys(first for first, _ in witnesses(one, other)):
        around = tuple(sorted(neighbours(sides, device))) or (device + 1,)
        held = [
            ProgramClass(number, side, devices, (ProgramCopy(side.program, devices),), name)
            for number, (side, devices, name) in enumerate(
                zip(sides, ((device,), around), names, strict=True)
            )
        ]
        for each in compare_classes(held):
            mine = labelled(each, device, concerned(each, one))
            found.setdefault((mine.code, mine.field, mine.group, mine.op), mine)
    told = sorted(found.values(), key=index)
    return tuple(each for each in told if each.code != "RM310") or tuple(told[:1])


def index(found: Finding) -> int:
    """Where the difference stands in the first program."""
    return found.op.index if found.op else 0


def neighbours(sides: tuple[Resolved, Resolved], device: int) -> set[int]:
    """The devices that share a communicator with *device* in either program."""
    return {
        other
        for side in sides
        for each in side.sets
        for other in each.by_device.get(device, ())
        if other != device
    }


def witnesses(one: Resolved, other: Resolved) -> Iterator[tuple[int, int]]:
    """Two devices for each kind of communicator that they share, and for each two kinds.

    Member lists that the same sets hold, in either program, are of one kind: their ops are alike.
    """
    lists = [
        members
        for members in dict.fromkeys((*one.sets_by_members, *other.sets_by_members))
        if len(set(members)) > 1
    ]
    kinds = [
        (one.sets_by_members.get(members), other.sets_by_members.get(members)) for members in lists
    ]
    first_of_kind = dict(zip(reversed(kinds), reversed(lists), strict=True))
    for members in reversed(first_of_kind.values()):
        first, second, *_ = sorted(set(members))
        yield first, second
    yield from joint_witnesses(lists, kinds)
    if not lists:
        yield 0, 1


def joint_witnesses(
    lists: Sequence[SubGroup], kinds: Sequence[object]
) -> Iterator[tuple[int, int]]:
    """Two devices on both communicators, for each two kinds of which some share two devices."""
    holding: dict[int, list[int]] = {}
    for number, members in enumerate(lists):
        for device in dict.fromkeys(members):
            holding.setdefault(device, []).append(number)
    first: dict[tuple[int, int], int] = {}
    seen: set[tuple[object, object]] = set()
    every = ((device, pair) for device, held in holding.items() for pair in combinations(held, 2))
    for device, (here, there) in islice(every, STEPS_MAX):
        both = (kinds[here], kinds[there])
        if both not in seen and first.setdefault((here, there), device) != device:
            seen.add(both)
            yield min(first[here, there], device), max(first[here, there], device)


def concerned(found: Finding, one: Resolved) -> tuple[int, ...]:
    """The devices that a difference is about: all of its set."""
    if found.group is None or found.group >= len(one.sets):
        return found.ranks
    return tuple(sorted(one.sets[found.group].by_device))


def labelled(found: Finding, device: int, ranks: tuple[int, ...]) -> Finding:
    """The finding with A's value first, which *device* runs, about all of *ranks*."""
    values = sorted(found.values, key=lambda value: device not in value.ranks)
    return replace(
        found,
        values=tuple(Value(ranks=ranks, value=each.value) for each in values),
        ranks=ranks,
        others=(),
        majority=False,
    )
