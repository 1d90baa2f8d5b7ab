"""What programs say as a whole: the world they claim, and whether their texts are one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankmuster.compare.alignment import first_difference
from rankmuster.compare.steps import steps
from rankmuster.compare.story import code_of, subject
from rankmuster.copies import ProgramClass
from rankmuster.finding import Finding, Severity, Value, finding
from rankmuster.ranks import fold
from rankmuster.wording import describe


def world_sizes(held: Sequence[ProgramClass]) -> Iterator[Finding]:
    """RM001 where files or headers claim different worlds; what was inferred claims nothing."""
    claims: dict[int, set[int]] = {}
    for each in held:
        program = each.resolved.program
        if program.world_size is not None and program.world_source in {"header", "file"}:
            claims.setdefault(program.world_size, set()).update(each.devices)
    if len(claims) < 2:
        return
    most = max(claims, key=lambda size: len(claims[size]))
    majority = 2 * len(claims[most]) > sum(map(len, claims.values()))
    odd = [size for size in claims if not (majority and size == most)]
    names = {each.resolved.program.world_size: each.name for each in held}
    said = ", ".join(
        f"{size} on {names[size] or f'devices {fold(devices)}'}" for size, devices in claims.items()
    )
    yield finding(
        "RM001",
        f"programs claim worlds of different sizes: {said}",
        ranks=(device for size in odd for device in claims[size]),
        others=claims[most] if majority else (),
        majority=majority,
        field="world_size",
        values=tuple(
            Value(ranks=tuple(sorted(devices)), value=size) for size, devices in claims.items()
        ),
    )


def same_programs(
    held: Sequence[ProgramClass],
    programs: Sequence[ProgramClass],
    found: Sequence[Finding],
    *,
    same: bool,
) -> Iterator[Finding]:
    """RM310 where programs differ and nobody who runs them together can see it.

    With *same* that is an error, if their collectives differ, and the first difference is named.
    """
    if found and not same:
        return
    if len(programs) > 1:
        yield differing(programs, Severity.ERROR if same else Severity.INFO)
    elif len(held) > 1 and not same:
        yield finding(
            "RM310",
            f"{len(held)} different programs post the same collectives: "
            "they differ in messages, splits or what is not compared",
            ranks=(device for each in held for device in each.devices),
        )


def differing(programs: Sequence[ProgramClass], severity: Severity) -> Finding:
    """The finding that names the first difference of the whole texts of two programs."""
    most = max(programs, key=lambda each: len(each.devices))
    odd = next(each for each in programs if each is not most)
    ours, theirs = (
        steps(each.resolved, tuple(one.id for one in each.resolved.sets)) for each in (most, odd)
    )
    where = first_difference(ours, theirs)
    shown = "group sets, or what is recorded, differ"
    if where is not None:
        texts = [
            describe(step.token.op) if step and step.token.op else "nothing"
            for step in (where.right, where.left)
        ]
        kind = f"{code_of(where.field)}, {where.field}"
        shown = f"the first difference is {texts[0]} against {texts[1]} ({kind})"
    tail = "" if severity is Severity.ERROR else ", nothing that they share"
    return finding(
        "RM310",
        f"{len(programs)} different programs{tail}: between {subject(odd, odd.devices)} and "
        f"{subject(most, most.devices)}, {shown}",
        severity=severity,
        ranks=(device for each in programs if each is not most for device in each.devices),
        others=most.devices,
        field=where.field if where else "members",
    )
