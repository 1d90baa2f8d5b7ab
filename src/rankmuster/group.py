"""Group sets: who takes part in an op, as global device ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

SubGroup = tuple[int, ...]


@dataclass(frozen=True)
class ReplicaGroups:
    """One set of sub-groups (`enc_replica_group_info`, S0 §3): written order, global ids.

    The order of members inside a sub-group decides who is shard 0 and is kept; the order of
    sub-groups carries no meaning.
    """

    members: tuple[SubGroup, ...]

    @cached_property
    def unordered(self) -> frozenset[SubGroup]:
        """The set without the order of its sub-groups, for comparing (facts E7)."""
        return frozenset(self.members)


@dataclass(frozen=True)
class SourceTargetPairs:
    """One set of directed edges (`enc_src_target_pairs_info`, S1 §4), as written, global ids."""

    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def sorted_pairs(self) -> tuple[tuple[int, int], ...]:
        """The edges in the order that is hashed and partitioned (S1 §3 P2)."""
        return tuple(sorted(self.pairs))


@dataclass
class GroupTable:
    """Collects the sets of one program, one object per distinct set.

    With *fold_equal* (HLO and the other readers) sets that are equal up to the order of their
    sub-groups share one id and print as first seen; without it (JSON and NEFF tables) every entry
    keeps its own id and only the object is shared (facts E7).
    """

    fold_equal: bool = True
    replica_groups: list[ReplicaGroups] = field(default_factory=list)
    src_target_pairs: list[SourceTargetPairs] = field(default_factory=list)
    _groups: dict[frozenset[SubGroup] | tuple[SubGroup, ...], int] = field(default_factory=dict)
    _pairs: dict[tuple[tuple[int, int], ...], int] = field(default_factory=dict)

    def add_groups(self, members: Iterable[Sequence[int]]) -> int:
        """Put a set of sub-groups into the table; return its id."""
        groups = ReplicaGroups(tuple(tuple(group) for group in members))
        # A malformed set may repeat a sub-group: only sets of distinct ones fold by their order.
        distinct = self.fold_equal and len(groups.unordered) == len(groups.members)
        key = groups.unordered if distinct else groups.members
        known = self._groups.setdefault(key, len(self.replica_groups))
        if known < len(self.replica_groups):
            if self.fold_equal:
                return known
            groups = self.replica_groups[known]
        self.replica_groups.append(groups)
        return len(self.replica_groups) - 1

    def add_pairs(self, pairs: Iterable[tuple[int, int]]) -> int:
        """Put a set of source-target pairs into the table; return its id."""
        edges = SourceTargetPairs(tuple((source, target) for source, target in pairs))
        key = edges.sorted_pairs if self.fold_equal else edges.pairs
        known = self._pairs.setdefault(key, len(self.src_target_pairs))
        if known < len(self.src_target_pairs):
            if self.fold_equal:
                return known
            edges = self.src_target_pairs[known]
        self.src_target_pairs.append(edges)
        return len(self.src_target_pairs) - 1
