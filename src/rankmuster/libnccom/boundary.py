"""The boundary: eight calls, and the driver that runs a protocol's steps over two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rankmuster import messages
from rankmuster.errors import MusterError
from rankmuster.libnccom.info import CommInfo, PeerInfo
from rankmuster.protocol.frames import VERDICT
from rankmuster.protocol.steps import PeerTrouble, Recv, Send, Steps, carry_out
from rankmuster.transport.base import Deadline

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommRequest:
    """What a communicator is made of.

    `participants` are global device ids in rank order, `me` is the asking one. The global
    communicator of a *context* has no `parent` and meets at `root_comm_id`; every other one is made
    from the `unique_id` that its members agreed on over the parent.
    """

    participants: tuple[int, ...]
    rank: int
    me: PeerInfo
    context: int
    parent: Any = None
    unique_id: bytes = b""
    root_comm_id: str = ""
    disable_graph: bool = False


class Nccom(Protocol):
    """A collectives library (`neuron*` symbols). A communicator is whatever `init_comm` returns.

    Everything that waits takes a deadline. What goes wrong is a `MusterError`; in a send or receive
    it is one of `PeerTrouble` where the peer is to blame.
    """

    def init(self) -> None:
        """Make the library ready (`ncclInit`)."""

    def get_unique_id(self, size: int, tag: str) -> bytes:
        """A new id of 128 bytes for a group of *size* (`ncclGetUniqueId`)."""

    def init_comm(self, request: CommRequest, deadline: Deadline) -> Any:
        """Make a communicator; returns once it can be used (`ncclInitComm`)."""

    def bootstrap_send(self, comm: Any, peer: int, frame: bytes, deadline: Deadline) -> None:
        """Send *frame* to the device *peer*, in order (`ncclBootstrapSend`)."""

    def bootstrap_recv(self, comm: Any, peer: int, nbytes: int, deadline: Deadline) -> bytes:
        """The next frame of the device *peer*, at most *nbytes* (`ncclBootstrapRecv`)."""

    def build_graph(self, comm: Any) -> None:
        """Build the communicator's graph, which `init_comm` leaves out (`ncclBuildGraphComm`)."""

    def comm_info(self, comm: Any) -> CommInfo:
        """Who the members are and where they sit."""

    def close_comm(self, comm: Any) -> None:
        """Let the communicator go; closing twice is fine."""


def drive(
    steps: Steps[T],
    nccom: Nccom,
    comm: Any,
    participants: Sequence[int],
    deadline: Deadline,
    *,
    verdicts: bool = False,
) -> T:
    """Carry out one rank's *steps* among *participants* over the bootstrap socket of *comm*.

    Peers are addressed by global device id, never by rank (facts D14). A peer's trouble is thrown
    into the steps, which say no to the others and go on; where frames of 17 bytes are *verdicts*,
    it is told in S0's words.
    """

    def take(step: Send | Recv) -> bytes | None:
        peer = participants[step.peer]
        try:
            return _take(step, nccom, comm, peer, deadline)
        except PeerTrouble as error:
            if verdicts and _size(step) == VERDICT.size:
                raise _in_its_words(step, peer, error) from error
            raise

    return carry_out(steps, take)


def _take(
    step: Send | Recv, nccom: Nccom, comm: Any, peer: int, deadline: Deadline
) -> bytes | None:
    if isinstance(step, Recv):
        return nccom.bootstrap_recv(comm, peer, step.nbytes, deadline)
    nccom.bootstrap_send(comm, peer, step.frame, deadline)
    return None


def _size(step: Send | Recv) -> int:
    return step.nbytes if isinstance(step, Recv) else len(step.frame)


def _in_its_words(step: Send | Recv, peer: int, error: MusterError) -> MusterError:
    """The trouble as S0 §5 says it; the kind of error stays."""
    message = messages.NOT_RECEIVED if isinstance(step, Recv) else messages.NOT_SENT
    return type(error)(message(peer, error.what), fix=error.fix)
