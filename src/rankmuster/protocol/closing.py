"""The closing round: everybody reports ready or a first cause to process 0, which answers go or no.

This is what makes the outcome one: nobody is *up* by its own bootstrap, only by the root's *go*.
A process that loses the root before *go* says no. The only split left is the root's own death, or
a sleep beyond the deadline, before the last of its *go* frames; those without name the root
(design: the closing round).
It runs over the star of census connections and knows processes, not devices or groups.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import msgspec

from rankmuster.errors import DeadlineExceeded, MusterError, PeerLost
from rankmuster.protocol.causes import LOST, SILENT, Cause, Causes, decode, encode, root_causes
from rankmuster.protocol.frames import (
    ANSWER_BYTES,
    REPORT_BYTES,
    pack_closing,
    unpack_closing,
)
from rankmuster.protocol.steps import PeerTrouble, Recv, Send, Steps

ROOT = 0
ROOT_GRACE = 1  # the root collects, and sends its answers, one margin longer than groups wait;
ANSWER_GRACE = 2  # a report waits to be heard, and for its answer, one margin more
HEAR_ANSWER = Recv(ROOT, ANSWER_BYTES, ANSWER_GRACE)  # one for all who wait in a simulated world


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """*go*, or no with its causes; `omitted` counts those that no frame had room for."""

    go: bool
    causes: tuple[Cause, ...] = ()
    omitted: int = 0


GO = Answer(go=True)


def always() -> bool:
    """It is never too late."""
    return True


def never() -> float:
    """It was awake all the time."""
    return 0.0


def closing(
    process: int,
    size: int,
    cause: Cause | None,
    in_time: Callable[[], bool] = always,
    still_s: Callable[[], float] = never,
) -> Steps[Answer]:
    """Report ready (*cause* None) or why not, and return the one answer that everybody gets.

    Never raises for what a peer does: a lost or silent root is a no that names it. The root asks
    *in_time* whether a go would still find the others waiting. *still_s* is how long the process
    stood still of late.
    """
    if process == ROOT:
        return answer_all(size, cause, in_time, still_s)
    return report(process, cause, still_s)


def report(
    process: int, cause: Cause | None, still_s: Callable[[], float] = never
) -> Steps[Answer]:
    """Tell the root, then wait for its answer."""
    if cause is not None and (slept_s := still_s()):
        cause = msgspec.structs.replace(cause, still_s=slept_s)
    frame = pack_closing(encode([cause], REPORT_BYTES) if cause else b"")
    try:
        with suppress(PeerLost):  # a root that gave us up and left has sent its answer before
            yield Send(ROOT, frame, ANSWER_GRACE)
        return _answer((yield HEAR_ANSWER))
    except PeerTrouble as trouble:
        lost_root = blame(ROOT, trouble, "before its answer")
        mine = {process: cause} if cause and not _explains(lost_root, cause) else {}
        return Answer(go=False, causes=root_causes({**mine, ROOT: lost_root}))


def answer_all(
    size: int,
    cause: Cause | None,
    in_time: Callable[[], bool] = always,
    still_s: Callable[[], float] = never,
) -> Steps[Answer]:
    """Hear every process's report, then give all of them the same answer, and return it."""
    reports = {ROOT: cause} if cause else {}
    unheard: dict[int, Cause] = {}
    for process in range(1, size):
        try:
            told = _read((yield Recv(process, REPORT_BYTES, ROOT_GRACE)))
        except PeerTrouble as trouble:
            unheard[process] = blame(process, trouble, "before it was ready")
        else:
            if told:
                reports[process] = told.causes[0]
    if in_time():
        reports |= unheard
        if reports and (slept_s := still_s()):
            mine = cause or Cause(message="others said no", phase="closing", hearsay=True)
            reports[ROOT] = msgspec.structs.replace(mine, still_s=slept_s)
    else:  # and whoever is not here has given us up
        message = f"process {ROOT} stood still until it was too late for an answer"
        reports[ROOT] = Cause(message=message, code=SILENT, phase="closing", process=ROOT)
    answer = pack_closing(encode(root_causes(reports), ANSWER_BYTES) if reports else b"")
    for process in range(1, size):
        with suppress(*PeerTrouble):
            yield Send(process, answer, ROOT_GRACE)
    return _answer(answer)  # as the others read it, cut where theirs is


def blame(process: int, trouble: MusterError, when: str, phase: str = "closing") -> Cause:
    """The cause that names *process* for what it did to a peer that waited for it."""
    silent = isinstance(trouble, DeadlineExceeded)
    what = "was silent" if silent else "was lost"
    return Cause(
        message=f"process {process} {what} {when}: {trouble.what}",
        code=SILENT if silent else LOST,
        phase=phase,
        process=process,
    )


def _explains(lost_root: Cause, cause: Cause) -> bool:
    """Whether a root that is silent to the end may be why somebody else was."""
    return lost_root.code == cause.code == SILENT


def _read(frame: bytes) -> Causes | None:
    """A yes as None, or the causes of a no."""
    causes = unpack_closing(frame)
    return decode(causes) if causes else None


@lru_cache(maxsize=1)
def _answer(frame: bytes) -> Answer:
    """What the root's *frame* says; everybody is sent the same one."""
    told = _read(frame)
    return Answer(go=False, causes=told.causes, omitted=told.omitted) if told else GO
