"""An op that seems missing on one communicator may have moved to another: find it there.

If one process builds its groups from another mesh, its ops are missing on one communicator and too
many on the next; the cause is one, the group (RM308).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rankmuster.compare.alignment import Difference
from rankmuster.compare.shared import Side
from rankmuster.compare.steps import Step, steps
from rankmuster.group import SubGroup
from rankmuster.signature.canonical import Token, tokens


def or_moved(found: Difference, left: Side, right: Side, split: Collection[SubGroup]) -> Difference:
    """The difference as one of group membership, where the lacking side posts the op elsewhere.

    Elsewhere is one of *split*, the communicators that are not agreed on: where all members post
    an op, it is at home. Or it is a set that leaves the device out, of a program that does not
    know the communicator at all.
    """
    if found.field != "op":
        return found
    ours, theirs = (steps(side.first.resolved, side.set_ids) for side in (left, right))
    count_left = found.count if found.left else 0
    count_right = found.count if found.right else 0
    step = found.left or found.right
    assert step is not None
    around_left = gap(ours, found.at, found.at + count_left, step)
    around_right = gap(theirs, found.at, found.at + count_right, step)
    here = list(elsewhere(left, around_left, step, split))
    there = list(elsewhere(right, around_right, step, split))
    if found.left and len(there) > len(here):
        return Difference(field="members", at=found.at, left=found.left, right=there[0])
    if found.right and len(here) > len(there):
        return Difference(field="members", at=found.at, left=here[0], right=found.right)
    return found


def gap(posting: Sequence[Step], start: int, end: int, step: Step) -> tuple[int, int]:
    """The places in the program between the last step that agrees and the next one.

    Of several like *step* in a row any may be the one that is missing: they are in the gap.
    """
    while start and content(posting[start - 1].token) == content(step.token):
        start -= 1
    before = posting[start - 1].token.index if start else -1
    after = posting[end].token.index if end < len(posting) else 1 << 62
    return before, after


def elsewhere(
    side: Side, around: tuple[int, int], step: Step, split: Collection[SubGroup]
) -> Iterator[Step]:
    """Ops like *step* inside the gap that this side's devices post on another communicator."""
    resolved, device = side.first.resolved, side.devices[0]
    for token in tokens(resolved):
        if (
            around[0] < token.index < around[1]
            and token.op is not None
            and token.group not in side.set_ids
            and content(token) == content(step.token)
            and is_there(side, resolved.sets[token.group].by_device.get(device), split)
        ):
            yield Step(token, step.values)


def is_there(side: Side, members: SubGroup | None, split: Collection[SubGroup]) -> bool:
    """Whether a device of the side may have put an op of the communicator on *members* instead."""
    return side.digest is None if members is None else members in split


def content(token: Token) -> tuple[Any, ...]:
    """What an op does, wherever it does it: its key without the set's ordinal and pairs."""
    return token.key[:-2]
