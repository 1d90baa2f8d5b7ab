"""What a protocol may ask of the outside: send a frame, or wait for one.

A protocol is a generator of these two and knows no socket, no clock and no transport. Peer trouble
comes back as an exception thrown at the `yield`: `PeerLost` where the other side went away,
`DeadlineExceeded` where the driver's time for this wait is over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import TypeAlias, TypeVar

import msgspec

from rankmuster.errors import DeadlineExceeded, MusterError, PeerLost, RemoteProtocolError

T = TypeVar("T")

PeerTrouble = (PeerLost, DeadlineExceeded, RemoteProtocolError)
"""What a protocol takes as that peer's no, and then goes on: the others still wait for it."""


class Send(msgspec.Struct, frozen=True, gc=False):
    """Hand *frame* to *peer*, a rank of the group.

    `grace` is that of `Recv`, for a channel whose sends block until the peer receives.
    """

    peer: int
    frame: bytes
    grace: int = 0


class Recv(msgspec.Struct, frozen=True, gc=False):
    """Wait for the next frame of *peer*, of at most *nbytes*; its exact size is `frames`' matter.

    `grace` counts the deadline margins that this wait may outlive the protocol's ordinary waits:
    0 up to and including the local barrier, 1 for the root while it collects reports, 2 for a
    process that waits for the root's answer (design: the answer must still reach everyone).
    """

    peer: int
    nbytes: int
    grace: int = 0


Steps: TypeAlias = Generator[Send | Recv, bytes, T]


def feed(steps: Steps[T], answer: bytes | MusterError | None) -> Send | Recv:
    """Give *steps* the answer to their last step; return the next. Raises what they raise.

    None starts them, and answers a send; trouble is thrown at them.
    """
    if isinstance(answer, MusterError):
        return steps.throw(answer)
    return steps.send(answer)  # type: ignore[arg-type] # who waits for a frame is never given None


def carry_out(steps: Steps[T], take: Callable[[Send | Recv], bytes | None]) -> T:
    """Run *steps* to their end where every step blocks; return what they return.

    *take* carries one out. What trouble with a peer means is for the steps to say; whatever else it
    or they raise ends the run.
    """
    with closing(steps):
        answer: bytes | MusterError | None = None
        while True:
            try:
                step = feed(steps, answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                answer = take(step)
            except PeerTrouble as trouble:
                answer = trouble
