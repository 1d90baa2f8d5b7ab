"""One world with all that hangs on it (`enc_glb_comm`): its buffers, its node, its channels."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from rankmuster import messages
from rankmuster.errors import OutOfResources
from rankmuster.libnccom.info import CommInfo, PeerInfo
from rankmuster.local_barrier import LocalBarrier
from rankmuster.pool import CommNode, CommunicatorPool
from rankmuster.worlds.identity import Identity

# 129 u32: a header, and one value for each of NCCL_NET_NEURON_MAX_REQUESTS. The listing's loop
# would write four times as much (facts D37, which also settles the values).
INC_RECV_SEM_VALUES = struct.Struct("<129I")
INC_RECV_SEM_BASE = 0x10000
assert INC_RECV_SEM_VALUES.size == 516

MapMemory = Callable[[int], mmap.mmap]


class BarrierType(IntEnum):
    """How far a barrier's peer is (`barrier_type`)."""

    INTRA_CHIP = 0
    INTRA_POD = 1
    INTER_CHIP = 2
    RING_LOCAL = 3
    RING_REMOTE = 4
    INTRA_RACK = 5
    INTER_RACK = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierEntry:
    """A line of the device-barrier table: whose bit stands for whom (`barrier_table_entry`)."""

    peer: PeerInfo
    barr_type: BarrierType
    bit_to_set: int


@dataclass(slots=True, kw_only=True)
class GroupComm:
    """A communicator as the program holds it (`enc_comm`): `id` and `stream_id` once bound.

    Groups without ops keep both None: their communicator exists, no op targets it (S0 §5).
    """

    nccl_comm_node: CommNode | None = None
    ci: CommInfo | None = None
    id: int | None = None
    stream_id: int | None = None
    nr_channel_chunks: int = 0
    chunk_size: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class GlobalComm:
    """One world of one core: an immutable identity, and state that set-up adds.

    `local_rings` are this machine's channels, `local_peer_handles` their addresses by device; both
    are None until set-up has run. The barrier table starts empty (facts D45).
    """

    identity: Identity
    inc_recv_sem_values_buffer: mmap.mmap
    device_barrier_table: list[BarrierEntry] = field(default_factory=list)
    rank_nodes: tuple[int, ...] = ()
    local_ranks: tuple[int, ...] = ()
    local_rings: LocalBarrier | None = None
    local_peer_handles: dict[int, str] | None = None
    comm: GroupComm = field(default_factory=GroupComm)
    pool: CommunicatorPool = field(default_factory=CommunicatorPool)

    @property
    def inc_recv_sem_values_buffer_size(self) -> int:
        """516: bytes, not entries."""
        return INC_RECV_SEM_VALUES.size

    @property
    def bootstrapped(self) -> bool:
        """Whether its communicator node exists."""
        return self.comm.nccl_comm_node is not None

    @property
    def bootstrap_socket(self) -> Any:
        """The library's own global communicator, over which all others bootstrap."""
        node = self.comm.nccl_comm_node
        assert node is not None, "a world is set up before it is used"
        return node.nccl_comm

    def free(self) -> None:
        """Give the memory map back; freeing twice is fine."""
        self.inc_recv_sem_values_buffer.close()


def anonymous_memory(size: int) -> mmap.mmap:
    """A private map of zeros. Raises OSError."""
    return mmap.mmap(-1, size)


def semaphore_values(map_memory: MapMemory) -> mmap.mmap:
    """The semaphore-increment values, mapped and filled. Raises `OutOfResources` (facts D39)."""
    try:
        buffer = map_memory(INC_RECV_SEM_VALUES.size)
    except OSError as error:
        raise OutOfResources(messages.NO_MAPPING(), fix=error.strerror or "") from error
    buffer[:] = INC_RECV_SEM_VALUES.pack(*range(INC_RECV_SEM_BASE, INC_RECV_SEM_BASE + 129))
    return buffer
