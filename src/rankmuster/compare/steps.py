"""What one program posts on one communicator, step by step, field by field.

A step is an op with the loops and branches around it. Two steps are compared by field, and a value
that the evidence does not hold is never a difference: it is *unknown*.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from rankmuster.program import REDUCING, OpKind
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import Token, posting_on, tokens

CODES = {
    "kind": "RM301",
    "members": "RM308",
    "elements": "RM302",
    "dtype": "RM303",
    "reduce": "RM304",
    "root": "RM305",
    "dimension": "RM305",
    "trips": "RM311",
    "order": "RM307",
}
"""What is compared of a step, the field that says most first, and the code of a difference."""

FIELDS = tuple(CODES)
MEMBERS, DTYPE, REDUCE, TRIPS, ORDER = map(
    FIELDS.index, ("members", "dtype", "reduce", "trips", "order")
)


class Step(NamedTuple):
    """One op of a posting; `values` are its fields in the order of FIELDS."""

    token: Token
    values: tuple[Any, ...]


class Enclosing(NamedTuple):
    """A loop or branch around an op: its number in the posting, and what of it encloses the op."""

    number: int
    trips: int | None  # of a loop
    body: int  # of a branch, from 0; -1 for a loop


def steps(resolved: Resolved, set_ids: tuple[int, ...]) -> tuple[Step, ...]:
    """The steps of the communicators that just these sets hold; none for no sets."""
    key = ("steps", set_ids)
    if (known := resolved.memo.get(key)) is None:
        known = resolved.memo[key] = tuple(walk(posting_on(resolved, set_ids)))
    return known


def walk(posting: Iterable[Token]) -> Iterable[Step]:
    """Fold the marks of loops and branches into the steps that they enclose."""
    around: list[Enclosing] = []
    number = 0
    for token in posting:
        match token.key[0]:
            case "op":
                yield step(token, around)
            case "end":
                around.pop()
            case "next":
                around[-1] = around[-1]._replace(body=around[-1].body + 1)
            case what:
                is_loop = what == "loop"
                trips = token.key[1] if is_loop else None
                around.append(Enclosing(number, trips, -1 if is_loop else 0))
                number += 1


def step(token: Token, around: list[Enclosing]) -> Step:
    """The step of an op inside the loops and branches of *around*, outermost first."""
    _, kind, elements, dtype, reduce, root, dimension, ordinal, pairs = token.key
    trips = tuple(each.trips for each in around if each.body < 0)
    place = tuple((each.number, each.body) for each in around)
    members = (ordinal, pairs)
    return Step(token, (kind, members, elements, dtype, reduce, root, dimension, trips, place))


def is_unknown(field: int, each: Step) -> bool:
    """Whether the evidence lacks this field of the step: a null, or an unknown type or count."""
    value = each.values[field]
    if field == REDUCE:
        return value is None and OpKind(each.values[0]) in REDUCING
    return (field == DTYPE and "unknown" in value) or (field == TRIPS and None in value)


def differs(field: int, left: Step, right: Step) -> bool:
    """Whether both steps hold a value in this field, and not the same one."""
    return (
        left.values[field] != right.values[field]
        and not is_unknown(field, left)
        and not is_unknown(field, right)
    )


def alike(left: Step, right: Step, ignored: Collection[int]) -> bool:
    """Whether nothing known differs; *ignored* fields are those that a side never records."""
    return left.values == right.values or not any(
        differs(field, left, right) for field in range(len(FIELDS)) if field not in ignored
    )


def undecided_fields(left: Iterable[Step], right: Iterable[Step]) -> dict[str, tuple[Step, Step]]:
    """Of postings without a known difference: fields that one side lacks, and where first."""
    found: dict[str, tuple[Step, Step]] = {}
    for ours, theirs in zip(left, right, strict=True):
        if ours.values != theirs.values:
            for field, one, other in zip(FIELDS, ours.values, theirs.values, strict=True):
                if one != other:
                    found.setdefault(field, (ours, theirs))
    return found


def collectives(resolved: Resolved) -> Sequence[Token]:
    """The tokens of the program that are ops."""
    if (known := resolved.memo.get("collectives")) is None:
        known = resolved.memo["collectives"] = [each for each in tokens(resolved) if each.op]
    return known


def place_of(resolved: Resolved, token: Token) -> int:
    """The token's number among the collectives of its program."""
    return bisect_left(collectives(resolved), token.index, key=lambda each: each.index)
