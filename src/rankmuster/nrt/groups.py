"""A program's groups as one device sees them: the records of S0 §3 and S1 §4, and their parse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankmuster import messages
from rankmuster.algorithm import MESH_MAX_RANKS
from rankmuster.errors import (
    InvalidProgram,
    MusterError,
    PoolExhausted,
    WorldNotBuilt,
)
from rankmuster.partition import ConnectedComponents
from rankmuster.pool import bootstrap_order
from rankmuster.program import POINT_TO_POINT, Op
from rankmuster.resolve import GroupSet
from rankmuster.worlds.global_comm import GlobalComm

NOT_A_MEMBER = -1
NO_PAIRS = -1
UNSIGNED = bytes(16)


@dataclass(slots=True, kw_only=True)
class ReplicaGroupRecord:
    """One group set's own sub-group (`enc_replica_group_info`).

    `rank` is -1 where the device is no member. `participants` are its members in written order,
    `bootstrap_participants` the same in the order in which they bootstrap. The mesh and ring flags
    are our reading of their names: how large a mesh may be, and that ops along pairs go by rings.
    """

    rank: int
    rank_n: int
    group_id: int
    src_target_pairs_id: int = NO_PAIRS
    num_ops: int = 0
    sendrecv: bool = False
    nccl_mesh_supported: bool = False
    must_use_ring_alg: bool = False
    signature: bytes = UNSIGNED
    participants: tuple[int, ...] = ()
    bootstrap_participants: tuple[int, ...] = ()
    bootstrap_rank: int = NOT_A_MEMBER


@dataclass(slots=True, kw_only=True)
class PairsRecord:
    """One set of pairs (`enc_src_target_pairs_info`): all edges, and my component's members."""

    pairs: tuple[tuple[int, int], ...]
    participants: tuple[int, ...]
    signature: bytes = UNSIGNED
    rank: int
    rank_n: int
    replica_group_id: int
    src_target_pairs_id: int


def parse_replica_group(
    group_id: int,
    members: tuple[int, ...],
    ops: Sequence[Op],
    device: int,
    *,
    key_order: str,
    max_groups: int,
    pairs_id: int = NO_PAIRS,
) -> ReplicaGroupRecord:
    """The record of a set whose own sub-group has *members* (`enc_parse_replica_groups`).

    A set that leaves *device* out is refused if it holds collectives, and else a record of no rank
    (facts D29). Raises `PoolExhausted` beyond *max_groups* ids.
    """
    if group_id >= max_groups:
        raise PoolExhausted(
            f"group id {group_id} is beyond the {max_groups} groups of the runtime",
            fix="merge equal groups; 16 from runtime 2.34.10 on",
        )
    inside = device in members
    sendrecv = any(op.kind in POINT_TO_POINT for op in ops)
    if not inside and pairs_id == NO_PAIRS and not all(op.kind in POINT_TO_POINT for op in ops):
        raise InvalidProgram(
            f"group set {group_id} holds collectives and does not name device {device}",
            fix="every device of the world must be in it",
        )
    order = bootstrap_order(members, key_order)
    return ReplicaGroupRecord(
        rank=members.index(device) if inside else NOT_A_MEMBER,
        rank_n=len(members),
        group_id=group_id,
        src_target_pairs_id=pairs_id,
        num_ops=len(ops),
        sendrecv=sendrecv,
        nccl_mesh_supported=1 < len(members) <= MESH_MAX_RANKS,
        must_use_ring_alg=pairs_id != NO_PAIRS or sendrecv,
        participants=members,
        bootstrap_participants=order,
        bootstrap_rank=order.index(device) if inside else NOT_A_MEMBER,
    )


def parse_src_target_pairs(
    world: GlobalComm | None,
    sets: Sequence[GroupSet],
    queues: Mapping[int, Sequence[Op]],
    *,
    key_order: str,
    max_groups: int,
    strict_cpp: bool = False,
) -> list[tuple[PairsRecord, ReplicaGroupRecord]]:
    """Partition each set of pairs, and make my component a group (`enc_parse_src_target_pairs`).

    The key is the *global* device id (S1 §3). A device that no pair names gets rank -1 and no
    members; with *strict_cpp* the original's answer, vertex 0's component (facts D30). Raises
    `WorldNotBuilt` without a world, and what a set's group is refused for.
    """
    if world is None:
        raise WorldNotBuilt(messages.NO_WORLD())
    device = world.identity.g_device_id
    records = []
    for number, each in enumerate(sets):
        edges = each.pairs or ()
        components, root = ConnectedComponents(edges).get_connected(device, strict_cpp=strict_cpp)
        members = () if root is None else tuple(components.get(root, ()))
        try:
            group = parse_replica_group(
                *(each.id, members, queues.get(each.id, ()), device),
                key_order=key_order,
                max_groups=max_groups,
                pairs_id=number,
            )
        except MusterError as error:
            raise type(error)(messages.NO_PAIRS_GROUP(number), fix=error.fix) from error
        pairs = PairsRecord(
            pairs=edges,
            participants=members,
            rank=group.rank,
            rank_n=group.rank_n,
            replica_group_id=group.group_id,
            src_target_pairs_id=number,
        )
        records.append((pairs, group))
    return records
