"""Worlds, communicators and group records as the memory images of the original, and back.

The objects have the names of the structs' members, so most of this is which of them go in. What has
no bytes here (the library's own communicator, a barrier) gets an address that stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankmuster.abi.communicators import INFO, NODE, PEER
from rankmuster.abi.containers import VECTOR_BYTES
from rankmuster.abi.context import BARRIER_ENTRY
from rankmuster.abi.groups import PAIRS, REPLICA_GROUP
from rankmuster.abi.memory import Memory
from rankmuster.abi.pack import members_of, pack, unpack
from rankmuster.abi.world import WORLD
from rankmuster.libnccom.info import CommInfo, PeerInfo
from rankmuster.local_barrier import LocalBarrier
from rankmuster.nrt.groups import PairsRecord, ReplicaGroupRecord
from rankmuster.pool import CommNode
from rankmuster.worlds.global_comm import INC_RECV_SEM_VALUES, BarrierEntry, GlobalComm
from rankmuster.worlds.identity import Identity

IDENTITY = tuple(each.name for each in WORLD.members if each.name in Identity.__slots__)
GLOBAL_STATE = (
    *("rank_nodes", "local_ranks", "nccl_comm_node", "device_barrier_table"),
    *("inc_recv_sem_values_buffer", "local_rings", "local_peer_handles"),
)
NODE_STATE = (
    *("stream_id", "context_id", "disable_graph", "global_nccl_comm_node", "refcnt"),
    *("my_local_leader", "intra_pod_interface"),
)
NODE_POINTERS = (
    *("key", "key_sz", "local_participants", "num_local_participants"),
    *("local_leaders", "num_local_leaders", "nccl_comm", "local_barrier"),
)
INFO_STATE = tuple(each.name for each in INFO.members if each.name in CommInfo.__struct_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldState:
    """What an image of a world says.

    `ci` comes without cluster and peers, and `barrier_entries` is a count: the image does not say
    who a peer is, only where it sits.
    """

    identity: Identity
    node: CommNode | None
    ci: CommInfo | None
    rank_nodes: tuple[int, ...]
    local_ranks: tuple[int, ...]
    semaphore_values: tuple[int, ...]
    local_rings: LocalBarrier | None
    local_peer_handles: dict[int, str] | None
    barrier_entries: int


def pack_group(record: ReplicaGroupRecord, memory: Memory) -> bytes:
    """The 96 bytes of a group; its member lists go into *memory*."""
    return pack(REPLICA_GROUP, members_of(REPLICA_GROUP, record), memory)


def unpack_group(image: bytes, memory: Memory) -> ReplicaGroupRecord:
    """The group that `pack_group` made *image* of. Raises InvalidProgram for anything else."""
    names = [each.name for each in REPLICA_GROUP.members]
    return ReplicaGroupRecord(**unpack(REPLICA_GROUP, image, names, memory))


def pack_pairs(record: PairsRecord, memory: Memory) -> bytes:
    """The 80 bytes of a pairs set; pairs and members go into *memory*."""
    return pack(PAIRS, members_of(PAIRS, record), memory)


def unpack_pairs(image: bytes, memory: Memory) -> PairsRecord:
    """The set that `pack_pairs` made *image* of. Raises InvalidProgram for anything else."""
    return PairsRecord(**unpack(PAIRS, image, [each.name for each in PAIRS.members], memory))


def pack_node(node: CommNode, memory: Memory) -> bytes:
    """The 88 bytes of a pooled communicator."""
    values = {name: getattr(node, name) for name in NODE_STATE} | {
        "nccl_comm": memory.stand_in(node.nccl_comm),
        "key": node.key,
        "key_sz": len(node.key),
        "num_local_participants": len(node.local_participants),
        "num_local_leaders": len(node.local_leaders),
        "local_participants": node.local_participants,
        "local_leaders": node.local_leaders,
        "local_barrier": memory.stand_in(node.local_barrier),
    }
    return pack(NODE, values, memory)


def unpack_node(image: bytes, memory: Memory) -> CommNode:
    """The node that `pack_node` made *image* of. Raises InvalidProgram for anything else."""
    held = unpack(NODE, image, NODE_POINTERS, memory)
    return CommNode(
        **unpack(NODE, image, NODE_STATE, memory),
        key=memory.get(held["key"], held["key_sz"]),
        nccl_comm=memory.stands_for(held["nccl_comm"]),
        local_participants=memory.get_u32s(
            held["local_participants"], held["num_local_participants"]
        ),
        local_leaders=memory.get_u32s(held["local_leaders"], held["num_local_leaders"]),
        local_barrier=memory.stands_for(held["local_barrier"]),
    )


def pack_world(world: GlobalComm, memory: Memory) -> bytes:
    """The 564408 bytes of a world."""
    node, ci = world.comm.nccl_comm_node, world.comm.ci
    values = members_of(WORLD, world.identity) | {
        "rank_nodes": world.rank_nodes,
        "local_ranks": world.local_ranks,
        "local_rings": memory.stand_in(world.local_rings),
        "local_peer_handles": memory.stand_in(world.local_peer_handles),
        "inc_recv_sem_values_buffer": bytes(world.inc_recv_sem_values_buffer[:]),
        "inc_recv_sem_values_buffer_size": world.inc_recv_sem_values_buffer_size,
        "device_barrier_table": pack_barrier_table(world.device_barrier_table, memory),
        "comm.nr_channel_chunks": world.comm.nr_channel_chunks,
        "comm.chunk_size": world.comm.chunk_size,
    }
    if node is not None:
        values["nccl_comm_node"] = held = pack_node(node, memory)
        values["comm.nccl_comm_node"] = memory.put(held)
    if ci is not None:
        values["comm.ci"] = pack_info(ci, memory)
    return pack(WORLD, values, memory)


def pack_info(ci: CommInfo, memory: Memory) -> bytes:
    """The 72 bytes of a communicator's info; its peers go into *memory*."""
    peers = b"".join(map(pack_peer, ci.peers))
    return pack(INFO, members_of(INFO, ci) | {"peers": peers}, memory)


