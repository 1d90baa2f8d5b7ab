"""Who else posts the same on a whole group set: evidence where one communicator is split evenly.

Of the two members of a pair nobody can say which is right; that all other pairs of the set do as
one of them does says it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rankmuster.compare.shared import Side
from rankmuster.copies import ProgramClass
from rankmuster.group import SubGroup
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import posting_state, set_digest
from rankmuster.signature.digest import Digest

ENOUGH = 2
"""So many other sub-groups must be of one mind: the stages of a pipeline may well do different
things on one set, and then one of them says nothing about another.
"""


class Votes:
    """What whole sets post in the programs of one comparison, each worked out once."""

    def __init__(self, programs: Sequence[ProgramClass]) -> None:
        self.programs = programs
        self.known: dict[tuple[Digest, ...], tuple[bytes, frozenset[int]] | None] = {}

    def weigh(self, sides: Sequence[tuple[Side, tuple[int, ...]]]) -> list[frozenset[int]]:
        """The devices that speak for each side, given with the sets in question.

        Its own, and on a tie those of the set's other sub-groups, if they are of one mind.
        """
        own = [frozenset(side.devices) for side, _ in sides]
        if is_decided(own):
            return own
        return [
            mine | self.others(side, set_ids)
            for mine, (side, set_ids) in zip(own, sides, strict=True)
        ]

    def others(self, side: Side, set_ids: tuple[int, ...]) -> frozenset[int]:
        """The devices of the other sub-groups, if all post on these sets what *side* does."""
        if not set_ids:
            return frozenset()
        resolved = side.first.resolved
        names = tuple(set_digest(resolved, each) for each in set_ids)
        if names not in self.known:
            self.known[names] = self.one_mind(names, resolved.sets[set_ids[0]].members)
        posted, devices = self.known[names] or (b"", frozenset[int]())
        return devices if posted == set_posting(resolved, set_ids) else frozenset()

    def one_mind(
        self, names: tuple[Digest, ...], members: tuple[SubGroup, ...]
    ) -> tuple[bytes, frozenset[int]] | None:
        """What all sub-groups post that are not split themselves, and their devices."""
        posted = self.by_device(names)
        minds: dict[bytes, list[SubGroup]] = {}
        for group in members:
            if len(group) < 2:  # whoever is alone may post what it likes
                continue
            mind = {posted[device] for device in group if device in posted}
            if len(mind) == 1:
                minds.setdefault(mind.pop(), []).append(group)
        if len(minds) != 1 or b"" in minds:
            return None
        [(what, groups)] = minds.items()
        agreeing = frozenset(device for group in groups for device in group if device in posted)
        return (what, agreeing) if len(groups) >= ENOUGH else None

    def by_device(self, names: tuple[Digest, ...]) -> dict[int, bytes]:
        """What each device's program posts on the sets of these digests; b"" if it lacks one."""
        posted: dict[int, bytes] = {}
        for each in self.programs:
            numbers = set_numbers(each.resolved)
            ids = tuple(numbers[name] for name in names if name in numbers)
            what = set_posting(each.resolved, ids) if len(ids) == len(names) else b""
            posted.update(dict.fromkeys(each.devices, what))
        return posted


def is_decided(votes: Sequence[Collection[int]]) -> bool:
    """Whether one side has more than half of all votes."""
    counts = [len(vote) for vote in votes]
    return 2 * max(counts) > sum(counts)


def set_numbers(resolved: Resolved) -> dict[Digest, int]:
    """The id of the set of each digest, the first of equal ones."""
    if (known := resolved.memo.get("set numbers")) is None:
        known = resolved.memo["set numbers"] = {
            set_digest(resolved, each.id): each.id for each in reversed(resolved.sets)
        }
    return known


def set_posting(resolved: Resolved, set_ids: tuple[int, ...]) -> bytes:
    """The digest of what is posted on these sets together, whoever their members are."""
    return posting_state(resolved, set_ids).digest()
