"""The two ends of directed edges: whether every message meets its like, and what if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from rankmuster.finding import Finding, Severity, Value, finding
from rankmuster.pairing.posts import Edge, Message, Numbered, content
from rankmuster.pairing.showing import shown
from rankmuster.pairing.strays import Stray, others_too
from rankmuster.program import OpKind
from rankmuster.wording import amount, who

Messages = tuple[Message, ...]


class Ends(NamedTuple):
    """What is sent and what is received on an edge; empty where nobody does."""

    sent: Messages
    received: Messages


def judge(ends: Ends, alike: list[Edge], numbered: Numbered) -> Finding | Stray | None:
    """How the two ends of these edges fail to meet; None if every message meets its like."""
    sent, received = ([message.content for message in end] for end in ends)
    if sent == received:
        return crossed_names(ends, alike)
    if (counts := other_loops(ends)) is not None:
        return looped(ends, alike, counts)
    if unclear(sent, received):
        return cannot_tell(ends, alike)
    if Counter(sent) == Counter(received):
        return crossed(ends, alike, first_other(sent, received))
    at = first_other(sent, received)
    if len(sent) == len(received):
        return mismatched(ends, alike, at)
    is_send = len(sent) > len(received)
    return Stray(
        edges=alike,
        members=numbered.members[alike[0].communicator],
        kind=OpKind.SEND if is_send else OpKind.RECV,
        message=(ends.sent if is_send else ends.received)[at],
        meets=(ends.received if is_send else ends.sent)[:at],
        sent=len(sent),
        received=len(received),
    )


def first_other(one: Sequence[object], other: Sequence[object]) -> int:
    """The first place at which two sequences differ, the end of the shorter at the latest."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def unclear(sent: Sequence[tuple[Any, ...]], received: Sequence[tuple[Any, ...]]) -> bool:
    """Whether loops hide how the messages meet: unknown counts, or other loops of as many."""
    if not any(map(loops, (*sent, *received))):
        return False
    totals = (total(sent), total(received))
    if None in totals:
        return {each[:2] for each in sent} == {each[:2] for each in received}
    return totals[0] == totals[1]


def places(each: tuple[Any, ...]) -> tuple[tuple[int, int | None, int], ...]:
    """The loops and branches around a message, by its content: number, trips and body.

    A message that was unrolled, or stands in none, has none.
    """
    return each[2] if len(each) > 2 else ()


def loops(each: tuple[Any, ...]) -> list[int | None]:
    """The counts of the loops around a message, by its content."""
    return [trips for _, trips, body in places(each) if body < 0]


def total(end: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]] | None:
    """How often each message is posted in each branch; None where a loop's count is unknown."""
    posted: Counter[tuple[Any, ...]] = Counter()
    for each in end:
        counts = loops(each)
        if None in counts:
            return None
        bodies = tuple(body for _, _, body in places(each) if body >= 0)
        posted[(*each[:2], bodies)] += prod(trips for trips in counts if trips is not None)
    return posted


def other_loops(ends: Ends) -> tuple[int, int] | None:
    """Where the ends post the same messages in the same places, but in loops of other counts.

    The first two counts that differ, of the sender and the receiver.
    """
    written = [tuple(dict.fromkeys(message.post for message in end)) for end in ends]
    if len(written[0]) != len(written[1]):
        return None
    found = None
    for ours, theirs in zip(*written, strict=True):
        bodies = [[each.body for each in post.around] for post in (ours, theirs)]
        if content(ours.op) != content(theirs.op) or bodies[0] != bodies[1]:
            return None
        for one, other in zip(ours.around, theirs.around, strict=True):
            if found is None and None not in (one.trips, other.trips) and one.trips != other.trips:
                found = (one.trips or 0, other.trips or 0)
    return found


def told(
    code: str,
    ends: Ends,
    alike: list[Edge],
    text: str,
    at: int,
    *,
    field: str,
    values: tuple[Any, Any],
    severity: Severity | None = None,
) -> Finding:
    """A finding about the message number *at* of both ends; the text is for the first edge."""
    sources, targets = {edge.source for edge in alike}, {edge.target for edge in alike}
    first, second = ends if min(sources | targets) in sources else (ends.received, ends.sent)
    post = (first or second)[at].post  # one end may be empty, but then *at* is 0
    devices = (alike[0].source, alike[0].target)
    both_ends = list(zip(devices, ends, strict=True))
    return finding(
        code,
        f"group {post.set_id}: {text}{others_too(len(alike) - 1)}{post.where}",
        severity=severity,
        ranks=sources | targets,
        group=post.set_id,
        op=post.ref,
        field=field,
        values=(
            Value(ranks=tuple(sorted(sources)), value=values[0]),
            Value(ranks=tuple(sorted(targets)), value=values[1]),
        ),
        context=tuple(
            line
            for device, end in (both_ends if first is ends.sent else reversed(both_ends))
            if end
            for line in shown(device, end[at].post)
        ),
    )


