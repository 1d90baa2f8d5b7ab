"""Setting a world up: its members meet, and what only they know is put on it (S0 §6).

The second gate after making one (`enc_setup_global_comm`). Reserving device memory for the
hierarchical, RDH and mesh algorithms, which the original does here too, has no counterpart.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rankmuster import messages
from rankmuster.errors import (
    BadArgument,
    DeadlineExceeded,
    MusterError,
    OutOfResources,
    SetupFailed,
)
from rankmuster.libnccom.boundary import CommRequest, Nccom
from rankmuster.libnccom.info import CommInfo, PeerInfo
from rankmuster.local_barrier import LocalBarrier, Member, open_barrier
from rankmuster.pool import CommNode, pool_key
from rankmuster.transport.base import Deadline
from rankmuster.worlds.global_comm import GlobalComm, GroupComm
from rankmuster.worlds.identity import Identity
from rankmuster.worlds.registry import Lock, WorldRegistry

MAX_WORLD = 1 << 20  # devices of a world that is set up: each holds a list of all


def peer_info(identity: Identity, host: str = "") -> PeerInfo:
    """What a device tells the others about itself; *host* is this machine's name."""
    return PeerInfo(
        device=identity.g_device_id,
        neuron_dev=identity.nec_dev_id,
        rid=identity.routing_id,
        tpb_index=identity.vcore,
        pod_type=identity.pod_type,
        pod_node_id=identity.pod_node_id,
        reservation_id=identity.reservation_id,
        host=host or socket.gethostname(),
        pid=os.getpid(),
    )


def own_peer(identity: Identity, ci: CommInfo) -> PeerInfo:
    """What a device told the others in the world of *ci*."""
    told = (peer for peer in ci.peers if peer.device == identity.g_device_id)
    return next(told, None) or peer_info(identity)


@contextmanager
def holding(setup_lock: Lock, deadline: Deadline) -> Iterator[None]:
    """Hold a core's set-up lock. Raises `DeadlineExceeded` where another call keeps it."""
    if not setup_lock.acquire(timeout=min(deadline.remaining(), 1e6)):
        raise DeadlineExceeded("another call on this core still runs")
    try:
        yield
    finally:
        setup_lock.release()


def setup(
    registry: WorldRegistry, world: GlobalComm, nccom: Nccom, deadline: Deadline, host: str = ""
) -> None:
    """Bootstrap *world* where it is not; the caller holds its core's set-up lock.

    Raises what the library raises, and `SetupFailed` where it contradicts the world. A world whose
    set-up fails is taken out of the registry: nothing is left behind, and it may be built anew.
    """
    identity = world.identity
    if registry.get(identity.nec_dev_id, identity.ctx_id) is not world:
        raise SetupFailed(f"the world of core {identity.nec_dev_id} was given up meanwhile")
    if not world.bootstrapped:
        try:
            _install(world, nccom, deadline, host)
        except BaseException:
            registry.remove(world)
            raise
    check_invariants(world)


def check_invariants(world: GlobalComm) -> None:
    """What must hold once a world is set up: the library sees it as it is (facts D46)."""
    identity, ci = world.identity, world.comm.ci
    if ci is None or identity.g_device_id != ci.rank:
        raise SetupFailed(messages.SETUP_RANK())
    if identity.g_device_cnt != ci.rank_n:
        raise SetupFailed(messages.SETUP_SIZE())
    if world.local_rings is None:
        raise SetupFailed(messages.SETUP_RINGS())
    if world.local_peer_handles is None:
        raise SetupFailed(messages.SETUP_HANDLES())


def _install(world: GlobalComm, nccom: Nccom, deadline: Deadline, host: str) -> None:
    """Meet at the root address, without tree or ticket (`enc_setup_global_comm_internal`, D17)."""
    identity = world.identity
    if identity.g_device_cnt > MAX_WORLD:
        raise OutOfResources(f"a world of {identity.g_device_cnt} devices is over {MAX_WORLD}")
    me = peer_info(identity, host)
    participants = tuple(range(identity.g_device_cnt))
    comm = nccom.init_comm(
        CommRequest(
            participants=participants,
            rank=identity.g_device_id,
            me=me,
            context=identity.ctx_id,
            root_comm_id=identity.root_comm_id,
            disable_graph=True,
        ),
        deadline,
    )
    made = _Half(comm)
    try:
        _fill(world, made, nccom, me, deadline)
    except BaseException:
        made.undo(world, nccom)
        raise


@dataclass(slots=True)
class _Half:
    """What exists so far of a world's set-up."""

    nccl_comm: Any
    barrier: LocalBarrier | None = None

    def undo(self, world: GlobalComm, nccom: Nccom) -> None:
        world.comm = GroupComm()
        world.local_rings = world.local_peer_handles = None
        if self.barrier is not None:
            self.barrier.close()
        with suppress(MusterError):  # the first error is the one to tell
            nccom.close_comm(self.nccl_comm)


def _fill(world: GlobalComm, made: _Half, nccom: Nccom, me: PeerInfo, deadline: Deadline) -> None:
    identity = world.identity
    ci = nccom.comm_info(made.nccl_comm)
    name = repr((ci.cluster_id, ci.epoch, identity.root_comm_id, identity.ctx_id)).encode()
    made.barrier = open_barrier(name, places(ci, me), me.device, deadline)
    node = CommNode(
        key=pool_key(tuple(range(identity.g_device_cnt)), identity.g_device_cnt),
        stream_id=0,
        context_id=identity.ctx_id,
        disable_graph=True,
        global_nccl_comm_node=True,
        nccl_comm=made.nccl_comm,
    )
    node.use_barrier(made.barrier)
    world.comm = GroupComm(nccl_comm_node=node, ci=ci)
    world.local_rings, world.local_peer_handles = made.barrier, made.barrier.handles
    hosts = list(dict.fromkeys(peer.host for peer in ci.peers))
    world.rank_nodes = tuple(hosts.index(peer.host) for peer in ci.peers)
    world.local_ranks = made.barrier.plan.participants
    check_invariants(world)


def places(ci: CommInfo, me: PeerInfo, members: Sequence[int] | None = None) -> list[Member]:
    """Where each of *members* (all by default) is, as far as the library tells."""
    peers = {peer.device: peer for peer in ci.peers} or {me.device: me}
    chosen = peers if members is None else [device for device in members if device in peers]
    if me.device not in chosen:
        raise BadArgument(f"device {me.device} is not among {list(chosen)}")
    return [(device, peers[device].host, peers[device].pid) for device in chosen]


def tear_down(registry: WorldRegistry, world: GlobalComm, nccom: Nccom) -> None:
    """Undo the set-up and take the world out; the caller has released its groups."""
    node = world.comm.nccl_comm_node
    registry.remove(world)
    if node is not None:
        destroy(node, nccom)


def destroy(node: CommNode, nccom: Nccom) -> None:
    """Free a node that nobody refers to any more: barrier first, then the library's own."""
    if node.local_barrier is not None:
        node.local_barrier.close()
    if node.nccl_comm is not None:
        nccom.close_comm(node.nccl_comm)
    node.nccl_comm = node.local_barrier = None
