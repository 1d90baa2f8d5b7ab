"""How many bytes each group set moves: what decides which of two sets deserves the short way."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankmuster.program import Loop, Node, Op, OpKind
from rankmuster.resolve import GroupSet, Resolved

# E4: these count one rank's share, so the message is as many times larger as the group has ranks.
SHARED_OUT = frozenset({OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_TO_ALL})
UNKNOWN_BITS = 32
MOST = 1 << 62  # loop counts multiply; beyond this nothing is decided any more


@dataclass(slots=True)
class Traffic:
    """What one device moves on one set: `total` bytes of all ops, and the largest single one."""

    total: int = 0
    largest: int | None = None
    kind: OpKind | None = None

    def add(self, kind: OpKind, nbytes: int, times: int) -> None:
        """Count an op of *nbytes* that runs *times* times."""
        self.total = min(self.total + nbytes * times, MOST)
        if self.largest is None or nbytes > self.largest:
            self.largest, self.kind = nbytes, kind


def bits(dtype: str) -> int:
    """The width of an element type: its first number ("bf16", "f8e4m3"); pred takes a byte."""
    found = re.search(r"\d+", dtype)
    return 8 if dtype == "pred" else int(found[0]) if found else UNKNOWN_BITS


def message_bytes(op: Op, size: int) -> int:
    """The bytes of one op in a group of *size* ranks."""
    each = sum(count * bits(dtype) for count, dtype in zip(op.elements, op.dtype, strict=False))
    return each * (size if op.kind in SHARED_OUT else 1) // 8


def traffic(resolved: Resolved) -> dict[int, Traffic]:
    """The traffic of each set by id; a loop with an unknown count runs once."""
    found = {each.id: Traffic() for each in resolved.sets}
    sizes = {each.id: _size(each) for each in resolved.sets}
    stack: list[tuple[Node, int]] = [(node, 1) for node in reversed(resolved.program.ops)]
    while stack:
        node, times = stack.pop()
        if isinstance(node, Op):
            number = resolved.set_id(node)
            found[number].add(node.kind, message_bytes(node, sizes[number]), times)
            continue
        bodies = (node.body,) if isinstance(node, Loop) else node.bodies
        if isinstance(node, Loop) and node.trips is not None:
            times = min(times * node.trips, MOST)
        stack += [(child, times) for body in reversed(bodies) for child in reversed(body)]
    return found


def _size(each: GroupSet) -> int:
    return max(map(len, each.members), default=1)
