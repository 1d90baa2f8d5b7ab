"""A program's life: its groups, streams and signatures, and the order of its calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from nrt_worlds import Agreeable, registry, settings

from rankmuster.errors import (
    InvalidProgram,
    InvariantError,
    OutOfOrder,
    PoolExhausted,
    WorldNotBuilt,
)
from rankmuster.nrt.comms import get_nccl_comm
from rankmuster.nrt.groups import parse_src_target_pairs
from rankmuster.nrt.model import Compat, Model, ModelState
from rankmuster.nrt.streams import StreamMap
from rankmuster.program import Program
from rankmuster.resolve import Resolved
from rankmuster.signature.libnrt import sign
from rankmuster.status import Status
from rankmuster.testing.build import all_gather, all_reduce, permute, program, recv, send
from rankmuster.transport.base import Deadline
from rankmuster.worlds.global_comm import GlobalComm
from rankmuster.worlds.setup import setup, tear_down

PAIRS = [(2, 3), (0, 1), (1, 2)]
GROUPS = [[[0, 1], [2, 3]], [[0, 2, 1, 3]], [[0, 1, 2, 3]]]
PROGRAM = program(
    all_reduce(7, group=0), all_gather(5, group=1), permute(), groups=GROUPS, pairs=[PAIRS]
)


class World:
    """Device 3 of a world of 4, whose other devices agree with whatever it says."""

    def __init__(self) -> None:
        self.nccom, self.registry = Agreeable(), registry()
        self.comm: GlobalComm = self.registry.init(0, 3, 4, 0)
        setup(self.registry, self.comm, self.nccom, soon())

    def model(
        self, *functions: Program, environ: dict[str, str] | None = None, **rest: Any
    ) -> Model:
        rest = {"compat": Compat()} | rest
        return Model(functions, self.comm, self.nccom, settings(**environ or {}), **rest)

    def parsed(self, *functions: Program, **rest: Any) -> Model:
        model = self.model(*functions, **rest)
        model.parse()
        return model

    def loaded(self, *functions: Program, **rest: Any) -> Model:
        model = self.parsed(*functions, **rest)
        model.load(soon())
        return model

    def close(self) -> None:
        tear_down(self.registry, self.comm, self.nccom)


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    made.close()


def soon() -> Deadline:
    return Deadline.after(5.0)


def refuses(*calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(OutOfOrder):
            call()


def test_records(world: World) -> None:
    """Each set gives the device's own sub-group, rank, ops and flags; pairs follow, as groups."""
    model = world.parsed(PROGRAM)
    shown = [
        (r.group_id, r.rank, r.rank_n, r.participants, r.num_ops, r.src_target_pairs_id)
        for r in model.replica_groups
    ]
    assert shown == [
        (0, 1, 2, (2, 3), 1, -1),
        (1, 3, 4, (0, 2, 1, 3), 1, -1),
        (2, 3, 4, (0, 1, 2, 3), 0, -1),
        (3, 3, 4, (0, 1, 2, 3), 1, 0),
    ]
    flags = [(r.nccl_mesh_supported, r.must_use_ring_alg, r.sendrecv) for r in model.replica_groups]
    assert flags == [(True, False, False)] * 3 + [(True, True, False)]
    (pairs,) = model.src_target_pairs
    assert (pairs.pairs, pairs.participants) == (tuple(sorted(PAIRS)), (0, 1, 2, 3))
    assert (pairs.rank, pairs.rank_n, pairs.replica_group_id) == (3, 4, 3)


def test_signatures(world: World) -> None:
    """Records hold their group's MD5; the whole is the MD5 of all of them in order."""
    model = world.parsed(PROGRAM)
    signed = sign(Resolved(PROGRAM), 3)
    assert [r.signature for r in model.replica_groups] == list(signed.groups.values())
    assert model.src_target_pairs[0].signature == model.replica_groups[3].signature
    joined = b"".join(r.signature for r in model.replica_groups)
    assert model.signature == hashlib.md5(joined).digest()


def test_functions_are_signed_in_order(world: World) -> None:
    """A group's ops are those of all functions; exchanging two functions changes its signature."""
    first = program(all_reduce(7), groups=GROUPS)
    second = program(all_reduce(9), groups=GROUPS)
    both = program(all_reduce(7), all_reduce(9), groups=GROUPS)
    assert world.parsed(first, second).signature == world.parsed(both).signature
    assert world.parsed(second, first).signature != world.parsed(both).signature
    with pytest.raises(InvalidProgram, match="function 1 has other tables"):
        world.model(first, program(all_reduce(7), groups=[[[0, 1, 2, 3]]]))


