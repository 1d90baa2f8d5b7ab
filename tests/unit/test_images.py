"""Worlds, communicators and groups as images: what is packed is what is unpacked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.abi import STRUCTS
from rankmuster.abi.decode import rows
from rankmuster.abi.memory import Memory
from rankmuster.errors import InvalidProgram
from rankmuster.libnccom.info import PeerInfo, describe
from rankmuster.nrt.groups import PairsRecord, ReplicaGroupRecord
from rankmuster.nrt.images import (
    pack_group,
    pack_node,
    pack_pairs,
    pack_world,
    unpack_group,
    unpack_node,
    unpack_pairs,
    unpack_world,
)
from rankmuster.pool import CommNode, pool_key
from rankmuster.worlds.global_comm import (
    BarrierEntry,
    BarrierType,
    GlobalComm,
    GroupComm,
    anonymous_memory,
    semaphore_values,
)
from rankmuster.worlds.identity import Identity

IDENTITY = Identity(
    g_device_id=5,
    g_device_cnt=8,
    ctx_id=0,
    vtpb_idx=1,
    nec_dev_id=1,
    mla_idx=0,
    host_device_id=3,
    routing_id=9,
    virtual_server_id=2,
    pod_type=1,
    pod_node_id=1,
    pod_sz=4,
    reservation_id=1 << 40,
    root_comm_id="10.0.0.1:46820",
    check_sigs=True,
    vcore=2,
)
GROUP = ReplicaGroupRecord(
    rank=1,
    rank_n=2,
    group_id=3,
    num_ops=2,
    sendrecv=True,
    nccl_mesh_supported=True,
    signature=bytes(range(16)),
    participants=(4, 5),
    bootstrap_participants=(5, 4),
    bootstrap_rank=0,
)
NODE = CommNode(
    key=pool_key((5, 4), 2),
    stream_id=1,
    context_id=0,
    disable_graph=True,
    refcnt=3,
    nccl_comm=object(),
    local_participants=(4, 5),
    local_leaders=(4,),
    my_local_leader=4,
)


def peer(device: int) -> PeerInfo:
    return PeerInfo(
        device=device,
        neuron_dev=device % 4,
        rid=device,
        tpb_index=0,
        pod_type=1,
        pod_node_id=device // 4,
        reservation_id=77,
        host=f"host{device // 4}",
        pid=100 + device,
    )


@pytest.fixture
def world() -> Iterator[GlobalComm]:
    made = GlobalComm(
        identity=IDENTITY, inc_recv_sem_values_buffer=semaphore_values(anonymous_memory)
    )
    yield made
    made.free()


def test_groups_round_trip() -> None:
    """A record keeps its ranks, flags, signature and both member lists."""
    memory = Memory()
    image = pack_group(GROUP, memory)
    assert image[23:39] == bytes(range(16))
    assert unpack_group(image, memory) == GROUP
    outsider = ReplicaGroupRecord(rank=-1, rank_n=0, group_id=0)
    assert unpack_group(pack_group(outsider, memory), memory) == outsider


def test_pairs_round_trip() -> None:
    """A pairs record keeps its pairs and its component."""
    memory = Memory()
    record = PairsRecord(
        pairs=((0, 1), (1, 0)),
        participants=(0, 1),
        rank=1,
        rank_n=2,
        replica_group_id=4,
        src_target_pairs_id=0,
    )
    assert unpack_pairs(pack_pairs(record, memory), memory) == record


def test_foreign_pointers_are_refused() -> None:
    """An image from elsewhere is shown by `decode`, and not followed here."""
    with pytest.raises(InvalidProgram, match="are not part of this image"):
        unpack_group(pack_group(GROUP, Memory()), Memory())


def test_nodes_round_trip() -> None:
    """A node keeps its key, its count and its flags; its communicator is found again."""
    memory = Memory()
    found = unpack_node(pack_node(NODE, memory), memory)
    for name in CommNode.__slots__:
        assert getattr(found, name) == getattr(NODE, name)


def test_a_new_world_round_trips(world: GlobalComm) -> None:
    """Before set-up an image holds the identity and the semaphore values, and no node."""
    memory = Memory()
    image = pack_world(world, memory)
    found = unpack_world(image, memory, ctx_id=0, vcore=2)
    assert (len(image), found.identity) == (564408, IDENTITY)
    assert found.semaphore_values == tuple(range(0x10000, 0x10000 + 129))
    assert (found.node, found.ci, found.rank_nodes, found.barrier_entries) == (None, None, (), 0)
    assert struct.unpack_from("<QQ", image, 192)[1] == 516


def test_a_world_that_is_up_round_trips(world: GlobalComm) -> None:
    """After set-up it holds the node, the communicator's info, both tables and the barriers."""
    peers = [peer(device) for device in range(8)]
    ci = describe(peers, 5, cluster_id=1, epoch=2)
    global_node = replace(NODE, global_nccl_comm_node=True)
    world.comm = GroupComm(nccl_comm_node=global_node, ci=ci, nr_channel_chunks=8)
    world.rank_nodes, world.local_ranks = (0,) * 4 + (1,) * 4, (0, 1, 2, 3) * 2
    world.device_barrier_table = [
        BarrierEntry(peer=peer(4), barr_type=BarrierType.INTRA_CHIP, bit_to_set=1)
    ]
    world.local_peer_handles = {4: "there"}
    memory = Memory()
    image = pack_world(world, memory)
    found = unpack_world(image, memory, ctx_id=0, vcore=2)
    assert found.node is not None
    assert (found.node.key, found.node.global_nccl_comm_node) == (NODE.key, True)
    assert found.ci is not None
    assert (found.ci.rank, found.ci.rank_n, found.ci.node_n) == (5, 8, 2)
    assert (found.rank_nodes, found.local_ranks) == (world.rank_nodes, world.local_ranks)
    assert (found.barrier_entries, found.local_peer_handles) == (1, {4: "there"})
    shown = {row.field: row.value for row in rows(STRUCTS["enc_glb_comm"], image)}
    assert (shown["comm.ci.rank"], shown["nccl_comm_node.refcnt"], shown["pod_type"]) == (5, 3, 1)
    assert shown["comm.nr_channel_chunks"] == 8


@given(st.data())
def test_damaged_images_are_refused_or_read(data: st.DataObject) -> None:
    """Whatever stands in an image: values, or an InvalidProgram."""
    memory = Memory()
    pairs = PairsRecord(
        pairs=((0, 1),),
        participants=(0, 1),
        rank=0,
        rank_n=2,
        replica_group_id=1,
        src_target_pairs_id=0,
    )
    images = (
        (pack_group(GROUP, memory), unpack_group),
        (pack_pairs(pairs, memory), unpack_pairs),
        (pack_node(NODE, memory), unpack_node),
    )
    image, undo = data.draw(st.sampled_from(images))
    held = bytearray(image)
    for _ in range(data.draw(st.integers(1, 4))):
        held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidProgram):
        assert undo(bytes(held), memory)


def test_a_damaged_world_is_refused(world: GlobalComm) -> None:
    """Counts and pointers of a world that do not go together are an InvalidProgram."""
    memory = Memory()
    image = bytearray(pack_world(world, memory))
    struct.pack_into("<i", image, 208 + 8 + 8, -5)  # comm.ci.rank_n
    struct.pack_into("<Q", image, 72, 0x7F0000000000)  # rank_nodes
    with pytest.raises(InvalidProgram, match="are not part of this image"):
        unpack_world(bytes(image), memory, ctx_id=0, vcore=0)
