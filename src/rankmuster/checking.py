"""One report from programs: each judged by itself, then compared, paired and signed.

The only place that knows all checks; pure, so `check`, `diff`, `up` and the root of a bring-up all
call it with what they have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rankmuster.compare import compare_classes
from rankmuster.copies import ProgramClass, ProgramCopy, classes
from rankmuster.finding import Finding, Severity
from rankmuster.pairing import pair_classes
from rankmuster.program import REDUCING, Program
from rankmuster.report import DeviceSignatures, GroupRow, ProgramRow, Report, group_rows
from rankmuster.resolve import Resolved
from rankmuster.screen import Survey
from rankmuster.signature.canonical import communicator_digest, program_digest
from rankmuster.signature.libnrt import sign
from rankmuster.verify import placed, verify
from rankmuster.world import World

if TYPE_CHECKING:
    from rankmuster.clusters import Cluster
    from rankmuster.deadlock import Settings

FIELDS = (
    *("kind", "elements", "dtype", "reduce", "root", "dimension", "input_splits", "output_splits"),
    *("peer", "trips", "members", "order"),
)
"""What is compared or paired of programs, by the names that findings use."""

SIGNED_WHOLE = 64
"""Up to this many devices are all signed; of a larger world the lowest of each program."""


def check(
    copies: Iterable[ProgramCopy],
    world: World,
    *,
    findings: Iterable[Finding] = (),
    absent: Iterable[int] = (),
    same: bool = False,
    all_signatures: bool = False,
    timings: Mapping[str, float] | None = None,
    cluster: Cluster | None = None,
    settings: Settings | None = None,
) -> Report:
    """Judge *copies* in *world*; the report starts with *findings*, those of the caller.

    *absent* devices gave no program. With *same*, programs that differ where nobody can see it are
    an error too. With *all_signatures*, every device is signed, however many there are. On a
    *cluster* the groups are placed and screened too, under the debug switches of *settings*.
    """
    held = tuple(copies)
    sorts = classes(held)
    placed = place(sorts, cluster, world.size, settings)
    lacking = {field for each in sorts for field in not_recorded(each.resolved.program)}
    return Report(
        world=world,
        basis="one program" if len(held) == 1 and world.size > 1 else "compared",
        compared=tuple(field for field in FIELDS if field not in lacking),
        not_recorded=(
            *(field for field in FIELDS if field in lacking),
            *sorted(lacking.difference(FIELDS)),
        ),
        absent=tuple(sorted(set(absent))),
        programs=program_rows(sorts),
        groups=shown_groups(sorts),
        signatures=signatures(sorts, whole=all_signatures or world.size <= SIGNED_WHOLE),
        findings=(
            *findings,
            *(each for each in own_findings(sorts, world.size) if each.code not in placed.judged),
            *between(sorts, same=same),
            *placed.findings,
        ),
        cluster=None if cluster is None else cluster.name,
        placement=placed.placement,
        screen=placed.screen,
        timings=timings or {},
    )


def between(sorts: Sequence[ProgramClass], *, same: bool) -> Iterator[Finding]:
    """What is wrong between programs; that they differ unseen (RM310) only if nothing is."""
    # Who does not record messages is no partner that fails to post one.
    recorded = [each for each in sorts if "peer" not in each.resolved.program.not_recorded]
    compared, paired = compare_classes(sorts, same=same), pair_classes(recorded)
    looped = {device for each in compared if each.code == "RM311" for device in each.ranks}
    for each in compared:
        if not paired or each.severity is not Severity.INFO:
            yield each
    for each in paired:
        # A loop of another count is told once, also where messages stand in it.
        if each.field != "trips" or looped.isdisjoint(each.ranks):
            yield each


def not_recorded(program: Program) -> frozenset[str]:
    """The fields that this program's evidence lacks: its format's, or a null in the file."""
    if any(op.kind in REDUCING and op.reduce is None for op in program.walk()):
        return program.not_recorded | {"reduce"}
    return program.not_recorded


def own_findings(sorts: Sequence[ProgramClass], world_size: int) -> tuple[Finding, ...]:
    """What is wrong with each program by itself; equal findings of several are told once."""
    told: dict[tuple[object, ...], Finding] = {}
    for devices, each in alone(sorts, world_size):
        key = (each.code, each.severity, each.message, each.group, each.op, each.field)
        known = told.get(key)
        ranks = set(each.ranks or devices).union(known.ranks if known else ())
        told[key] = dataclasses.replace(each, ranks=tuple(sorted(ranks)))
    return tuple(told.values())


def alone(
    sorts: Sequence[ProgramClass], world_size: int
) -> Iterator[tuple[tuple[int, ...], Finding]]:
    """Each program's own findings with the devices that it stands for.

    An empty JSON list beside programs that communicate is a statement, not a lack of evidence.
    """
    busy = any(any(each.resolved.program.walk()) for each in sorts)
    for each in sorts:
        for copy in each.copies:
            yield from ((copy.devices, placed(each.resolved, f)) for f in copy.program.findings)
        stated = busy and each.resolved.program.format == "json"
        for found in verify(each.resolved, world_size):
            if not (stated and found.code == "RM312"):
                yield each.devices, placed(each.resolved, found)


def program_rows(sorts: Sequence[ProgramClass]) -> tuple[ProgramRow, ...]:
    """One row per copy, by its lowest device."""
    rows = []
    for each in sorts:
        ops = sum(op.places for op in each.resolved.program.walk())
        digest = program_digest(each.resolved)
        rows += [
            ProgramRow(
                devices=tuple(sorted(copy.devices)),
                process=copy.process,
                path=copy.path,
                format=copy.program.format,
                ops=ops,
                digest=digest,
            )
            for copy in each.copies
        ]
    return tuple(sorted(rows, key=lambda row: row.devices[:1]))


def shown_groups(sorts: Sequence[ProgramClass]) -> tuple[GroupRow, ...]:
    """The sets of the class with most devices, of equals the first."""
    return group_rows(largest_first(sorts)[0].resolved) if sorts else ()


def largest_first(sorts: Sequence[ProgramClass]) -> list[ProgramClass]:
    """The classes by the number of their devices, equals in their order."""
    return sorted(sorts, key=lambda each: -len(each.devices))


def place(
    sorts: Sequence[ProgramClass],
    cluster: Cluster | None,
    world_size: int,
    settings: Settings | None,
) -> Survey:
    """Where the groups land on *cluster*; nothing without one."""
    if cluster is None:
        return Survey()
    from rankmuster.placement import survey  # chips take 20 ms to import, and most have none

    programs = [each.resolved for each in largest_first(sorts)]
    return survey(programs, cluster, world_size, settings=settings)


def signatures(sorts: Sequence[ProgramClass], *, whole: bool) -> dict[int, DeviceSignatures]:
    """The digests of every device, or else of the lowest of each copy."""
    return {
        device: device_signatures(each.resolved, device)
        for each in sorts
        for copy in each.copies
        for device in (copy.devices if whole else copy.devices[:1])
    }


def device_signatures(resolved: Resolved, device: int) -> DeviceSignatures:
    """Both projections of a program as *device*, a global id, holds it."""
    return DeviceSignatures(
        libnrt=sign(resolved, device),
        program=program_digest(resolved),
        communicators={
            members: communicator_digest(resolved, members)
            for members in resolved.communicators(device)
        },
    )
