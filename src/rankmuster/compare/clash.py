"""Two sides of one communicator and where they first differ: what each holds, who is at fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rankmuster.compare.alignment import Difference
from rankmuster.compare.shared import Side
from rankmuster.compare.steps import FIELDS, MEMBERS, TRIPS, Step, collectives, place_of, steps
from rankmuster.compare.story import Holding, describe_fully, value_of
from rankmuster.compare.votes import Votes, is_decided
from rankmuster.group import SubGroup
from rankmuster.signature.canonical import set_digest


@dataclass(frozen=True, kw_only=True)
class Clash:
    """The difference `found`, of a finding `code`, between two sides of a communicator."""

    code: str
    members: SubGroup
    sides: tuple[Side, Side]
    found: Difference
    votes: Votes

    @property
    def both(self) -> tuple[Step | None, Step | None]:
        """The step of each side that differs."""
        return (self.found.left, self.found.right)

    @property
    def shows_elsewhere(self) -> bool:
        """Whether one mistake in one program may show on several communicators."""
        return self.found.field in {"members", "trips"}

    @cached_property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The sets of each side whose other members may vote: that of the op, or all of these.

        A side that lacks an op votes by the set that holds it on the other side.
        """
        ordinal = next((step.values[MEMBERS][0] for step in self.both if step), None)
        return tuple(
            (step.token.group,)
            if step
            else side.set_ids
            if ordinal is None
            else side.set_ids[ordinal : ordinal + 1]
            for side, step in zip(self.sides, self.both, strict=True)
        )

    @cached_property
    def voters(self) -> list[frozenset[int]]:
        """The devices that speak for each side.

        For a side that lacks an op only those who run its very program do: the op may be meant for
        these few members alone, and others, who lack it too, know nothing of that.
        """
        weighed = self.votes.weigh(list(zip(self.sides, self.sets, strict=True)))
        return [
            voters & side.runners
            if step is None and self.found.field == "op" and len(voters) > len(side.devices)
            else voters
            for side, step, voters in zip(self.sides, self.both, weighed, strict=True)
        ]

    @property
    def odd(self) -> int | None:
        """The side that a majority is against; None on a tie."""
        if not is_decided(self.voters):
            return None
        return 0 if len(self.voters[0]) < len(self.voters[1]) else 1

    def cause(self, odd: int | None) -> object:
        """What two communicators have in common if they show the same cause.

        The same op of the same set; of a loop, whose count it is; and of ops on the wrong group,
        the same op of the program that is out of line, or on a tie of both.
        """
        marks = [self.mark(number) for number in range(2)]
        if self.shows_elsewhere and odd is not None and marks[odd]:
            return marks[odd]
        if self.shows_elsewhere and all(marks):
            return frozenset(marks)
        names = {
            set_digest(side.first.resolved, number)
            for side, numbers in zip(self.sides, self.sets, strict=True)
            for number in numbers
        }
        return (self.found.at, frozenset(names))

    @property
    def marks(self) -> list[tuple[int, Any]]:
        """The marks of the sides that have a step there."""
        return [mark for number in range(2) if (mark := self.mark(number))]

    def mark(self, number: int) -> tuple[int, Any] | None:
        """What tells a mistake in one program, whichever communicator shows it."""
        side, step = self.sides[number], self.both[number]
        if step is None:
            return None
        own = step.token.index
        if self.found.field == "trips":  # the count of the loop that differs, of those around it
            own = next(iter(step.values[TRIPS][self.entry or 0 :]), 1)
        return (side.first.number, own)

    @cached_property
    def entry(self) -> int | None:
        """Where the field is a list: the first operand, or loop, in which both differ."""
        field = self.found.field
        if field not in {"elements", "dtype", "trips"} or None in self.both:
            return None
        ours, theirs = (step.values[FIELDS.index(field)] for step in self.both if step)
        if len(ours) != len(theirs) or len(ours) == 1:
            return None
        return next(n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)

    @property
    def operand(self) -> int:
        """The operand that differs, 0 of a field that operands do not have."""
        return 0 if self.found.field == "trips" else self.entry or 0

    def holdings(self, odd: int | None) -> Iterator[Holding]:
        """What each side holds."""
        for number, value in enumerate(self.values(odd)):
            side, step = self.sides[number], self.both[number]
            gap = 0 if step else self.gap(number)
            yield Holding(value=value, step=step, first=side.first, gap=gap)

    def values(self, odd: int | None) -> list[Any]:
        """The value of each side in the field that differs."""
        if self.found.field == "members":
            return [self.group_of(number, odd) for number in range(2)]
        values = [value_of(self.found.field, step) for step in self.both]
        if self.entry is not None:
            values = [value[self.entry] for value in values]
        if values[0] == values[1]:
            values = [describe_fully(step) for step in self.both if step]
        return values

    def group_of(self, number: int, odd: int | None) -> Any:
        """The members that a side's op runs on; of the majority, where it puts the odd device."""
        side, step = self.sides[number], self.both[number]
        if step is None and not side.digest:
            return None
        each = side.first.resolved.sets[step.token.group if step else side.set_ids[0]]
        if self.found.is_ordinal:
            return {"members": list(self.members), "ordinal": side.set_ids.index(each.id)}
        if each.pairs is not None:
            return [list(pair) for pair in each.pairs]
        if odd is not None and number != odd:
            return list(each.by_device.get(self.sides[odd].devices[0], self.members))
        return list(each.by_device.get(side.devices[0], self.members))

    def gap(self, number: int) -> int:
        """The place in a side's program where an op that it lacks would stand.

        As far on as in the other program, but between the ops around it on the communicator.
        """
        side, at = self.sides[number], self.found.at
        other, step = self.sides[1 - number], self.both[1 - number]
        posted = steps(side.first.resolved, side.set_ids)
        every = collectives(side.first.resolved)
        last = every[-1].index + 1 if every else 0
        far = place_of(other.first.resolved, step.token) if step else 0
        place = every[far].index if far < len(every) else last
        first = posted[at - 1].token.index + 1 if at else 0
        return max(first, min(place, posted[at].token.index if at < len(posted) else last))
