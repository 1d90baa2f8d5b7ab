"""The sends and receives of one program, by directed edge: what each end lists, in order.

On a replica group an op names its peer; on a pairs set a device sends to its targets and receives
from its sources. Knows one program and the devices that run it, never the other end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from rankmuster.finding import OpRef
from rankmuster.group import SubGroup
from rankmuster.program import POINT_TO_POINT, Branch, Loop, Op, OpKind
from rankmuster.resolve import Resolved
from rankmuster.signature.places import events
from rankmuster.wording import reference, whereabouts

UNROLLED = 4096
"""Up to so many messages on an edge loops are unrolled to pair them; more are compared as loops."""


class Around(NamedTuple):
    """A loop (body -1) or the body of a branch around an op; `number` is its own in the program."""

    number: int
    trips: int | None
    body: int


@dataclass(frozen=True, slots=True, eq=False)
class Post:
    """A send or receive as it stands in the program, inside the loops and branches of `around`.

    It is the program's send, or receive, number `count`, from 1.
    """

    resolved: Resolved
    op: Op
    set_id: int
    index: int
    in_group: int
    count: int
    around: tuple[Around, ...]

    @property
    def where(self) -> str:
        """Where the op stands, as messages say it."""
        return whereabouts(self.resolved.program, self.ref, self.op.label)

    @property
    def ref(self) -> OpRef:
        """Where the op stands, for a finding."""
        return reference(self.op, self.index, self.in_group)


class Edge(NamedTuple):
    """One direction between two devices on one communicator, for messages of one label.

    `communicator` is a number that `Numbered` gave to the member list.
    """

    communicator: int
    source: int
    target: int
    label: str | None


class Numbered:
    """Numbers for member lists, equal for equal lists; each list object is hashed only once."""

    def __init__(self) -> None:
        self.members: list[SubGroup] = []
        self._by_content: dict[SubGroup, int] = {}
        self._by_id: dict[int, tuple[int, SubGroup]] = {}  # with the list: it keeps its id taken

    def number(self, members: SubGroup) -> int:
        """The number of a member list."""
        if (known := self._by_id.get(id(members))) is None:
            number = self._by_content.setdefault(members, len(self.members))
            if number == len(self.members):
                self.members.append(members)
            known = self._by_id[id(members)] = (number, members)
        return known[0]


class Message(NamedTuple):
    """One message of a sequence: what must be equal at both ends, and the op that posts it."""

    content: tuple[Any, ...]
    post: Post


Lane = tuple[int, OpKind, int | None, str | None]  # set id, kind, peer, label


def posts(resolved: Resolved) -> tuple[Post, ...]:
    """Every send and receive of the program in signing order."""
    if (known := resolved.memo.get("posts")) is None:
        known = resolved.memo["posts"] = tuple(walk(resolved))
    return known


def walk(resolved: Resolved) -> Iterator[Post]:
    """See `posts`."""
    around: list[Around] = []
    index, number, in_group, kinds = 0, 0, Counter[int](), Counter[OpKind]()
    for event in events(resolved.program.ops):
        match event:
            case Op():
                set_id = resolved.set_id(event)
                if event.kind in POINT_TO_POINT:
                    kinds[event.kind] += 1
                    yield Post(
                        resolved,
                        event,
                        set_id,
                        index,
                        in_group[set_id],
                        kinds[event.kind],
                        tuple(around),
                    )
                index += event.places
                in_group[set_id] += event.places
            case Loop() | Branch():
                trips = event.trips if isinstance(event, Loop) else None
                around.append(Around(number, trips, 0 if isinstance(event, Branch) else -1))
                number += 1
            case "next":
                around[-1] = around[-1]._replace(body=around[-1].body + 1)
            case "end":
                around.pop()


def lanes(resolved: Resolved) -> dict[Lane, list[Post]]:
    """The posts of the program by what decides which edges they are on."""
    if (known := resolved.memo.get("lanes")) is None:
        known = resolved.memo["lanes"] = {}
        for post in posts(resolved):
            lane = (post.set_id, post.op.kind, post.op.peer, post.op.label)
            known.setdefault(lane, []).append(post)
    return known


def edges(
    resolved: Resolved, devices: Iterable[int], kind: OpKind, numbered: Numbered
) -> dict[Edge, tuple[Lane, ...]]:
    """The edges that *devices* send on (or receive on), each with the lanes that do so.

    A peer outside the sub-group still makes an edge; nobody is at its other end.
    """
    own = frozenset(devices)
    found: dict[Edge, tuple[Lane, ...]] = {}
    for lane in lanes(resolved):
        if lane[1] is kind:
            alone = (lane,)
            for edge in lane_edges(resolved, lane, own, numbered):
                known = found.get(edge)
                found[edge] = alone if known is None else known + alone
    return found


def lane_edges(
    resolved: Resolved, lane: Lane, own: frozenset[int], numbered: Numbered
) -> Iterator[Edge]:
    """The edges of one lane that start (or, for a receive, end) at one of *own*."""
    set_id, kind, peer, label = lane
    each, is_send = resolved.sets[set_id], kind is OpKind.SEND
    for source, target in each.pairs or ():
        if (source if is_send else target) in own:
            yield Edge(numbered.number(each.by_device[source]), source, target, label)
    if each.pairs is None and peer is not None:
        for device in own & each.by_device.keys():
            ends = (device, peer) if is_send else (peer, device)
            yield Edge(numbered.number(each.by_device[device]), *ends, label)


def sequence(resolved: Resolved, through: Iterable[Lane]) -> tuple[Message, ...]:
    """The messages that these lanes post, in order, loops unrolled where that says it all.

    A branch, a loop of unknown count or too many messages leave one message per place in the text,
    told with the loops and branches around it.
    """
    chosen = tuple(dict.fromkeys(through))
    if (known := resolved.memo.get(("sequence", chosen))) is None:
        table = lanes(resolved)
        placed = sorted(
            (post for lane in chosen for post in table[lane]), key=lambda post: post.index
        )
        known = unrolled(placed)
        known = resolved.memo["sequence", chosen] = as_written(placed) if known is None else known
    return known


def unrolled(placed: list[Post]) -> tuple[Message, ...] | None:
    """Every message that is sent; None where that cannot be told or is too much.

    Goes from the innermost loops outwards, so that nesting costs time, not stack.
    """
    lots = [(post.around, [post]) for post in placed]
    while depth := max((len(around) for around, _ in lots), default=0):
        merged = []
        for around, group in groupby(lots, key=itemgetter(0)):
            sent = [post for _, part in group for post in part]
            if len(around) == depth:
                trips = around[-1].trips
                if trips is None or trips * len(sent) > UNROLLED:
                    return None
                sent *= trips
            merged.append((around[: depth - 1], sent))
        lots = merged
    return tuple(Message(content(post.op), post) for _, sent in lots for post in sent)


def content(op: Op) -> tuple[Any, ...]:
    """What must be equal at both ends of a message."""
    return (op.elements, op.dtype)


def as_written(placed: list[Post]) -> tuple[Message, ...]:
    """One message per place, with its loops and branches by number of appearance."""
    numbers: dict[int, int] = {}
    return tuple(
        Message(
            (
                *content(post.op),
                tuple(
                    (numbers.setdefault(each.number, len(numbers)), each.trips, each.body)
                    for each in post.around
                ),
            ),
            post,
        )
        for post in placed
    )
