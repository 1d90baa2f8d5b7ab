"""The whole bring-up of one group, one rank's part in a straight line.

Bootstrap, barrier, closing round. A rank that hears a no goes through all three all the same:
whoever heard a yes so far waits for it in the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rankmuster.errors import MusterError, NotAgreed
from rankmuster.protocol.barrier import barrier
from rankmuster.protocol.bootstrap import bootstrap
from rankmuster.protocol.causes import Cause
from rankmuster.protocol.closing import Answer, blame, closing
from rankmuster.protocol.frames import NO_UNIQUE_ID
from rankmuster.protocol.odd import Signed
from rankmuster.protocol.refusal import GroupRefused, graver
from rankmuster.protocol.steps import Steps

Form: TypeAlias = Callable[[int, int, bytes | None, bytes, MusterError | None], Steps[bytes]]
"""How a group forms: `form_group`, or `bootstrap` alone."""


class MusterRefused(NotAgreed):
    """The root's answer was no, or the root was lost; `answer` says why."""

    def __init__(self, answer: Answer) -> None:
        more = len(answer.causes) - 1 + answer.omitted
        super().__init__(answer.causes[0].message + (f" (and {more} more)" if more else ""))
        self.answer = answer


def form_group(
    rank: int, size: int, signature: bytes | None, unique_id: bytes, no: MusterError | None = None
) -> Steps[bytes]:
    """Bootstrap and barrier of one group; return its unique id.

    A rank with a *no* of its own (it failed before its part) still sends every frame it owes.
    Raises that *no*, or a `NotAgreed`, if this rank has one or has heard of one.
    """
    try:
        unique_id = yield from bootstrap(rank, size, signature, unique_id, no)
    except MusterError as error:
        no, unique_id = error, NO_UNIQUE_ID
    no = graver(no, (yield from barrier(rank, size, no)))
    if no:
        raise no
    return unique_id


def muster(
    rank: int,
    size: int,
    signature: bytes | None,
    unique_id: bytes,
    no: MusterError | None = None,
    *,
    form: Form = form_group,
) -> Steps[bytes]:
    """Bring up a world of one group whose ranks are one process each; return its unique id.

    With `form=bootstrap` the barrier's n log n frames are saved: here the closing round is one too.

    Raises `MusterRefused` unless the root's answer is *go*, and then it does so on every rank that
    lives (`closing` has the one exception).
    """
    cause = None
    try:
        unique_id = yield from form(rank, size, signature, unique_id, no)
    except MusterError as error:
        cause = cause_of(error, rank, size)
    answer = yield from closing(rank, size, cause)
    if not answer.go:
        raise MusterRefused(answer)
    return unique_id


def cause_of(error: MusterError, process: int, size: int, phase: str = "bootstrap") -> Cause:
    """What *process* of *size* reports for an *error* that ended its part; ranks are processes."""
    if not isinstance(error, GroupRefused):
        return Cause(message=str(error), phase=phase, process=process)
    if error.rank is not None and isinstance(error.__cause__, MusterError):
        return blame(error.rank, error.__cause__, "while others waited for it", phase)
    if error.hearsay:
        return Cause(message=str(error), phase=phase, hearsay=True)
    return Cause(
        message=str(error),
        phase=phase,
        signed=tuple(
            Signed(size=size, rank=rank, process=rank, signature=signature.hex())
            for rank, signature in error.signatures.items()
        ),
    )