def pack_peer(peer: PeerInfo) -> bytes:
    """The 24 bytes that say where a peer sits; they point at nothing."""
    return pack(PEER, members_of(PEER, peer), Memory())


def pack_barrier_table(entries: Sequence[BarrierEntry], memory: Memory) -> bytes:
    """The vector of the device-barrier table, a heap object of 24 bytes (facts D45)."""
    images = (
        pack(
            BARRIER_ENTRY, members_of(BARRIER_ENTRY, each) | {"peer": pack_peer(each.peer)}, memory
        )
        for each in entries
    )
    return memory.put_vector(b"".join(images))


def unpack_world(image: bytes, memory: Memory, *, ctx_id: int, vcore: int) -> WorldState:
    """The world that `pack_world` made *image* of; *ctx_id* and *vcore* are not in it.

    Raises InvalidProgram for anything else.
    """
    said = unpack(WORLD, image, IDENTITY, memory)
    said["root_comm_id"] = memory.get_text(said["root_comm_id"])
    held = unpack(WORLD, image, GLOBAL_STATE, memory)
    values = memory.get(held["inc_recv_sem_values_buffer"], INC_RECV_SEM_VALUES.size)
    table = memory.get_vector(memory.get(held["device_barrier_table"], VECTOR_BYTES))
    info = unpack(WORLD, image, [f"comm.ci.{name}" for name in INFO_STATE], memory)
    size = info["rank_n"]
    return WorldState(
        identity=Identity(**said, ctx_id=ctx_id, vcore=vcore),
        node=unpack_node(held["nccl_comm_node"], memory) if any(held["nccl_comm_node"]) else None,
        ci=CommInfo(**info | {"cluster_id": 0, "epoch": 0, "peers": ()}) if size else None,
        rank_nodes=memory.get_u32s(held["rank_nodes"], size if held["rank_nodes"] else 0),
        local_ranks=memory.get_u32s(held["local_ranks"], size if held["local_ranks"] else 0),
        semaphore_values=INC_RECV_SEM_VALUES.unpack(values),
        local_rings=memory.stands_for(held["local_rings"]),
        local_peer_handles=memory.stands_for(held["local_peer_handles"]),
        barrier_entries=len(table) // BARRIER_ENTRY.size,
    )