def both(ends: Ends, edge: Edge, at: int) -> str:
    """What each end of an edge posts as message number *at*."""
    sent, received = (amount(zip(*end[at].content[:2], strict=False)) for end in ends)
    return (
        f"message {at} from {who([edge.source])} to {who([edge.target])} is sent as {sent} "
        f"and received as {received}"
    )


def mismatched(ends: Ends, alike: list[Edge], at: int) -> Finding:
    """RM206 for a message that is sent and received in another size or type."""
    sent, received = ends.sent[at].content, ends.received[at].content
    number = first_other(sent, received)
    if number == 2:
        values: tuple[Any, Any] = (around(sent), around(received))
        text = f"message {at} from {who([alike[0].source])} to {who([alike[0].target])} is sent "
        text += f"{values[0]} and received {values[1]}"
        return told("RM206", ends, alike, text, at, field="order", values=values)
    values = (plain(sent[number]), plain(received[number]))
    field = ("elements", "dtype")[number]
    return told("RM206", ends, alike, both(ends, alike[0], at), at, field=field, values=values)


def around(each: tuple[Any, ...]) -> str:
    """The loops and branches that a message stands in, which decide how often it is posted."""
    told = [
        f"in a loop of {trips}" if body < 0 else f"in body {body} of a branch"
        for _, trips, body in places(each)
    ]
    return " ".join(told) or "outside loops and branches"


def looped(ends: Ends, alike: list[Edge], counts: tuple[int, int]) -> Finding:
    """RM206 for the same messages in loops of other counts."""
    source, target = who([alike[0].source]), who([alike[0].target])
    text = f"messages from {source} to {target} are sent in a loop of {counts[0]} and received in "
    text += f"a loop of {counts[1]}"
    return told("RM206", ends, alike, text, 0, field="trips", values=counts)


def crossed(ends: Ends, alike: list[Edge], at: int) -> Finding:
    """RM208 as an error: the same messages in another order, so that unlike ones would meet."""
    sent, received = ends.sent[at].content, ends.received[at].content
    text = f"{both(ends, alike[0], at)}: the same messages in another order"
    return told(
        "RM208",
        ends,
        alike,
        text,
        at,
        field="order",
        values=(
            amount(zip(*sent[:2], strict=False)),
            amount(zip(*received[:2], strict=False)),
        ),
        severity=Severity.ERROR,
    )


def crossed_names(ends: Ends, alike: list[Edge]) -> Finding | None:
    """RM208 as a warning: sizes and types meet, but by their names other messages were meant."""
    names = [[message.post.op.name for message in end] for end in ends]
    if names[0] == names[1] or len(set(names[0])) != len(names[0]) or "" in names[0]:
        return None
    if alike[0].label is not None or sorted(names[0]) != sorted(names[1]):
        return None
    at = first_other(*names)
    text = (
        f"message {at} from {who([alike[0].source])} to {who([alike[0].target])} is sent as "
        f"{names[0][at]!r} and received as {names[1][at]!r}"
    )
    return told("RM208", ends, alike, text, at, field="name", values=(names[0][at], names[1][at]))


def cannot_tell(ends: Ends, alike: list[Edge]) -> Finding:
    """RM706 where loops that differ, or whose count is unknown, may or may not pair."""
    counts = [[trips for message in end for trips in loops(message.content)] for end in ends]
    values = tuple(trips[0] if trips else 1 for trips in counts)
    text = (
        f"messages from {who([alike[0].source])} to {who([alike[0].target])} stand in other loops "
        "at both ends, and their counts do not tell whether they pair"
    )
    return told("RM706", ends, alike, text, 0, field="trips", values=(values[0], values[1]))


def plain(value: tuple[Any, ...]) -> Any:
    """The value of a single operand by itself, of several as a list."""
    return value[0] if len(value) == 1 else list(value)
