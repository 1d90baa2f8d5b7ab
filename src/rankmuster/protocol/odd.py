"""Whose signature is the odd one: what the edges of the verdict tree tell, taken together.

One edge with two signatures says that they differ, and not who is wrong. All such edges cut the
tree into parts of one signature each, and what more than half of the ranks hold is the usual one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from rankmuster.protocol.bootstrap import tree_parent


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """The signature (hex) that a rank of a group showed, and the process that it is part of.

    `group` tells groups apart, `size` is that group's.
    """

    group: str = ""
    size: int
    rank: int
    process: int
    signature: str


def odd_ones(seen: Iterable[Signed]) -> Iterator[tuple[Signed, str]]:
    """Who differs from most ranks of its group, and what those hold.

    *seen* holds both ends of every edge, in all groups, whose ends differ. Groups in which no
    signature is that of more than half name nobody.
    """
    groups: dict[str, list[Signed]] = {}
    for each in seen:
        groups.setdefault(each.group, []).append(each)
    for held in groups.values():
        usual = usual_signature(held[0].size, held)
        if usual is not None:
            yield from ((each, usual) for each in held if each.signature != usual)


def usual_signature(size: int, seen: Iterable[Signed]) -> str | None:
    """The signature of more than half of one group's *size* ranks; None where there is none."""
    signatures = {each.rank: each.signature for each in seen if 0 <= each.rank < size}
    above = {rank: signatures.get(tree_parent(rank)) for rank in sorted(signatures) if rank}
    cut = {rank: over for rank, over in above.items() if over not in (None, signatures[rank])}
    votes: Counter[str | None] = Counter()
    for rank, over in cut.items():
        if not votes:
            votes[over] = size  # nothing is cut above the lowest rank: its parent's part is the top
        below = subtree_size(rank, size)
        votes[signatures[rank]] += below
        votes[over] -= below
    usual, count = max(votes.items(), key=lambda vote: vote[1], default=(None, 0))
    return usual if 2 * count > size else None


def subtree_size(rank: int, size: int) -> int:
    """How many ranks report to *rank*, over others or not, and itself."""
    count, first, width = 0, rank, 1
    while first < size:
        count += min(width, size - first)
        first, width = 2 * first + 1, 2 * width
    return count
