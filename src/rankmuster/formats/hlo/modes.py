"""What an id in a group means, and which devices it stands for (hlo-semantics 3.1 and 3.3).

A device's global id is `replica * partitions + partition`; text carries no device assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.groups import MAX_IDS, Groups

Pairs = tuple[tuple[int, int], ...]


class Mode(StrEnum):
    """XLA's four group modes, by XLA's names."""

    CROSS_REPLICA = "cross_replica"
    CROSS_PARTITION = "cross_partition"
    CROSS_REPLICA_AND_PARTITION = "cross_replica_and_partition"
    FLATTENED_ID = "flattened_id"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many replicas and partitions the program runs on."""

    replicas: int
    partitions: int

    @property
    def devices(self) -> int:
        """The size of the program's world."""
        return self.replicas * self.partitions

    def limit(self, mode: Mode) -> int:
        """How many ids there are in *mode*."""
        match mode:
            case Mode.CROSS_PARTITION:
                return self.partitions
            case Mode.FLATTENED_ID:
                return self.devices
            case _:
                return self.replicas


# The ops whose groups can be flattened; the others have no such attribute.
HAS_FLAG = frozenset({b"all-reduce", b"all-gather", b"reduce-scatter"})


def mode_of(opcode: bytes, *, channel: bool, flattened: bool) -> Mode:
    """The mode that the attributes of *opcode* (without -start) select."""
    if opcode not in HAS_FLAG:
        return Mode.CROSS_PARTITION if channel else Mode.CROSS_REPLICA
    if flattened:
        return Mode.FLATTENED_ID
    return Mode.CROSS_REPLICA_AND_PARTITION if channel else Mode.CROSS_REPLICA


def expand_groups(groups: Groups, mode: Mode, counts: Counts) -> Groups:
    """The real groups as global devices, in XLA's order; empty written groups are left out."""
    n_r, n_p = counts.replicas, counts.partitions
    groups = tuple(group for group in groups if group)
    _bounded(sum(map(len, groups)), mode, counts)
    match mode:
        case Mode.FLATTENED_ID:
            return groups
        case Mode.CROSS_REPLICA:
            return tuple(tuple(r * n_p + p for r in group) for group in groups for p in range(n_p))
        case Mode.CROSS_PARTITION:
            return tuple(tuple(r * n_p + p for p in group) for group in groups for r in range(n_r))
        case Mode.CROSS_REPLICA_AND_PARTITION:
            # XLA runs over replicas outside, partitions inside. The StableHLO specification says
            # the opposite; XLA is what executes.
            return tuple(tuple(r * n_p + p for r in group for p in range(n_p)) for group in groups)


def expand_pairs(pairs: Pairs, mode: Mode, counts: Counts) -> Pairs:
    """The real edges as global devices."""
    n_r, n_p = counts.replicas, counts.partitions
    _bounded(len(pairs), mode, counts)
    if mode is Mode.CROSS_PARTITION:
        return tuple((r * n_p + s, r * n_p + t) for s, t in pairs for r in range(n_r))
    return tuple((s * n_p + p, t * n_p + p) for s, t in pairs for p in range(n_p))


def everybody(mode: Mode, counts: Counts) -> Groups:
    """The one group that `replica_groups={}` means, in ids of *mode*."""
    return (tuple(range(counts.limit(mode))),)


def _bounded(ids: int, mode: Mode, counts: Counts) -> None:
    times = 1 if mode is Mode.FLATTENED_ID else counts.devices // max(1, counts.limit(mode))
    if ids * times > MAX_IDS:
        raise InvalidProgram(
            f"groups of {ids} ids stand for {ids * times} devices",
            fix=f"this reader takes up to {MAX_IDS}",
        )
