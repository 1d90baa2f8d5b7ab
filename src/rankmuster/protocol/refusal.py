"""How a rank says no, and how it keeps its word to the others while it does.

It knows ranks of one group, and no tree.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankmuster.errors import MusterError, NotAgreed
from rankmuster.protocol.steps import PeerTrouble, Send, Steps


class GroupRefused(NotAgreed):
    """The group said no.

    `rank` is whom this rank saw fail, None where it saw no one rank fail; *hearsay* is a no that
    others began. `signatures` are those of ranks that differ, this rank's first.
    """

    def __init__(
        self,
        what: str,
        *,
        rank: int | None = None,
        hearsay: bool = False,
        signatures: Mapping[int, bytes] | None = None,
        fix: str = "",
    ) -> None:
        super().__init__(what, fix=fix)
        self.rank, self.hearsay = rank, hearsay
        self.signatures = signatures or {}


def tell(peer: int, frame: bytes) -> Steps[MusterError | None]:
    """Send, and go on where *peer* is lost: the others still wait for the rest of our frames."""
    try:
        yield Send(peer, frame)
    except PeerTrouble as trouble:
        return refused_by(peer, trouble)
    return None


def refused_by(rank: int, trouble: MusterError) -> GroupRefused:
    """The no of a *rank* that was lost, too late or not understood."""
    refusal = GroupRefused(f"rank {rank}: {trouble.what}", rank=rank, fix=trouble.fix)
    refusal.__cause__ = trouble
    return refusal


def graver(no: MusterError | None, heard: MusterError | None) -> MusterError | None:
    """The first of two reasons to say no, except that what was seen goes before hearsay."""
    return heard or no if no is None or is_hearsay(no) else no


def is_hearsay(no: MusterError) -> bool:
    """Whether *no* was only passed on: whoever began it knows more."""
    return isinstance(no, GroupRefused) and no.hearsay
