"""The communicator nodes of one core in one context, kept by who bootstraps them (S0 §2, §5).

Reference counted: a node is shared by every group with the same bootstrap participants on the same
stream. One thread at a time: whoever uses a pool holds its core's set-up lock. Knows no program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rankmuster import messages
from rankmuster.errors import BadArgument, InvariantError, PoolExhausted
from rankmuster.local_barrier import LocalBarrier
from rankmuster.signature.libnrt import pack_ids

MAX_STREAMS = 4  # ENC_MAX_STREAM_N
MAX_GROUPS = 12  # NEC_MAX_COMM_N; 16 from runtime 2.34.10 on
DECLARED, SORTED = "declared", "sorted"


@dataclass(slots=True, kw_only=True, eq=False)
class CommNode:
    """One bootstrapped communicator (`enc_nccl_comm_node`).

    `nccl_comm` is the library's own; None while the node is half built. `disable_graph` says that
    its graph is not built yet, and goes one way. `refcnt` counts the groups that share the node.
    """

    key: bytes
    stream_id: int
    context_id: int
    disable_graph: bool
    global_nccl_comm_node: bool = False
    refcnt: int = 1
    nccl_comm: Any = None
    unique_id: bytes = b""
    local_participants: tuple[int, ...] = ()
    local_leaders: tuple[int, ...] = ()
    my_local_leader: int = 0
    local_barrier: LocalBarrier | None = None
    intra_pod_interface: bool = False

    def use_barrier(self, barrier: LocalBarrier) -> None:
        """Take over a local barrier and what it knows of this machine."""
        self.local_barrier = barrier
        self.local_participants = barrier.plan.participants
        self.local_leaders = barrier.plan.leaders
        self.my_local_leader = barrier.plan.my_leader


def pool_key(bootstrap_participants: tuple[int, ...], rank_n: int) -> bytes:
    """The bytes that name a node: four a participant, in the order that they bootstrap in.

    Two groups with the same members in another order are two nodes. Raises BadArgument where the
    length is not *rank_n*: the original would read past its vector (facts D22).
    """
    if len(bootstrap_participants) != rank_n:
        raise BadArgument(
            f"a group of {rank_n} ranks has {len(bootstrap_participants)} bootstrap participants"
        )
    return pack_ids(bootstrap_participants)


def bootstrap_order(participants: tuple[int, ...], key_order: str) -> tuple[int, ...]:
    """The members in the order in which they bootstrap (facts D23).

    "sorted" is what 2.31.24 is taken to do. Its hazard: groups [0, 1] and [1, 0] then share one
    node, in which each rank's place is that of the sorted list, so that whoever takes a place in
    the node for a place in the group moves data of the wrong shard.
    """
    return tuple(sorted(participants)) if key_order == SORTED else participants


class CommunicatorPool:
    """The nodes of one (`nec_dev`, context), by stream and key (`nccl_comm_pool`)."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, bytes], CommNode] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[CommNode]:
        return iter(self._nodes.values())

    def find(self, stream_id: int, key: bytes) -> CommNode | None:
        """The node of a stream and key (`find_nccl_comm_node`)."""
        return self._nodes.get((stream_id, key))

    def acquire(
        self, node: CommNode, build: Callable[[CommNode], None], reuse: Callable[[CommNode], None]
    ) -> CommNode:
        """The pooled node like *node* once *reuse* has had its say, or *node* once *build* made it.

        A node that fails to build leaves nothing behind (facts D24); a hit that fails counts for
        nothing (D19). Raises what they raise, and `PoolExhausted` beyond the streams there are.
        """
        check_stream(node.stream_id)
        known = self.find(node.stream_id, node.key)
        if known is not None:
            reuse(known)
            known.refcnt += 1
            return known
        place = (node.stream_id, node.key)
        self._nodes[place] = node
        try:
            build(node)
        except BaseException:
            del self._nodes[place]
            raise
        return node

    def release(self, node: CommNode) -> bool:
        """Give one reference back; True for the last: the caller then destroys the node."""
        if self._nodes.get((node.stream_id, node.key)) is not node or node.refcnt < 1:
            raise InvariantError(f"a node with {node.refcnt} references is released once too often")
        node.refcnt -= 1
        if node.refcnt == 0:
            del self._nodes[node.stream_id, node.key]
        return node.refcnt == 0


def check_stream(stream_id: int) -> None:
    """Raise `PoolExhausted` for a stream that the runtime has not."""
    if not 0 <= stream_id < MAX_STREAMS:
        raise PoolExhausted(
            messages.STREAM_RANGE(stream_id), fix=f"use streams 0 to {MAX_STREAMS - 1}"
        )
