"""The sides of one communicator, explained: the first difference of each from the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankmuster.compare.alignment import Difference, first_difference
from rankmuster.compare.membership import moved
from rankmuster.compare.shared import Shared, Side
from rankmuster.compare.steps import FIELDS, Step, is_unknown, steps, undecided_fields
from rankmuster.compare.story import Story, code_of, value_of
from rankmuster.compare.votes import Votes, is_decided
from rankmuster.finding import Severity
from rankmuster.signature.canonical import set_digest


def stories_of(shared: Shared, votes: Votes, stories: dict[object, Story]) -> None:
    """Add what the sides of *shared* differ in to *stories*, where other communicators may have it.

    Every side is compared with the reference: the largest of those whose evidence lacks least.
    """
    reference = max(shared.sides, key=lambda side: (-lacking(side), len(side.devices)))
    for other in shared.sides:
        if other is not reference:
            for found in explain(reference, other):
                add(stories, shared, (reference, other), found, votes)


def lacking(side: Side) -> int:
    """How many fields of its ops the side's evidence does not hold."""
    posted = steps(side.first.resolved, side.set_ids)
    return len(side.first.resolved.program.not_recorded) + len(
        {field for each in posted for field in range(len(FIELDS)) if is_unknown(field, each)}
    )


def explain(left: Side, right: Side) -> tuple[tuple[str, Difference], ...]:
    """Return code and difference of two sides: the first known one, or else all undecided fields.

    The answer depends on which sets hold the communicator, not on its members: it is kept.
    """
    key = ("explained", right.first.resolved, left.set_ids, right.set_ids, *moves(left, right))
    memo = left.first.resolved.memo
    if (known := memo.get(key)) is None:
        known = memo[key] = tuple(explained(left, right))
    return known


def moves(left: Side, right: Side) -> tuple[tuple[bool, ...], ...]:
    """Which sets of either program hold the side's first device: its ops may have moved there."""
    return tuple(
        tuple(side.devices[0] in each.by_device for each in side.first.resolved.sets)
        for side in (left, right)
    )


def explained(left: Side, right: Side) -> list[tuple[str, Difference]]:
    """See `explain`."""
    ours, theirs = (steps(side.first.resolved, side.set_ids) for side in (left, right))
    programs = (left.first.resolved.program, right.first.resolved.program)
    unrecorded = programs[0].not_recorded | programs[1].not_recorded
    ignored = {number for number, name in enumerate(FIELDS) if name in unrecorded}
    found = first_difference(ours, theirs, ignored)
    if found is not None:
        found = moved(found, left, right)
        return [(code_of(found.field), found)]
    if left.digest is None or right.digest is None:
        return [("RM308", Difference(field="members", at=0, left=None, right=None))]
    return [
        ("RM706", Difference(field=name, at=0, left=one, right=other))
        for name, (one, other) in undecided_fields(ours, theirs).items()
    ]


def add(
    stories: dict[object, Story],
    shared: Shared,
    sides: tuple[Side, Side],
    coded: tuple[str, Difference],
    votes: Votes,
) -> None:
    """Put the difference of two sides into its story."""
    code, found = coded
    both = (found.left, found.right)
    sets = [sets_in_question(side, step) for side, step in zip(sides, both, strict=True)]
    voters = votes.weigh(list(zip(sides, sets, strict=True)))
    key = (code, found.field, *cause(sides, both, sets, voters, found))
    story = stories.setdefault(key, Story(code=code, field=found.field, count=found.count))
    operand = first_differing_operand(found)
    for side, step, devices in zip(sides, both, voters, strict=True):
        value = held(found, side, step, shared)
        story.add(value if operand is None else value[operand], step, side.first, devices)
    story.operand = operand or 0
    if code == "RM706":
        story.severity = Severity.WARNING


def sets_in_question(side: Side, step: Step | None) -> tuple[int, ...]:
    """The sets whose other members may vote: that of the op, or those of the communicator."""
    return side.set_ids if step is None else (step.token.group,)


def cause(
    sides: tuple[Side, Side],
    both: tuple[Step | None, Step | None],
    sets: Sequence[tuple[int, ...]],
    voters: Sequence[frozenset[int]],
    found: Difference,
) -> tuple[object, ...]:
    """What two communicators have in common if they show the same cause.

    The same op of the same set; and of ops on the wrong group, the same op of the program that is
    out of line.
    """
    if found.field == "members" and is_decided(voters):
        odd = 0 if len(voters[0]) < len(voters[1]) else 1
        step = both[odd]
        return (sides[odd].first.number, step and step.token.index)
    names = (
        frozenset(set_digest(side.first.resolved, number) for number in numbers)
        for side, numbers in zip(sides, sets, strict=True)
    )
    return (found.at, frozenset().union(*names))


def first_differing_operand(found: Difference) -> int | None:
    """Of an op over several operands, the first that differs in elements or dtype."""
    if found.field not in {"elements", "dtype"} or not found.left or not found.right:
        return None
    ours, theirs = (step.values[FIELDS.index(found.field)] for step in (found.left, found.right))
    if len(ours) != len(theirs) or len(ours) == 1:
        return None
    return next(n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)


def held(found: Difference, side: Side, step: Step | None, shared: Shared) -> Any:
    """What the side holds in the field that differs."""
    if found.field != "members":
        return value_of(found.field, step)
    if step is None:
        return list(shared.members) if side.digest else None
    where = side.first.resolved.sets[step.token.group]
    if where.pairs is not None:
        return [list(pair) for pair in where.pairs]
    if where.id not in side.set_ids:
        return list(where.by_device[side.devices[0]])
    if found.is_ordinal:
        return {"members": list(shared.members), "ordinal": side.set_ids.index(where.id)}
    return list(shared.members)
