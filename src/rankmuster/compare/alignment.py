"""Where two postings first differ, and how: another field, another order, or an op too many.

Aligns by content, then counts: equal ends are set aside, and from the first difference on the
nearest place where both go on alike decides. Time grows with the length, memory does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rankmuster.compare.steps import FIELDS, ORDER, TRIPS, Step, alike, differs, is_unknown

REACH = 32  # how many ops ahead a place is sought where both sides go on alike
WINDOW = 3  # so many ops in a row must agree there; fewer only where that finds none


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference of two postings, at step `at` of both.

    `field` is one of FIELDS, or "op" where `count` ops stand on one side only; `left` and `right`
    are the steps there, None on the side that lacks them.
    """

    field: str
    at: int
    left: Step | None
    right: Step | None
    count: int = 1

    @property
    def is_ordinal(self) -> bool:
        """Whether both post on the same members, but on another of several sets with these."""
        if self.field != "members" or self.left is None or self.right is None:
            return False
        return bool(self.left.values[1][0] != self.right.values[1][0])


def first_difference(
    left: Sequence[Step], right: Sequence[Step], ignored: Collection[int] = ()
) -> Difference | None:
    """Compare two postings; None where nothing that both sides know differs.

    The loops and branches around an op only count where nothing else differs: one other count, or
    an op too few, changes what is around many ops, and would pass for another difference.
    """
    return (
        aligned(left, right, {*ignored, ORDER, TRIPS})
        or aligned(left, right, {*ignored, ORDER})
        or aligned(left, right, ignored)
    )


def aligned(
    left: Sequence[Step], right: Sequence[Step], ignored: Collection[int]
) -> Difference | None:
    """See `first_difference`; just by the fields that are not ignored."""
    at = next(
        (
            place
            for place, (ours, theirs) in enumerate(zip(left, right, strict=False))
            if not alike(ours, theirs, ignored)
        ),
        min(len(left), len(right)),
    )
    ours, theirs = strip_equal_ends(left[at:], right[at:], ignored)
    if not ours and not theirs:
        return None
    if not ours or not theirs:
        return one_sided(left, right, at, (len(ours), len(theirs)), ignored)
    if same_ops(ours, theirs, ignored):
        return Difference(field="order", at=at, left=ours[0], right=theirs[0])
    skip_ours, skip_theirs = resume(ours, theirs, ignored)
    if not skip_ours or not skip_theirs:
        return one_sided(left, right, at, (skip_ours, skip_theirs), ignored)
    if same_ops(ours[:skip_ours], theirs[:skip_theirs], ignored):
        return Difference(field="order", at=at, left=ours[0], right=theirs[0])
    return Difference(
        field=differing_field(ours[0], theirs[0], ignored), at=at, left=ours[0], right=theirs[0]
    )


def strip_equal_ends(
    left: Sequence[Step], right: Sequence[Step], ignored: Collection[int]
) -> tuple[Sequence[Step], Sequence[Step]]:
    """Both without what they end in alike."""
    equal = 0
    while equal < min(len(left), len(right)) and alike(
        left[-1 - equal], right[-1 - equal], ignored
    ):
        equal += 1
    return left[: len(left) - equal], right[: len(right) - equal]


def one_sided(
    left: Sequence[Step],
    right: Sequence[Step],
    at: int,
    skips: tuple[int, int],
    ignored: Collection[int],
) -> Difference:
    """Ops that one side posts alone, around *at*; *skips* says how many each does, one none."""
    longer, shorter = (left, right) if skips[0] else (right, left)
    at = likeliest(longer, shorter, at, max(skips), ignored)
    extra = longer[at]
    return Difference(
        field="op",
        at=at,
        left=extra if skips[0] else None,
        right=None if skips[0] else extra,
        count=max(skips),
    )


def likeliest(
    longer: Sequence[Step], shorter: Sequence[Step], at: int, count: int, ignored: Collection[int]
) -> int:
    """Where the *count* ops too many stand, of all places up to *at* that fit: by their names.

    Of ops in a row that say the same, any may be the one that the other side lacks.
    """
    best, score, most = at, 0, 0
    while at and alike(longer[at - 1 + count], shorter[at - 1], ignored):
        at -= 1
        score += resemblance(longer[at + count], shorter[at]) - resemblance(longer[at], shorter[at])
        if score > most:
            best, most = at, score
    return best


def resemblance(one: Step, other: Step) -> int:
    """How many of label, name and source two ops have in common."""
    ours, theirs = one.token.op, other.token.op
    assert ours is not None
    assert theirs is not None
    pairs = ((getattr(ours, each), getattr(theirs, each)) for each in ("label", "name", "source"))
    return sum(bool(mine) and mine == other for mine, other in pairs)


def differing_field(left: Step, right: Step, ignored: Collection[int]) -> str:
    """The first of FIELDS in which two steps that are not alike differ."""
    numbers = range(len(FIELDS))
    return next(FIELDS[n] for n in numbers if n not in ignored and differs(n, left, right))


def same_ops(left: Sequence[Step], right: Sequence[Step], ignored: Collection[int]) -> bool:
    """Whether both post the same ops, whatever their order."""
    if len(left) != len(right):
        return False
    unknown = {
        field
        for field in range(len(FIELDS))
        if field in ignored or any(is_unknown(field, each) for each in (*left, *right))
    }
    return contents(left, unknown) == contents(right, unknown)


def contents(posting: Sequence[Step], unknown: Collection[int]) -> Counter[tuple[Any, ...]]:
    """How often each op is posted, told by the fields that are known on both sides."""
    return Counter(
        tuple(value for field, value in enumerate(each.values) if field not in unknown)
        for each in posting
    )


def resume(
    left: Sequence[Step], right: Sequence[Step], ignored: Collection[int]
) -> tuple[int, int]:
    """How many ops to skip on each side so that both go on alike; (1, 1) if nothing near does.

    The nearest place where WINDOW ops in a row agree, or else where most do.
    """
    best, longest = (1, 1), 0
    for skip_left, skip_right in skips():
        ours, theirs = left[skip_left : skip_left + WINDOW], right[skip_right : skip_right + WINDOW]
        run = 0
        for one, other in zip(ours, theirs, strict=False):
            if not alike(one, other, ignored):
                break
            run += 1
        if run == WINDOW:
            return skip_left, skip_right
        if run > longest:
            best, longest = (skip_left, skip_right), run
    return best


def skips() -> Iterator[tuple[int, int]]:
    """How many ops to leave out on each side, the likeliest first: one changed, then the least."""
    yield 1, 1
    for total in range(1, REACH):
        for skip_left in range(total, -1, -1):
            if (skip_left, total - skip_left) != (1, 1):
                yield skip_left, total - skip_left
