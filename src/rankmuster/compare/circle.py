"""Processes that agree on every communicator and yet wait for each other in a circle (RM503).

Device 0 enters 0,1 and then 2,0; device 1 enters 1,2 and then 0,1; device 2 enters 2,0 and then
1,2. No two of them share two communicators, so none takes turns otherwise than another (RM307);
all the same each waits for the next one. The programs are run here, each op once however often its
loop turns: who cannot enter an op the first time never will.

Only what blocks all of its members counts, so no exchange on pairs, and no program with branches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from rankmuster.copies import ProgramClass
from rankmuster.finding import Finding, Value, finding
from rankmuster.program import Op
from rankmuster.ranks import fold
from rankmuster.signature.canonical import BRANCH, Token, tokens
from rankmuster.wording import describe, reference, whereabouts

MOST_STEPS = 1 << 22  # of all devices, where those alike cannot stand for each other
SHOWN = 4  # devices of a circle that the message tells of
NONE = -1
Node = tuple[int, int]  # a communicator by its number, and which of its ops, from 0
Actor = TypeVar("Actor", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What the devices of one program enter: `posted` in order, each on the set at `places`.

    `rows` have the number of each device's communicator on every set that is used, or `NONE`.
    """

    program: ProgramClass
    posted: tuple[Token, ...]
    places: tuple[int, ...]
    rows: Mapping[int, tuple[int, ...]]


def circle(programs: Sequence[ProgramClass]) -> Finding | None:
    """What one circle of devices waits for; None where there is none, or nobody can tell.

    The programs must agree on every communicator that they share.
    """
    if any(_may_skip(token) for each in programs for token in tokens(each.resolved)):
        return None
    numbers: dict[tuple[int, ...], int] = {}
    courses = [_course(each, numbers) for each in programs]
    by_kind = _by_kind(courses)
    steps = sum(len(each.rows) * len(each.posted) for each in courses)
    if steps > MOST_STEPS or (by_kind is not None and not stuck(by_kind)):
        return None
    turns = {d: nodes(each.places, row) for each in courses for d, row in each.rows.items()}
    waits = {device: turns[device][at] for device, at in stuck(turns).items()}
    around = _around(waits, list(numbers))
    return _tell(around, waits, courses, list(numbers)) if around else None


def stuck(turns: Mapping[Actor, Sequence[Node]]) -> dict[Actor, int]:
    """Run all, who enter nodes in order and leave each together: how far those come who stay."""
    needed = Counter(node for mine in turns.values() for node in mine)
    arrived: defaultdict[Node, list[Actor]] = defaultdict(list)
    at = dict.fromkeys(turns, 0)
    ready = list(turns)
    while ready:
        actor = ready.pop()
        if at[actor] == len(turns[actor]):
            del at[actor]
            continue
        node = turns[actor][at[actor]]
        arrived[node].append(actor)
        if len(arrived[node]) == needed[node]:
            ready += arrived[node]
            at.update((each, at[each] + 1) for each in arrived.pop(node))
    return at


def nodes(places: Sequence[int], row: Sequence[int]) -> list[Node]:
    """What a device enters whose communicators are *row*, in order."""
    seen: Counter[int] = Counter()
    found = []
    for communicator in (row[place] for place in places):
        if communicator != NONE:
            found.append((communicator, seen[communicator]))
            seen[communicator] += 1
    return found


def _may_skip(token: Token) -> bool:
    """Whether ops behind this may not run at all."""
    return token == BRANCH or token.key == ("loop", 0)


def _course(program: ProgramClass, numbers: dict[tuple[int, ...], int]) -> Course:
    sets = program.resolved.sets
    posted = tuple(
        token
        for token in tokens(program.resolved)
        if token.op is not None and sets[token.group].kind == "replica_groups"
    )
    used = list(dict.fromkeys(token.group for token in posted))
    known = {
        id(members): numbers.setdefault(members, len(numbers)) if len(members) > 1 else NONE
        for each in used
        for members in sets[each].members
    }
    rows = {
        device: tuple([known.get(id(sets[each].by_device.get(device)), NONE) for each in used])
        for device in program.devices
    }
    place = {group: number for number, group in enumerate(used)}
    places = tuple([place[token.group] for token in posted])
    return Course(program=program, posted=posted, places=places, rows=rows)


def _by_kind(courses: Sequence[Course]) -> dict[Hashable, list[Node]] | None:
    """What devices enter whose communicators join the same programs on the same sets, once for all.

    A circle of devices is one of these too, and they are few. None where a device is on two
    communicators that are alike.
    """
    uses: defaultdict[int, set[Node]] = defaultdict(set)
    for number, course in enumerate(courses):
        for row in course.rows.values():
            for place, communicator in enumerate(row):
                uses[communicator].add((number, place))
    known: dict[frozenset[Node], int] = {}
    kinds = {each: known.setdefault(frozenset(used), len(known)) for each, used in uses.items()}
    kinds[NONE] = NONE
    found: dict[Hashable, list[Node]] = {}
    for number, course in enumerate(courses):
        for row in set(course.rows.values()):
            alike = tuple([kinds[each] for each in row])
            if len(set(alike)) < len(set(row)):
                return None
            found[number, alike] = nodes(course.places, alike)
    return found


def _around(waits: Mapping[int, Node], members: Sequence[tuple[int, ...]]) -> list[int]:
    """One circle of devices each of which waits for the next, from the lowest on."""
    path: list[int] = []
    device = min(waits, default=None)
    while device is not None and device not in path:
        path.append(device)
        others = members[waits[device][0]]
        late = [each for each in others if each in waits and waits[each] != waits[device]]
        device = min(late, default=None)
    if device is None:
        return []
    around = path[path.index(device) :]
    first = around.index(min(around))
    return around[first:] + around[:first]


def _tell(
    around: Sequence[int],
    waits: Mapping[int, Node],
    courses: Sequence[Course],
    members: Sequence[tuple[int, ...]],
) -> Finding:
    course_of = {device: each for each in courses for device in around if device in each.rows}
    held = {device: _held(course_of[device], device, waits[device]) for device in around}
    told = {
        device: f"{describe(op)} on {fold(members[waits[device][0]])}"
        for device, (op, _) in held.items()
    }
    ways = [f"device {device}, which waits in {told[device]}," for device in around[1:SHOWN]]
    if len(around) > SHOWN:
        ways.append(f"{len(around) - SHOWN} more that wait likewise,")
    text = " for ".join((f"device {around[0]} waits in {told[around[0]]}", *ways))
    op, token = held[around[0]]
    ref = reference(op, token.index, token.in_group)
    where = whereabouts(course_of[around[0]].program.resolved.program, ref)
    return finding(
        "RM503",
        f"{text} for device {around[0]} again{where}",
        ranks=around,
        group=token.group,
        op=ref,
        field="order",
        values=tuple(Value(ranks=(device,), value=told[device]) for device in around),
    )


def _held(course: Course, device: int, node: Node) -> tuple[Op, Token]:
    """The op that is *node* for the device, and its token."""
    communicator, count = node
    row = course.rows[device]
    mine = (
        (token.op, token)
        for token, place in zip(course.posted, course.places, strict=True)
        if token.op is not None and row[place] == communicator
    )
    return next(islice(mine, count, None))
