"""The local barrier of a group (`setup_local_barrier`, S0 §5): nobody leaves before all have come.

Dissemination barrier: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier
synchronization", Int. J. of Parallel Programming 17(1), 1988, doi:10.1007/BF01379320. In round k
rank r tells r + 2^k and hears r - 2^k; after ceil(log2 n) rounds it has heard of everybody.
"""

from __future__ import annotations

from rankmuster.errors import MusterError
from rankmuster.protocol.frames import BARRIER, pack_barrier, unpack_barrier
from rankmuster.protocol.refusal import GroupRefused, graver, refused_by, tell
from rankmuster.protocol.steps import PeerTrouble, Recv, Steps


def barrier(rank: int, size: int, no: MusterError | None = None) -> Steps[MusterError | None]:
    """Wait until every rank of the group has come; return the reason to say no, or None.

    Every frame says whether its sender has heard of a failure, so a rank that has a *no* comes too
    and brings it along. With nobody lost, one *no* reaches all.
    """
    distance = 1
    while distance < size:
        ahead, behind = (rank + distance) % size, (rank - distance) % size
        # In a ring of blocking sends somebody has to receive first: those with this round's bit.
        if hears_first := rank & distance:
            no = yield from _hear(behind, no)
        no = graver(no, (yield from tell(ahead, pack_barrier(well=no is None))))
        if not hears_first:
            no = yield from _hear(behind, no)
        distance <<= 1
    return no


def arrive(rank: int, size: int, no: MusterError | None = None) -> Steps[MusterError | None]:
    """The first half of a barrier at rank 0, which is connected with all: it hears of everybody.

    The other half is whatever rank 0 tells all of them next. Rank 0 returns the reason to say no,
    the others their own.
    """
    if rank > 0:
        return graver(no, (yield from tell(0, pack_barrier(well=no is None))))
    for peer in range(1, size):
        no = yield from _hear(peer, no)
    return no


def _hear(peer: int, no: MusterError | None) -> Steps[MusterError | None]:
    try:
        well = unpack_barrier((yield Recv(peer, BARRIER.size)))
    except PeerTrouble as trouble:
        return graver(no, refused_by(peer, trouble))
    return no if well or no else GroupRefused(f"rank {peer} passes a no on", hearsay=True)