def test_only_the_owner_signs_and_only_in_parse(world: World) -> None:
    """Without the collective ops nothing is signed; after parse signing is out of order (D10)."""
    stranger = world.parsed(PROGRAM, ccop_owner=False)
    assert (stranger.signature, {r.signature for r in stranger.replica_groups}) == (
        None,
        {bytes(16)},
    )
    model = world.loaded(PROGRAM)
    with pytest.raises(OutOfOrder, match=r"not in parse state \(1\)"):
        model.calculate_signature()
    model.unload()


def test_pairs_are_parsed_once(world: World) -> None:
    """However many instructions ask, the gate lets the first through only."""
    model = world.parsed(PROGRAM)
    model.build_cc_context()
    assert (len(model.src_target_pairs), len(model.replica_groups)) == (1, 4)


def test_life(world: World) -> None:
    """Load, start, stop and start again; any other order is refused."""
    model = world.model(PROGRAM)
    refuses(model.start, model.stop)
    model.parse()
    model.load(soon())
    refuses(model.parse, lambda: model.load(soon()), model.stop)
    for call in (model.start, model.stop, model.start):
        call()
    assert model.state is ModelState.START
    model.unload()
    refuses(model.start, model.stop, lambda: model.load(soon()), model.parse)


def test_communicators(world: World) -> None:
    """Each group has one, bound where it posts ops; equal lists share a node."""
    model = world.loaded(PROGRAM)
    bound = {gid: (comm.id, comm.stream_id) for gid, comm in model.comms.items()}
    assert bound == {0: (0, 0), 1: (1, 0), 2: (None, None), 3: (3, 0)}
    nodes = {gid: comm.nccl_comm_node for gid, comm in model.comms.items()}
    assert nodes[2] is nodes[3]
    assert [(node.refcnt if node else 0) for node in nodes.values()] == [1, 1, 2, 2]
    assert {(comm.nr_channel_chunks, comm.chunk_size) for comm in model.comms.values()} == {
        (8, 2 << 20)
    }
    model.unload()
    assert [request.parent for request in world.nccom.open] == [None]


def test_chunks_by_environment(world: World) -> None:
    """Their number and size come from two variables."""
    chosen = {"NEURON_RT_CC_CHANNEL_BUFFER_N": "4", "NEURON_RT_CC_CHUNK_SIZE": "65536"}
    model = world.loaded(program(all_reduce(7), groups=GROUPS[:1]), environ=chosen)
    assert (model.comms[0].nr_channel_chunks, model.comms[0].chunk_size) == (4, 65536)
    model.unload()


def test_the_graph_goes_one_way(world: World) -> None:
    """A group that never posts leaves the graph out; the first that posts builds it, once (D20)."""
    idle = world.loaded(program(groups=GROUPS[2:]))
    node = idle.comms[0].nccl_comm_node
    assert node is not None
    assert (node.disable_graph, world.nccom.graphs) == (True, [])
    busy = [world.loaded(program(all_reduce(7), groups=GROUPS[2:])) for _ in range(2)]
    assert (node.disable_graph, len(world.nccom.graphs), node.refcnt) == (False, 1, 3)
    for model in (idle, *busy):
        model.unload()
    assert node.refcnt == 0


def test_what_fails_is_given_back(world: World) -> None:
    """The third group fails: the two before are freed, and nothing stays in the pool."""
    from rankmuster.errors import SetupFailed

    model = world.parsed(program(all_reduce(7), groups=GROUPS[:1]))
    world.nccom.fails["init_comm"] = SetupFailed("no")
    with pytest.raises(SetupFailed):
        model.load(soon())
    assert (len(world.comm.pool), len(world.nccom.open)) == (0, 1)


def test_streams(world: World) -> None:
    """A group's stream is that of its ops: one of those there are, and one only (D27)."""
    two = program(
        all_reduce(7, stream=1), all_reduce(7, group=2, stream=1), groups=GROUPS, num_streams=2
    )
    model = world.loaded(two)
    assert [model.stream_id_map.ids[:4], model.comms[0].stream_id] == [[1, -1, 1, -1], 1]
    model.unload()
    split = program(all_reduce(7, stream=0), all_reduce(7, stream=1), groups=GROUPS, num_streams=2)
    with pytest.raises(InvalidProgram, match="streams 0 and 1"):
        world.parsed(split)
    with pytest.raises(InvalidProgram, match="stream 1 of 1"):
        world.parsed(program(all_reduce(7, stream=1), groups=GROUPS))
    with pytest.raises(PoolExhausted):
        world.model(program(groups=GROUPS, num_streams=5))


def test_an_unset_stream_is_our_bug() -> None:
    """A group with ops has a stream by now; one without gets stream 0."""
    streams = StreamMap(1, 12)
    assert streams.resolve(3, 0) == 0
    with pytest.raises(InvariantError):
        streams.resolve(3, 1)


