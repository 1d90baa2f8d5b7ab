"""Every error this library raises on purpose, one class per mistake.

Three kinds, never mixed: a `MusterError` (the input, a peer or the world is wrong; it carries an
NRT_STATUS), an `InvariantError` (we broke our own rule: a bug report), and the builtin `TypeError`
and `ValueError` (the caller used a function wrongly). A message is one line of what, where and what
to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from rankmuster.status import Status


class InvariantError(AssertionError):
    """This library broke a rule of its own: a bug to report, never a bad input."""


class MusterError(Exception):
    """The input, a peer or the world is not as it must be. Only subclasses are raised."""

    status: ClassVar[Status] = Status.FAILURE

    def __init__(self, what: str, *, fix: str = "") -> None:
        if type(self) is MusterError:
            raise TypeError("raise one of MusterError's subclasses")
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what = what
        self.fix = fix


class InvalidProgram(MusterError):
    """Bytes are not what their format says.

    `where` is the file or source as the user named it; `line` and `column` count from 1 and
    `offset` from 0; each is None where it is not known.
    """

    status = Status.INVALID

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        line: int | None = None,
        column: int | None = None,
        offset: int | None = None,
        fix: str = "",
    ) -> None:
        self.where, self.line, self.column, self.offset = where, line, column, offset
        self.reason = what
        super().__init__(f"{self._place()}{what}", fix=fix)

    def _place(self) -> str:
        place = self.where
        if self.line is not None:
            place += f":{self.line}" if place else f"line {self.line}"
            if self.column is not None:
                place += f":{self.column}" if self.where else f", column {self.column}"
        elif self.offset is not None:
            place += f" at byte {self.offset}" if place else f"byte {self.offset}"
        return f"{place}: " if place else ""

    def at(self, where: str) -> InvalidProgram:
        """The same error with the source named, for readers that do not know their file."""
        return InvalidProgram(
            self.reason,
            where=where,
            line=self.line,
            column=self.column,
            offset=self.offset,
            fix=self.fix,
        )


class UnsupportedFormat(InvalidProgram):
    """The format is known, this version of it is not."""

    status = Status.UNSUPPORTED_NEFF_VERSION


class UnreadableInput(MusterError):
    """A file or folder that the caller named is missing, empty of programs or not ours to read."""

    status = Status.INVALID


class UnknownGeneration(MusterError):
    """The architecture number is not one of the three known generations (S4)."""


class InvalidCluster(MusterError):
    """A cluster, chip or device that does not exist or cannot be: a wrong name, size or id."""

    status = Status.INVALID


class NoSyncProcessor(MusterError):
    """A virtual core has no such sync processor (S4 §2): a bring-up failure the caller handles."""


class WorldMismatch(MusterError):
    """The world was built with another size or rank, and those never change (S0 §6)."""

    status = Status.INVALID


class WorldNotBuilt(MusterError):
    """Something needs the global communicator before any exists (S1 §3)."""

    status = Status.UNINITIALIZED


class OutOfOrder(MusterError):
    """A call came in a state that does not allow it (S0 §4: signing outside parse)."""

    status = Status.INVALID


class Uninitialized(MusterError):
    """The runtime was not initialised before it was used (facts §4)."""

    status = Status.UNINITIALIZED


class BadArgument(MusterError):
    """A call of the C-shaped surface got what its parameter does not allow."""

    status = Status.INVALID


class SetupFailed(MusterError):
    """A step of a set-up failed for a reason of this machine's or of a library's own."""


class OutOfResources(MusterError):
    """This machine has no more of what a set-up needs: memory maps, descriptors, sockets."""

    status = Status.RESOURCE


class NotAgreed(MusterError):
    """The group's verdict was no: its collectives differ, or a rank was lost (S0 §5)."""


class PoolExhausted(MusterError):
    """More groups or streams than the runtime has room for (12 groups, 4 streams)."""

    status = Status.RESOURCE


class DeadlineExceeded(MusterError):
    """The caller's deadline passed before every peer had answered."""

    status = Status.TIMEOUT


class PeerLost(MusterError):
    """The other side went away. (If we closed the channel ourselves, that is `Closed`.)"""


class Closed(MusterError):
    """We closed it, then used it."""

    status = Status.CLOSED


class BusyError(MusterError):
    """A second thread used what belongs to one thread at a time."""

    status = Status.INVALID


class MissingPackage(MusterError):
    """What was asked for needs a package that is not installed."""

    status = Status.INVALID


class RemoteProtocolError(MusterError):
    """A peer sent a wrong size, magic, tag or flag."""


class LocalProtocolError(MusterError):
    """We would have sent a frame that breaks the protocol."""

    status = Status.INVALID


def status_of(error: BaseException) -> Status:
    """The NRT_STATUS that reports *error* at the C-shaped surface."""
    match error:
        case MusterError():
            return error.status
        case MemoryError():
            return Status.FAIL_HOST_MEM_ALLOC
        case _:
            return Status.FAILURE


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of *known*, or lists them all when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
