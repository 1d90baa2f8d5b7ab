"""A program's group sets as communicators: which devices each set joins, and a device's own.

Replica-group sets say their members; a pairs set stands for the components of its pairs (S1).
Nothing here judges: a device that a set repeats belongs to the first sub-group that holds it, and
ids may lie outside the world (`verify` says so).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from rankmuster.group import SubGroup
from rankmuster.partition import components
from rankmuster.program import Op, Program

SetKind = Literal["replica_groups", "source_target_pairs"]


@dataclass(frozen=True, kw_only=True)
class GroupSet:
    """One set of the program: `id` counts replica-group sets, then pairs sets (facts D36, E7).

    `members` are all sub-groups in written order, or the components of the pairs in universe order;
    `pairs` are all edges, sorted, and None for replica groups.
    """

    id: int
    kind: SetKind
    members: tuple[SubGroup, ...]
    pairs: tuple[tuple[int, int], ...] | None = None

    @cached_property
    def by_device(self) -> dict[int, SubGroup]:
        """Each device's own sub-group, the first that names it."""
        table: dict[int, SubGroup] = {}
        for group in reversed(self.members):
            table |= dict.fromkeys(group, group)
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One communicator-to-be as one device sees it (`enc_replica_group_info`, S0 §3)."""

    id: int
    kind: SetKind
    members: SubGroup
    device: int

    @property
    def rank(self) -> int:
        """The device's position in the group."""
        return self.members.index(self.device)

    @property
    def size(self) -> int:
        """How many members the group has (`rank_n`)."""
        return len(self.members)


class Resolved:
    """A program with its sets worked out once. Whoever asks twice gets the same objects.

    `memo` is for what later stages (signatures, posting lists) work out about this program, keyed
    by whatever they like; it lives and dies with this object.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.memo: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return f"Resolved({self.program.format} {self.program.name!r}, {len(self.sets)} sets)"

    @cached_property
    def sets(self) -> tuple[GroupSet, ...]:
        """Every set that the program names, by id; equal member lists are one object."""
        known: dict[SubGroup, SubGroup] = {}

        def shared(members: tuple[SubGroup, ...]) -> tuple[SubGroup, ...]:
            return tuple(known.setdefault(group, group) for group in members)

        declared = [
            GroupSet(id=number, kind="replica_groups", members=shared(groups.members))
            for number, groups in enumerate(self.program.replica_groups)
        ]
        paired = [
            GroupSet(
                id=number,
                kind="source_target_pairs",
                members=shared(components(edges.sorted_pairs)),
                pairs=edges.sorted_pairs,
            )
            for number, edges in enumerate(self.program.src_target_pairs, len(declared))
        ]
        return (*declared, *paired)

    def set_id(self, op: Op) -> int:
        """The id of the set that *op* runs on."""
        if op.group is not None:
            return op.group
        assert op.pairs is not None, f"{op} names no set"
        return len(self.program.replica_groups) + op.pairs

    def set_of(self, op: Op) -> GroupSet:
        """The set that *op* runs on."""
        return self.sets[self.set_id(op)]

    def groups_of(self, device: int) -> tuple[Group, ...]:
        """The sub-group of *device*, a global id, in each set that names it, by set id."""
        return tuple(
            Group(id=each.id, kind=each.kind, members=each.by_device[device], device=device)
            for each in self.sets
            if device in each.by_device
        )

    def communicators(self, device: int) -> tuple[SubGroup, ...]:
        """The distinct member lists of two or more devices that hold *device*, in set order."""
        own = (each.by_device.get(device, ()) for each in self.sets)
        # Told apart by identity: hashing a list of 98304 ids for each of them takes minutes.
        return tuple({id(members): members for members in own if len(members) > 1}.values())

    @cached_property
    def sets_by_members(self) -> dict[SubGroup, tuple[int, ...]]:
        """The ids of the sets that hold each distinct member list, whatever its length."""
        table: dict[SubGroup, tuple[int, ...]] = {}
        for each in self.sets:
            for members in dict.fromkeys(each.members):
                table[members] = (*table.get(members, ()), each.id)
        return table
