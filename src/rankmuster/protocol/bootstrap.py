"""A group's bootstrap (`get_nccl_comm`, S0 §5): verdict up one tree, ticket down another.

The bytes are the original's. Its manners are not: there a rank that fails jumps out and its peers
wait for ever; here it still sends every frame it owes, with the flag false (facts D16).
It knows ranks of one group only, never devices or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rankmuster.errors import LocalProtocolError, MusterError
from rankmuster.protocol.frames import (
    NO_SIGNATURE,
    NO_UNIQUE_ID,
    TICKET,
    VERDICT,
    pack_ticket,
    pack_verdict,
    unpack_ticket,
    unpack_verdict,
)
from rankmuster.protocol.refusal import GroupRefused, graver, refused_by, tell
from rankmuster.protocol.steps import PeerTrouble, Recv, Steps


def tree_parent(rank: int) -> int:
    """The rank that *rank* reports to; it has one unless it is 0."""
    return (rank - 1) >> 1


def tree_children(rank: int, size: int) -> range:
    """The up to two ranks that report to *rank* in the binary tree."""
    return range(2 * rank + 1, min(2 * rank + 3, size))


def hypercube_parent(rank: int) -> int:
    """The rank whose ticket *rank* waits for: itself without its lowest bit."""
    return rank & (rank - 1)


def hypercube_children(rank: int, size: int) -> Iterator[int]:
    """The ranks that *rank* passes the ticket to, the largest subtree first (facts D13)."""
    span = rank & -rank if rank else 1 << (size - 1).bit_length()
    while span := span >> 1:
        if rank + span < size:
            yield rank + span


def reduce_verdict(
    rank: int, size: int, signature: bytes, no: MusterError | None = None
) -> Steps[MusterError | None]:
    """AND "my subtree agrees" up the binary tree; return the reason to say no, or None.

    Only rank 0's None speaks for the group. A rank that has a *no* of its own still hears both
    children: they wait for it.
    """
    odd: dict[int, bytes] = {}
    for child in tree_children(rank, size):
        try:
            theirs, agrees = unpack_verdict((yield Recv(child, VERDICT.size)))
        except PeerTrouble as trouble:
            no = graver(no, refused_by(child, trouble))
            continue
        if not agrees:
            heard = GroupRefused(f"rank {child}, or one that reports to it, says no", hearsay=True)
            no = graver(no, heard)
        # A rank that has no signature of its own to show refuses with zeroes.
        if theirs != signature and (agrees or theirs != NO_SIGNATURE):
            odd[child] = theirs
    if odd:
        no = graver(no, _differing({rank: signature, **odd}))
    if rank > 0:
        frame = pack_verdict(signature, agrees=no is None)
        no = graver(no, (yield from tell(tree_parent(rank), frame)))
    return no


def _differing(signatures: dict[int, bytes]) -> GroupRefused:
    """Children of a rank hold others than its own; which is the odd one, one edge cannot tell."""
    (rank, mine), *others = signatures.items()
    told = ", ".join(f"rank {child} holds signature {theirs.hex()}" for child, theirs in others)
    return GroupRefused(
        f"{told}, rank {rank}, their parent in the tree, {mine.hex()}", signatures=signatures
    )


class Answer(NamedTuple):
    """What comes down the hypercube: 16 or 128 bytes from the root, and its yes or no."""

    nbytes: int
    pack: Callable[..., bytes]
    unpack: Callable[[bytes], tuple[bytes, bool]]
    nothing: bytes


TICKETS = Answer(TICKET.size, pack_ticket, unpack_ticket, NO_UNIQUE_ID)
VERDICTS = Answer(VERDICT.size, pack_verdict, unpack_verdict, NO_SIGNATURE)


def broadcast_ticket(
    rank: int, size: int, unique_id: bytes, answer: Answer = TICKETS, *, agrees: bool
) -> Steps[tuple[bytes, bool, MusterError | None]]:
    """Fan rank 0's *unique_id* and verdict out over the hypercube; what others bring is ignored.

    Return both, and the reason to say no, or None. A rank that does not get them passes a refusal
    on: those below it wait too.
    """
    no: MusterError | None = None
    if rank == 0:
        ticket = answer.pack(unique_id if agrees else answer.nothing, agrees=agrees)
    else:
        parent = hypercube_parent(rank)
        try:
            ticket = yield Recv(parent, answer.nbytes)
            unique_id, agrees = answer.unpack(ticket)
        except PeerTrouble as trouble:
            no, agrees = refused_by(parent, trouble), False
            ticket = answer.pack(answer.nothing, agrees=False)
    for child in hypercube_children(rank, size):
        no = graver(no, (yield from tell(child, ticket)))
    return unique_id, agrees, no


def bootstrap(  # noqa: PLR0917 a rank's whole part in a group
    rank: int,
    size: int,
    signature: bytes | None,
    unique_id: bytes,
    no: MusterError | None = None,
    answer: Answer = TICKETS,
) -> Steps[bytes]:
    """Agree on *signature*, then learn rank 0's *unique_id* and return it.

    A rank with a *no* of its own takes part and says it: every frame owed, every flag false.
    Without a signature, on all ranks, the verdict is skipped and rank 0 speaks for the group (facts
    D15). Raises `NotAgreed` (that *no*, if it is one) if any rank disagrees or is lost. The others'
    *unique_id* is ignored.
    """
    if not 0 <= rank < size:
        raise LocalProtocolError(f"rank {rank} is outside a group of {size}")
    if signature is not None:
        no = yield from reduce_verdict(rank, size, signature, no)
    unique_id, agrees, heard = yield from broadcast_ticket(
        rank, size, unique_id, answer, agrees=no is None
    )
    no = graver(no, heard)
    if no:
        raise no
    if not agrees:
        raise GroupRefused(f"rank {rank} of {size} was told that the group disagrees", hearsay=True)
    return unique_id


def confirm(
    rank: int, size: int, signature: bytes | None, no: MusterError | None = None
) -> Steps[bytes]:
    """As `bootstrap`, in a group whose communicator is there already: no ticket, a verdict.

    Whoever holds none and takes part in a bootstrap hears another size than it waits for, and that
    is a no on both sides; let *signature* tell the two apart, and all hear of it.
    """
    return bootstrap(rank, size, signature, NO_SIGNATURE, no, VERDICTS)
