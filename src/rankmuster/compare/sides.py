"""The sides of one communicator, explained: the first difference of each from the reference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice, product

from rankmuster.compare.alignment import Difference, first_difference
from rankmuster.compare.clash import Clash
from rankmuster.compare.membership import or_moved
from rankmuster.compare.shared import Shared, Side
from rankmuster.compare.steps import FIELDS, is_unknown, steps, undecided_fields
from rankmuster.compare.story import Story, code_of
from rankmuster.compare.votes import Votes
from rankmuster.copies import ProgramClass
from rankmuster.finding import Severity
from rankmuster.group import SubGroup
from rankmuster.signature.canonical import set_digest
from rankmuster.signature.digest import Digest

EXPLAINED = 64
"""Of so many sides of one communicator the difference is looked for; where nobody agrees with
anybody, more would say no more.
"""


def clashes(shared: Sequence[Shared], votes: Votes) -> list[Clash]:
    """What the sides of each communicator differ in.

    Every side is compared with the reference: the largest of those whose evidence lacks least.
    """
    several = [each for each in shared if len(each.sides) > 1]
    split = frozenset(each.members for each in several)
    found = []
    for each in several:
        reference = max(each.sides, key=lambda side: (-lacking(side), len(side.devices)))
        for other in each.sides[:EXPLAINED]:
            if other is not reference:
                both = product(parts(reference), parts(other))
                found += [
                    Clash(
                        code=code,
                        members=each.members,
                        sides=sides,
                        found=difference,
                        votes=votes,
                    )
                    for sides in islice(both, EXPLAINED)
                    for code, difference in explain(*sides, split)
                ]
    return found


def parts(side: Side) -> tuple[Side, ...]:
    """The side by itself; of those who lack the communicator, each lot that holds the same sets."""
    if side.digest is not None or len(side.programs) == 1:
        return (side,)
    lots: dict[tuple[Digest, ...], list[ProgramClass]] = {}
    for program in side.programs:
        sets = program.resolved.sets
        key = tuple(set_digest(program.resolved, each.id) for each in sets)
        lots.setdefault(key, []).append(program)
    own = set(side.devices)
    return tuple(
        replace(
            side,
            programs=tuple(lot),
            devices=tuple(sorted(own.intersection(d for each in lot for d in each.devices))),
        )
        for lot in lots.values()
    )


def stories_of(shared: Sequence[Shared], votes: Votes) -> Iterable[Story]:
    """The differences inside communicators; what several of them show alike is one story."""
    stories: dict[object, Story] = {}
    moved: set[object] = set()
    # Ops on another group first: on that one they are too many, and that is no other mistake. Then
    # those with a majority: who is out of line there is so where nobody can tell, too.
    for each in sorted(
        clashes(shared, votes), key=lambda each: (each.found.field != "members", each.odd is None)
    ):
        if each.found.field == "op" and not moved.isdisjoint(each.marks):
            continue
        if each.found.field == "members":
            moved.update(each.marks)
        add(stories, each)
    return stories.values()


def lacking(side: Side) -> int:
    """How many fields of its ops the side's evidence does not hold."""
    resolved = side.first.resolved
    key = ("lacking", side.set_ids)
    if (known := resolved.memo.get(key)) is None:
        fields = range(len(FIELDS))
        posted = steps(resolved, side.set_ids)
        unknown = sum(any(is_unknown(field, each) for each in posted) for field in fields)
        known = resolved.memo[key] = len(resolved.program.not_recorded) + unknown
    return int(known)


def explain(
    left: Side, right: Side, split: Collection[SubGroup]
) -> tuple[tuple[str, Difference], ...]:
    """Return code and difference of two sides: the first known one, or else all undecided fields.

    The answer depends on which sets hold the communicator, not on its members: it is kept.
    """
    key = ("explained", right.first.resolved, left.set_ids, right.set_ids, *moves(left, right))
    memo = left.first.resolved.memo
    if (known := memo.get(key)) is None:
        known = memo[key] = tuple(explained(left, right, split))
    return known


def moves(left: Side, right: Side) -> tuple[tuple[bool, ...], ...]:
    """Which sets of either program hold the side's first device: its ops may have moved there."""
    return tuple(
        tuple(side.devices[0] in each.by_device for each in side.first.resolved.sets)
        for side in (left, right)
    )


def explained(left: Side, right: Side, split: Collection[SubGroup]) -> list[tuple[str, Difference]]:
    """See `explain`."""
    ours, theirs = (steps(side.first.resolved, side.set_ids) for side in (left, right))
    programs = (left.first.resolved.program, right.first.resolved.program)
    unrecorded = programs[0].not_recorded | programs[1].not_recorded
    ignored = {number for number, name in enumerate(FIELDS) if name in unrecorded}
    found = None if "kind" in unrecorded else first_difference(ours, theirs, ignored)
    if found is not None:
        found = or_moved(found, left, right, split)
        return [(code_of(found.field), found)]
    if left.digest is None or right.digest is None:
        return [("RM308", Difference(field="members", at=0, left=None, right=None))]
    if "kind" in unrecorded:  # like a NEFF, which says who communicates and not what
        first, second = (next(iter(posted), None) for posted in (ours, theirs))
        return [("RM706", Difference(field="kind", at=0, left=first, right=second))]
    return [
        ("RM706", Difference(field=name, at=0, left=one, right=other))
        for name, (one, other) in undecided_fields(ours, theirs).items()
    ]


def add(stories: dict[object, Story], clash: Clash) -> None:
    """Put the difference of two sides into its story."""
    code, found, odd = clash.code, clash.found, clash.odd
    if odd is None and clash.shows_elsewhere:
        odd = next((n for n in (0, 1) if (code, found.field, clash.cause(n)) in stories), None)
    severity = Severity.WARNING if code == "RM706" else None
    new = Story(code=code, field=found.field, count=found.count, severity=severity)
    story = stories.setdefault((code, found.field, clash.cause(odd)), new)
    story.operand = clash.operand
    for holding, devices in zip(clash.holdings(odd), clash.voters, strict=True):
        story.add(holding, devices)
