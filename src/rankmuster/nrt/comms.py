"""From a group to its communicator: agree, take or make the node, bind it (S0 §5)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from hashlib import blake2b

from rankmuster import messages
from rankmuster.environment import Settings
from rankmuster.errors import (
    DeadlineExceeded,
    InvariantError,
    MusterError,
    NotAgreed,
    PeerLost,
    RemoteProtocolError,
    SetupFailed,
)
from rankmuster.libnccom.boundary import CommRequest, Nccom, drive
from rankmuster.local_barrier import open_barrier
from rankmuster.nrt.groups import ReplicaGroupRecord
from rankmuster.nrt.streams import StreamMap
from rankmuster.pool import CommNode, check_stream, pool_key
from rankmuster.protocol.bootstrap import bootstrap, confirm
from rankmuster.protocol.frames import NO_SIGNATURE, NO_UNIQUE_ID, SIGNATURE_BYTES
from rankmuster.protocol.refusal import GroupRefused
from rankmuster.protocol.steps import Steps
from rankmuster.transport.base import Deadline
from rankmuster.worlds.global_comm import GlobalComm, GroupComm
from rankmuster.worlds.setup import destroy, own_peer, places

KEPT = (PeerLost, DeadlineExceeded, RemoteProtocolError)
"""What a group's refusal was caused by decides its status; anything else is a plain no."""
ALIKE = "load and unload the same programs in every process"


def nccl_init_comm(  # noqa: PLR0917 one of each
    world: GlobalComm,
    record: ReplicaGroupRecord,
    streams: StreamMap,
    nccom: Nccom,
    settings: Settings,
    deadline: Deadline,
) -> GroupComm:
    """The communicator of a group, bound to its stream where the group posts ops.

    One without ops is bootstrapped all the same, and stays unbound (facts D26).
    """
    stream_id = streams.resolve(record.group_id, record.num_ops)
    node = get_nccl_comm(
        world, record, stream_id, nccom, deadline, disable_graph=record.num_ops == 0
    )
    comm = GroupComm(nccl_comm_node=node)
    try:
        comm.ci = nccom.comm_info(node.nccl_comm)
    except MusterError:
        release(world, node, nccom)
        raise
    comm.nr_channel_chunks, comm.chunk_size = nccl_setup_comm(settings)
    if record.num_ops > 0:
        comm.id, comm.stream_id = record.group_id, stream_id
    return comm


def nccl_setup_comm(settings: Settings) -> tuple[int, int]:
    """How many chunks a channel has, and their size in bytes."""
    return settings["NEURON_RT_CC_CHANNEL_BUFFER_N"], settings["NEURON_RT_CC_CHUNK_SIZE"]


def get_nccl_comm(
    world: GlobalComm,
    record: ReplicaGroupRecord,
    stream_id: int,
    nccom: Nccom,
    deadline: Deadline,
    *,
    disable_graph: bool,
) -> CommNode:
    """The node of a group's bootstrap participants: pooled, or made now.

    The caller holds the core's set-up lock. Unlike the original's, a hit checks the signatures too:
    what it saves is the ticket, the library's own set-up and the local barrier. Raises `NotAgreed`
    where they differ, `PeerLost` and `DeadlineExceeded` where somebody did not take part.
    """
    check_stream(stream_id)
    node = CommNode(
        key=pool_key(record.bootstrap_participants, record.rank_n),
        stream_id=stream_id,
        context_id=world.identity.ctx_id,
        disable_graph=disable_graph,
    )
    build = partial(_build, world, record, nccom, deadline)
    reuse = partial(_reuse, world, record, nccom, deadline, disable_graph=disable_graph)
    return world.pool.acquire(node, build, reuse)


def release(world: GlobalComm, node: CommNode, nccom: Nccom) -> None:
    """Give a group's share in a node back; the last one destroys it (`free_nccl_comm_node`)."""
    if world.pool.release(node):
        destroy(node, nccom)


def _build(
    world: GlobalComm,
    record: ReplicaGroupRecord,
    nccom: Nccom,
    deadline: Deadline,
    node: CommNode,
) -> None:
    node.unique_id = agree(world, record, nccom, deadline)
    try:
        _init(world, record, nccom, deadline, node)
    except BaseException:
        destroy(node, nccom)
        raise


