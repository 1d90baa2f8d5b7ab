"""A program as a flat run of events in signing order, each with its place. Loops run once.

Deep nesting costs memory here, never stack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Literal, TypeAlias

import msgspec

from rankmuster.program import Branch, Loop, Node, Op
from rankmuster.resolve import Resolved

Mark = Literal["next", "end"]
Event: TypeAlias = Node | Mark


class Place(msgspec.Struct, frozen=True):
    """Where an event stands.

    Of an op, `index` is its place in the whole program and `in_group` its place among the ops of
    set `group`, both from 0 and counting one per operand. Of an event that is no op, `index` is
    that of the op that comes next, and the rest is 0.
    """

    event: Event
    index: int
    in_group: int = 0
    group: int = 0


def places(resolved: Resolved) -> Iterator[Place]:
    """Every event of the program, sends and receives too, with its place."""
    index, posted = 0, defaultdict[int, int](int)
    for event in events(resolved.program.ops):
        if not isinstance(event, Op):
            yield Place(event, index)
            continue
        group = resolved.set_id(event)
        yield Place(event, index, posted[group], group)
        index += event.places
        posted[group] += event.places


def events(nodes: tuple[Node, ...]) -> Iterator[Event]:
    """Every node below *nodes* in signing order, and where loops and branches turn and end.

    Deep nesting costs memory, not stack.
    """
    stack: list[Iterator[Event]] = [iter(nodes)]
    while stack:
        for event in stack[-1]:
            yield event
            if isinstance(event, Loop):
                stack.append(chain(event.body, ("end",)))
                break
            if isinstance(event, Branch):
                stack.append(chain(*separated(event.bodies), ("end",)))
                break
        else:
            stack.pop()


def separated(bodies: tuple[tuple[Node, ...], ...]) -> Iterator[tuple[Event, ...]]:
    """The bodies of a branch with a "next" between each two."""
    for number, body in enumerate(bodies):
        if number:
            yield ("next",)
        yield body
