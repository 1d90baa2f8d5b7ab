"""The sides of one communicator, explained: the first difference of each from the reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rankmuster.compare.alignment import Difference, first_difference
from rankmuster.compare.membership import moved
from rankmuster.compare.shared import Shared, Side
from rankmuster.compare.steps import FIELDS, TRIPS, Step, is_unknown, steps, undecided_fields
from rankmuster.compare.story import Holding, Story, code_of, collectives, place_of, value_of
from rankmuster.compare.votes import Votes, is_decided
from rankmuster.finding import Severity
from rankmuster.group import SubGroup
from rankmuster.signature.canonical import set_digest

EXPLAINED = 64
"""Of so many sides of one communicator the difference is looked for; where nobody agrees with
anybody, more would say no more.
"""


def stories_of(
    shared: Shared, votes: Votes, split: Collection[SubGroup], stories: dict[object, Story]
) -> None:
    """Add what the sides of *shared* differ in to *stories*, where other communicators may have it.

    *split* are the member lists of all communicators with several sides.
    Every side is compared with the reference: the largest of those whose evidence lacks least.
    """
    reference = max(shared.sides, key=lambda side: (-lacking(side), len(side.devices)))
    for other in shared.sides[:EXPLAINED]:
        if other is not reference:
            for found in explain(reference, other, split):
                add(stories, shared, (reference, other), found, votes)


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
    found = first_difference(ours, theirs, ignored)
    if found is not None:
        found = moved(found, left, right, split)
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
    sets = [sets_in_question(side, step, found) for side, step in zip(sides, both, strict=True)]
    voters = votes.weigh(list(zip(sides, sets, strict=True)))
    odd = odd_side(voters) if found.field in {"members", "trips"} else None
    key = (code, found.field, *cause(sides, both, sets, odd, found))
    if odd is None and found.field == "members":
        odd, key = known_odd(sides, both, code, stories) or (odd, key)
    severity = Severity.WARNING if code == "RM706" else None
    new = Story(code=code, field=found.field, count=found.count, severity=severity)
    story = stories.setdefault(key, new)
    values = [held(found, side, step, shared) for side, step in zip(sides, both, strict=True)]
    if found.field == "members" and odd is not None and sets[1 - odd]:
        values[1 - odd] = expected(sides[1 - odd], sets[1 - odd][0], sides[odd], values[1 - odd])
    if (number := first_differing_entry(found)) is not None:
        story.operand = 0 if found.field == "trips" else number
        values = [value[number] for value in values]
    for number, (side, step) in enumerate(zip(sides, both, strict=True)):
        gap = 0 if step else gap_of(side, found, sides[1 - number])
        holding = Holding(value=values[number], step=step, first=side.first, gap=gap)
        story.add(holding, voters[number])


def known_odd(
    sides: tuple[Side, Side],
    both: tuple[Step | None, Step | None],
    code: str,
    stories: Mapping[object, Story],
) -> tuple[int, tuple[object, ...]] | None:
    """The side whose op another communicator has shown to be on the wrong group, and its key."""
    for odd, (side, step) in enumerate(zip(sides, both, strict=True)):
        key = (code, "members", side.first.number, step and step.token.index)
        if key in stories:
            return odd, key
    return None


def odd_side(voters: Sequence[frozenset[int]]) -> int | None:
    """Which of two sides the majority is against; None on a tie."""
    if not is_decided(voters):
        return None
    return 0 if len(voters[0]) < len(voters[1]) else 1


def expected(majority: Side, set_id: int, odd: Side, otherwise: Any) -> Any:
    """Where the majority's set puts the device that is out of line."""
    each = majority.first.resolved.sets[set_id]
    own = each.by_device.get(odd.devices[0]) if each.pairs is None else None
    return list(own) if own else otherwise


def gap_of(side: Side, found: Difference, other: Side) -> int:
    """The place in the side's program where an op that it lacks would stand.

    As far on as in the other program, but between the ops around it on the communicator.
    """
    posted, every = steps(side.first.resolved, side.set_ids), collectives(side.first.resolved)
    step = found.left or found.right
    number = place_of(other.first.resolved, step.token) if step else 0
    last = every[-1].index + 1 if every else 0
    place = every[number].index if number < len(every) else last
    first = posted[found.at - 1].token.index + 1 if found.at else 0
    return max(first, min(place, posted[found.at].token.index if found.at < len(posted) else last))


def sets_in_question(side: Side, step: Step | None, found: Difference) -> tuple[int, ...]:
    """The sets whose other members may vote: that of the op, or those of the communicator.

    That all others lack an op is no vote for those who lack it: it may be for these few only.
    """
    if step is not None:
        return (step.token.group,)
    return () if found.field == "op" else side.set_ids


def cause(
    sides: tuple[Side, Side],
    both: tuple[Step | None, Step | None],
    sets: Sequence[tuple[int, ...]],
    odd: int | None,
    found: Difference,
) -> tuple[object, ...]:
    """What two communicators have in common if they show the same cause.

    The same op of the same set; of a loop, whose count it is; and of ops on the wrong group, the
    same op of the program that is out of line.
    """
    if odd is not None and (step := both[odd]) is not None:
        own = step.values[TRIPS] if found.field == "trips" else step.token.index
        return (sides[odd].first.number, own)
    names = (
        frozenset(set_digest(side.first.resolved, number) for number in numbers)
        for side, numbers in zip(sides, sets, strict=True)
    )
    return (found.at, frozenset().union(*names))


def first_differing_entry(found: Difference) -> int | None:
    """Where a field is a list: the first operand, or loop, in which both differ."""
    if found.field not in {"elements", "dtype", "trips"} or not found.left or not found.right:
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
