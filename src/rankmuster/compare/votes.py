"""Who else posts the same on a whole group set: evidence where one communicator is split evenly.

Of the two members of a pair nobody can say which is right; that all other pairs of the set do as
one of them does says it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankmuster.compare.shared import Side
from rankmuster.copies import ProgramClass
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import posting_state, set_digest
from rankmuster.signature.digest import Digest


class Votes:
    """Answers for the programs of one comparison, each worked out once."""

    def __init__(self, programs: Sequence[ProgramClass]) -> None:
        self.programs = programs
        self.known: dict[tuple[int, ...], frozenset[int]] = {}

    def voters(self, side: Side, set_ids: Sequence[int]) -> frozenset[int]:
        """The devices of *side*, and all that post on sets like these what it posts there."""
        if not set_ids:
            return frozenset(side.devices)
        key = (side.first.number, *set_ids)
        if (known := self.known.get(key)) is None:
            known = self.known[key] = frozenset(
                device
                for each in self.programs
                if posts_alike(side.first.resolved, set_ids, each.resolved)
                for device in each.devices
            )
        member_of = side.first.resolved.sets[set_ids[0]].by_device
        return frozenset(side.devices).union(known & member_of.keys())

    def weigh(self, sides: Sequence[tuple[Side, Sequence[int]]]) -> list[frozenset[int]]:
        """The voters of each side, given with the sets in question; just its own if it needs none.

        A device that would vote for two sides votes for none but the one that it is on.
        """
        own = [frozenset(side.devices) for side, _ in sides]
        if is_decided(own):
            return own
        votes = [self.voters(side, set_ids) for side, set_ids in sides]
        on_sides = frozenset().union(*own)
        return [
            mine.union(vote - on_sides - frozenset().union(*votes[:n], *votes[n + 1 :]))
            for n, (mine, vote) in enumerate(zip(own, votes, strict=True))
        ]


def is_decided(votes: Sequence[frozenset[int]]) -> bool:
    """Whether one side has more than half of all votes."""
    counts = [len(vote) for vote in votes]
    return 2 * max(counts) > sum(counts)


def posts_alike(ours: Resolved, set_ids: Sequence[int], theirs: Resolved) -> bool:
    """Whether *theirs* has the same sets, and posts the same on them in the same order."""
    numbers = [set_number(theirs, set_digest(ours, each)) for each in set_ids]
    known = tuple(each for each in numbers if each is not None)
    return len(known) == len(numbers) and set_posting(theirs, known) == set_posting(
        ours, tuple(set_ids)
    )


def set_number(resolved: Resolved, digest: Digest) -> int | None:
    """The id of the set with this digest, the first of equal ones."""
    if (known := resolved.memo.get("set numbers")) is None:
        known = resolved.memo["set numbers"] = {
            set_digest(resolved, each.id): each.id for each in reversed(resolved.sets)
        }
    return known.get(digest)


def set_posting(resolved: Resolved, set_ids: tuple[int, ...]) -> bytes:
    """The digest of what is posted on these sets together, whoever their members are."""
    return posting_state(resolved, set_ids).digest()