def test_limits(world: World) -> None:
    """Twelve groups, or sixteen where the variable says so (D36)."""
    many = program(groups=[GROUPS[2]] * 13)
    with pytest.raises(PoolExhausted) as caught:
        world.parsed(many)
    assert caught.value.status is Status.RESOURCE
    model = world.parsed(many, environ={"RANKMUSTER_NRT_MAX_GROUPS": "16"})
    assert len(model.replica_groups) == 13


BAD = {
    "out of range": program(all_reduce(7), groups=[[[0, 1, 2, 3, 4]]]),
    "overlapping": program(all_reduce(7), groups=[[[0, 1], [1, 2, 3]]]),
    "two targets": program(permute(), pairs=[[(0, 1), (2, 1), (3, 0)]]),
    "two sources": program(permute(), pairs=[[(0, 1), (0, 2), (3, 0)]]),
    "pair out of range": program(permute(), pairs=[[(0, 9)]]),
    "without myself": program(all_reduce(7), groups=[[[0, 1]]]),
}


@pytest.mark.parametrize("which", BAD)
def test_groups_that_cannot_be(which: str, world: World) -> None:
    """Ids out of range, repeated ones, and collectives that leave this device out (D29, D34)."""
    with pytest.raises(InvalidProgram) as caught:
        world.parsed(BAD[which])
    assert caught.value.status is Status.INVALID


def test_not_a_member(world: World) -> None:
    """Messages and pairs may leave a device out: rank -1, no communicator (D29, D30)."""
    model = world.loaded(program(send(1), recv(0), groups=[[[0, 1]]], pairs=[[(0, 1), (1, 0)]]))
    assert [(r.rank, r.participants, r.signature) for r in model.replica_groups] == [
        (-1, (), bytes(16))
    ] * 2
    assert (model.comms, model.signature) == ({}, None)


def test_strict_cpp_aliases_an_outsider(world: World) -> None:
    """The original puts a device that no pair names into vertex 0's component (D30)."""
    model = world.parsed(
        program(permute(), pairs=[[(0, 1), (1, 0)]]), compat=Compat(strict_cpp=True)
    )
    assert (model.src_target_pairs[0].participants, model.src_target_pairs[0].rank) == ((0, 1), -1)


def test_hash_only_nonmember_groups(world: World) -> None:
    """By the listing's word, the groups of this device stay unsigned (D5)."""
    compat = Compat(hash_only_nonmember_groups=True)
    model = world.parsed(program(all_reduce(7), groups=GROUPS[2:]), compat=compat)
    assert model.replica_groups[0].signature == bytes(16)


def test_sorted_keys_and_their_hazard(world: World) -> None:
    """Sorted keys make [3, 0, 2, 1] and [0, 1, 2, 3] one node, with places of its own."""
    environ = {"RANKMUSTER_NRT_KEY_ORDER": "sorted"}
    model = world.loaded(program(groups=[[[3, 0, 2, 1]], [[0, 1, 2, 3]]]), environ=environ)
    first, second = model.replica_groups
    assert (first.rank, first.bootstrap_rank, second.bootstrap_rank) == (0, 3, 3)
    assert model.comms[0].nccl_comm_node is model.comms[1].nccl_comm_node
    model.unload()


def test_sorted_groups(world: World) -> None:
    """NEURON_RT_DBG_CC_SORT_RG sorts the groups themselves."""
    model = world.parsed(program(groups=GROUPS[1:2]), environ={"NEURON_RT_DBG_CC_SORT_RG": "1"})
    assert model.replica_groups[0].participants == (0, 1, 2, 3)


def test_pairs_need_a_world() -> None:
    """Without a global communicator pairs cannot be parsed: their key is the global id (S1 §3)."""
    with pytest.raises(WorldNotBuilt) as caught:
        parse_src_target_pairs(None, [], {}, key_order="declared", max_groups=12)
    assert caught.value.status is Status.UNINITIALIZED


def test_a_stream_out_of_range(world: World) -> None:
    """`get_nccl_comm` refuses a fifth stream before anything else."""
    record = world.parsed(PROGRAM).replica_groups[0]
    with pytest.raises(PoolExhausted):
        get_nccl_comm(world.comm, record, 4, world.nccom, soon(), disable_graph=True)


def test_an_impossible_rank_is_our_bug(world: World) -> None:
    """A rank outside its group never reaches the wire."""
    record = world.parsed(PROGRAM).replica_groups[0]
    record.bootstrap_rank = 5
    with pytest.raises(InvariantError, match="rank_n > 0 && rank < rank_n"):
        get_nccl_comm(world.comm, record, 0, world.nccom, soon(), disable_graph=True)
