"""What stands around a message in the program of either end, for people to look at."""

from __future__ import annotations

from bisect import bisect_left

from rankmuster.pairing.posts import Post
from rankmuster.program import Op
from rankmuster.resolve import Resolved
from rankmuster.signature.places import Place, places
from rankmuster.wording import listed, who

AROUND = 3  # ops of context before and after


def shown(device: int, post: Post) -> tuple[str, ...]:
    """The op that *device* posts, with three before and after, one line each."""
    before, after = neighbours(post.resolved, post.index)
    return (
        f"{who([device])}:",
        *(f"  {line(each)}" for each in before),
        f"> {line(after[0])}",
        *(f"  {line(each)}" for each in after[1:]),
    )


def lacking(device: int, resolved: Resolved, index: int) -> tuple[str, ...]:
    """The place before op *index* at which *device* posts nothing, with what is around it."""
    before, after = neighbours(resolved, index)
    return (
        f"{who([device])}:",
        *(f"  {line(each)}" for each in before),
        ">    -  nothing here",
        *(f"  {line(each)}" for each in after[:AROUND]),
    )


def neighbours(resolved: Resolved, index: int) -> tuple[list[Place], list[Place]]:
    """The ops before place *index* and those from there on, as many as are shown."""
    if (known := resolved.memo.get("op places")) is None:
        known = [place for place in places(resolved) if isinstance(place.event, Op)]
        resolved.memo["op places"] = known
    number = bisect_left(known, index, key=lambda place: place.index)
    return known[max(0, number - AROUND) : number], known[number : number + AROUND + 1]


def line(each: Place) -> str:
    """One op."""
    assert isinstance(each.event, Op)
    return listed(each.index, each.event, each.group)
