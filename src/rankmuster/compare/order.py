"""Order across communicators: what two of them share, they take turns alike on every device.

Each communicator may agree by itself while two processes enter two of them the other way round:
each then waits for the other (RM307).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

from rankmuster.compare.shared import Shared, Side
from rankmuster.compare.steps import Step, steps
from rankmuster.compare.story import Holding, Story, describe_fully, describe_on
from rankmuster.compare.votes import Votes, is_decided
from rankmuster.copies import ProgramClass
from rankmuster.group import SubGroup
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import tokens

Meeting = dict[int, list[int]]  # program number -> its devices that are on both communicators


def crossed(shared: Sequence[Shared], votes: Votes) -> Iterable[Story]:
    """A story for each program that takes turns in another way than those it runs with."""
    stories: dict[object, tuple[int, Story]] = {}
    for one, other, devices in meetings(shared):
        for programs in agreeing(one, other, devices):
            sides = sides_by_turns(programs, one.members, other.members, devices)
            if len(sides) > 1:
                tell_crossing((one.members, other.members), sides, votes, stories)
    return [story for _, story in stories.values()]


def meetings(shared: Sequence[Shared]) -> Iterator[tuple[Shared, Shared, Meeting]]:
    """Every two communicators on which devices of several programs meet, if both are used."""
    runs = {
        d: p.number for each in shared for s in each.sides for p in s.programs for d in p.devices
    }
    holds: dict[int, list[int]] = {}
    for number, each in enumerate(shared):
        if any(steps(side.first.resolved, side.set_ids) for side in each.sides):
            for device in set(each.members) & runs.keys():
                holds.setdefault(device, []).append(number)
    met: dict[tuple[int, int], Meeting] = {}
    for device, numbers in sorted(holds.items()):
        for pair in combinations(numbers, 2):
            met.setdefault(pair, {}).setdefault(runs[device], []).append(device)
    for (one, other), devices in met.items():
        if len(devices) > 1:
            yield shared[one], shared[other], devices


def agreeing(one: Shared, other: Shared, devices: Meeting) -> Iterator[list[ProgramClass]]:
    """The programs that meet, in lots that hold the same on both; others differ there already."""
    for here in one.sides:
        for there in other.sides:
            if here.digest and there.digest:
                numbers = {program.number for program in there.programs} & devices.keys()
                yield [program for program in here.programs if program.number in numbers]


def sides_by_turns(
    programs: Iterable[ProgramClass], one: SubGroup, other: SubGroup, devices: Meeting
) -> list[Side]:
    """Sort programs by how they take turns on two communicators."""
    alike: dict[tuple[Any, ...], list[ProgramClass]] = {}
    for program in programs:
        alike.setdefault(turns(program.resolved, one, other), []).append(program)
    return [
        Side(
            digest=None,
            programs=tuple(group),
            set_ids=tuple(dict.fromkeys(sets_of(group[0].resolved, one, other))),
            devices=tuple(sorted(d for program in group for d in devices[program.number])),
        )
        for group in alike.values()
    ]


def sets_of(resolved: Resolved, one: SubGroup, other: SubGroup) -> tuple[int, ...]:
    """The sets of both communicators, those of *one* first."""
    return (*resolved.sets_by_members[one], *resolved.sets_by_members[other])


def turns(resolved: Resolved, one: SubGroup, other: SubGroup) -> tuple[Any, ...]:
    """Whose turn it is, op by op, and in which of the loops and branches around both."""
    first, second = resolved.sets_by_members[one], resolved.sets_by_members[other]
    key = ("turns", first, second)
    if (known := resolved.memo.get(key)) is None:
        known = resolved.memo[key] = tuple(
            (step.token.group in first, step.values[-1])
            for step in joint_steps(resolved, (*first, *second))
        )
    return known


def joint_steps(resolved: Resolved, set_ids: tuple[int, ...]) -> Sequence[Step]:
    """The steps on all these sets, in program order."""
    ids = tuple(sorted(set(set_ids)))
    if not is_flat(resolved):
        return steps(resolved, ids)
    # Merging what is known is much faster than going through the whole program for each pair.
    merged = [step for each in ids for step in steps(resolved, (each,))]
    return sorted(merged, key=lambda step: step.token.index)


def is_flat(resolved: Resolved) -> bool:
    """Whether the program has neither loops nor branches."""
    if (known := resolved.memo.get("flat")) is None:
        known = resolved.memo["flat"] = all(token.op for token in tokens(resolved))
    return bool(known)


def tell_crossing(
    pair: tuple[SubGroup, SubGroup],
    sides: Sequence[Side],
    votes: Votes,
    stories: dict[object, tuple[int, Story]],
) -> None:
    """Tell of a side the first place where its turns differ; the earliest for each program."""
    voters = votes.weigh([(side, side.set_ids) for side in sides])
    reference = max(range(len(sides)), key=lambda number: len(voters[number]))
    for number, side in enumerate(sides):
        if number == reference:
            continue
        both = ((sides[reference], voters[reference]), (side, voters[number]))
        left, right = first_other_turn(pair, sides[reference], side)
        index = right.token.index
        decided = is_decided([devices for _, devices in both])
        key = side.first.number if decided else frozenset(s.first.number for s, _ in both)
        known = stories.get(key)
        if known is None or index < known[0]:
            stories[key] = known = (index, Story(code="RM307", field="order"))
        if index == known[0]:
            values = [describe_on(step) for step in (left, right)]
            if values[0] == values[1]:
                values = [describe_fully(step) for step in (left, right)]
            for (each, devices), step, value in zip(both, (left, right), values, strict=True):
                known[1].add(Holding(value=value, step=step, first=each.first), devices)


def first_other_turn(pair: tuple[SubGroup, SubGroup], left: Side, right: Side) -> tuple[Step, Step]:
    """The first steps of both that are not the same turn."""
    ours, theirs = (turns(side.first.resolved, *pair) for side in (left, right))
    place = next(n for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
    first, second = (
        joint_steps(side.first.resolved, sets_of(side.first.resolved, *pair))[place]
        for side in (left, right)
    )
    return first, second