def _init(
    world: GlobalComm,
    record: ReplicaGroupRecord,
    nccom: Nccom,
    deadline: Deadline,
    node: CommNode,
) -> None:
    ci = world.comm.ci
    assert ci is not None, "a world is set up before its groups"
    me = own_peer(world.identity, ci)
    request = CommRequest(
        participants=record.bootstrap_participants,
        rank=record.bootstrap_rank,
        me=me,
        context=world.identity.ctx_id,
        parent=world.bootstrap_socket,
        unique_id=node.unique_id,
        disable_graph=node.disable_graph,
    )
    try:
        node.nccl_comm = nccom.init_comm(request, deadline)
    except MusterError as error:
        what = messages.NO_COMM(node.stream_id, record.group_id)
        raise SetupFailed(what, fix=str(error)) from error
    name = node.unique_id + node.stream_id.to_bytes(4, "little")
    try:
        here = places(ci, me, record.bootstrap_participants)
        node.use_barrier(open_barrier(name, here, me.device, deadline))
    except MusterError as error:
        kind = DeadlineExceeded if isinstance(error, DeadlineExceeded) else SetupFailed
        raise kind(messages.NO_LOCAL_BARRIER(), fix=str(error)) from error


def _reuse(
    world: GlobalComm,
    record: ReplicaGroupRecord,
    nccom: Nccom,
    deadline: Deadline,
    node: CommNode,
    *,
    disable_graph: bool,
) -> None:
    _carry_out(_confirm(world, record, node), world, record, nccom, deadline)
    if node.disable_graph and not disable_graph:  # one way (facts D20)
        nccom.build_graph(node.nccl_comm)
        node.disable_graph = False


def agree(world: GlobalComm, record: ReplicaGroupRecord, nccom: Nccom, deadline: Deadline) -> bytes:
    """Compare signatures up the binary tree, hear the verdict and the id down the hypercube.

    Without `check_sigs` nothing goes up and the root speaks for all (facts D15).
    """
    unique_id, no = NO_UNIQUE_ID, None
    if record.bootstrap_rank == 0:
        try:
            unique_id = nccom.get_unique_id(record.rank_n, messages.UNIQUE_ID_TAG())
        except MusterError as error:
            no = SetupFailed(messages.NO_UNIQUE_ID(), fix=str(error))
            no.__cause__ = error
    signature = record.signature if world.identity.check_sigs else None
    steps = bootstrap(record.bootstrap_rank, record.rank_n, signature, unique_id, no)
    return _carry_out(steps, world, record, nccom, deadline)


def refuse_group(  # noqa: PLR0917 one of each
    world: GlobalComm,
    record: ReplicaGroupRecord,
    stream_id: int,
    no: MusterError,
    nccom: Nccom,
    deadline: Deadline,
) -> None:
    """Say no to a group in which others may wait for us: every frame owed, every flag false."""
    key = pool_key(record.bootstrap_participants, record.rank_n)
    if node := world.pool.find(stream_id, key):
        steps = _confirm(world, record, node, no)
    else:
        signature = NO_SIGNATURE if world.identity.check_sigs else None
        rank, size = record.bootstrap_rank, record.rank_n
        steps = bootstrap(rank, size, signature, NO_UNIQUE_ID, no)
    with suppress(MusterError):  # the reason is known already
        drive(steps, nccom, world.bootstrap_socket, record.bootstrap_participants, deadline)


def _confirm(
    world: GlobalComm, record: ReplicaGroupRecord, node: CommNode, no: MusterError | None = None
) -> Steps[bytes]:
    """Compare what a pooled node is taken for: signature and id at once.

    Whoever made the node anew, or has it no more, holds another id.
    """
    held = blake2b(record.signature + node.unique_id, digest_size=SIGNATURE_BYTES).digest()
    signature = held if world.identity.check_sigs else None
    return confirm(record.bootstrap_rank, record.rank_n, signature, no)


def _carry_out(
    steps: Steps[bytes],
    world: GlobalComm,
    record: ReplicaGroupRecord,
    nccom: Nccom,
    deadline: Deadline,
) -> bytes:
    rank, size = record.bootstrap_rank, record.rank_n
    if not 0 <= rank < size:
        raise InvariantError(messages.GROUP_RANK(rank, size))
    try:
        members = record.bootstrap_participants
        return drive(steps, nccom, world.bootstrap_socket, members, deadline, verdicts=True)
    except GroupRefused as refused:
        raise _refusal(record, refused) from refused


def _refusal(record: ReplicaGroupRecord, refused: GroupRefused) -> MusterError:
    cause = refused.__cause__
    if isinstance(cause, KEPT):
        fix = ALIKE if isinstance(cause, RemoteProtocolError) else cause.fix
        return type(cause)(f"group {record.group_id}: {cause.what}", fix=fix)
    return NotAgreed(
        messages.MISMATCH(record.group_id, refused.what),
        fix=f"compare the programs with 'rankmuster check'; {ALIKE}",
    )
