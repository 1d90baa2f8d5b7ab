"""The transport over MPI (mpi4py): no socket of ours, no secret; MPI says who sends.

Everything is non-blocking, so that deadlines hold: MPI itself waits without end for a peer that is
gone. A lost process is not seen by MPI; its launcher ends the job, or the deadline passes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

from rankmuster.census import margin_s
from rankmuster.errors import LocalProtocolError, MissingPackage, PeerLost
from rankmuster.transport.base import Deadline, Identity, map_errors
from rankmuster.transport.carried import CarriedEndpoint
from rankmuster.transport.watchdog import watchdog

TAG = 0x524D  # the one tag that we use; MPI allows up to 32767 everywhere
TURN = 1024  # messages taken at a time
QUEUE_BYTES = 128 << 20  # what may wait to be sent
CLOSE_S = 0.5  # for what was posted last to leave
LEAVE_S = 2.0  # for all to come to the end; the process of device 0 waits least, and has reported
FIRST_PAUSE_S, LAST_PAUSE_S = 20e-6, 1e-3

# MPI reads these until it has sent them: they must outlive even a closed carrier (MPI-4.1 §3.7).
_UNSENT: list[Any] = []


class MpiTransport:
    """The processes of *comm*, MPI_COMM_WORLD by default (see `base.Transport`).

    Initialises MPI where nobody has yet; that waits for all processes of the job, and this process
    ends with a line about it at *deadline*. Raises `MissingPackage`.
    """

    must_stay: ClassVar[bool] = True
    SOURCES: ClassVar[tuple[str, str]] = ("the MPI rank", "the MPI size")

    def __init__(self, comm: Any = None, *, deadline: Deadline) -> None:
        self._mpi = _initialised(deadline)
        self._comm = self._mpi.COMM_WORLD if comm is None else comm
        self.process: int = self._comm.Get_rank()
        self.processes: int = self._comm.Get_size()

    def open(self, me: Identity, deadline: Deadline) -> CarriedEndpoint:
        """An endpoint over a duplicate of the communicator; it may be made before others come."""
        keyval = _keyval()
        epoch = 1 + (self._comm.Get_attr(keyval) or 0)
        self._comm.Set_attr(keyval, epoch)
        late = deadline.at - 2 * margin_s(deadline.whole_s)
        return CarriedEndpoint(MpiCarrier(self._mpi, self._comm, late), me, epoch)

    def leave(self, code: int) -> None:
        """Finalise MPI once all are here to do so; otherwise abort the job, which cannot go on."""
        wait_s = LEAVE_S * (1 if self.process == 0 else 2)
        with _mapped(self._mpi, "MPI's end"):
            request = self._comm.Ibarrier()
            until = time.monotonic() + wait_s
            for pause_s in _pauses():
                if request.Test():
                    self._mpi.Finalize()
                    return
                if time.monotonic() > until:
                    self._comm.Abort(code or 1)
                time.sleep(pause_s)


class MpiCarrier:
    """Messages over a duplicate of *parent*, so that none can meet those of the job (MPI-4.1 §7.4).

    Duplicating takes all processes. Where some have not come by *late* (monotonic), the others talk
    over the parent itself, so that they can say who is missing.
    """

    def __init__(self, mpi: Any, parent: Any, late: float) -> None:
        self._mpi, self._parent, self._late = mpi, parent, late
        self.process: int = parent.Get_rank()
        self.processes: int = parent.Get_size()
        with _mapped(mpi, "duplicating a communicator"):
            self._copy, self._copying = parent.Idup()
        self._comm: Any = None  # until it can be used
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._sending: list[tuple[Any, bytes]] = []
        self._bytes = 0  # of both

    def idle(self) -> bool:
        """Whether there is a communicator, and MPI has taken all messages."""
        return self._comm is not None and not self._bytes

    def post(self, peer: int, message: bytes) -> None:
        """Queue *message*. Raises `LocalProtocolError` where too much waits."""
        if self._bytes + len(message) > QUEUE_BYTES:
            raise LocalProtocolError(f"over {QUEUE_BYTES} bytes wait to be sent over MPI")
        self._bytes += len(message)
        self._waiting.append((peer, message))

    def collect(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Move messages until some came, or the time is over."""
        until = time.monotonic() + timeout_s
        with _mapped(self._mpi, "MPI"):
            for pause_s in _pauses():
                arrived = self._turn()
                left_s = until - time.monotonic()
                if arrived or left_s <= 0:
                    return arrived
                time.sleep(min(pause_s, left_s))
        return []

    def close(self) -> None:
        """Give what was posted last a moment to leave, and free the duplicate if all of it did."""
        until = time.monotonic() + CLOSE_S
        with contextlib.suppress(PeerLost):  # then nothing can leave any more
            while not self.idle() and time.monotonic() < until:
                self.collect(FIRST_PAUSE_S)
        if self.idle() and self._comm is self._copy:
            # Collective by the book, and local by its advice to implementors (MPI-4.1 §7.4.3).
            self._comm.Free()
        else:
            _UNSENT.extend((self._copy, self._copying, self._sending))

    def _turn(self) -> list[tuple[int, bytes]]:
        if self._comm is None and not self._choose():
            return []
        while self._waiting:
            peer, message = self._waiting.popleft()
            request = self._comm.Isend([message, self._mpi.BYTE], dest=peer, tag=TAG)
            self._sending.append((request, message))
        on_their_way = []
        for request, message in self._sending:
            if request.Test():
                self._bytes -= len(message)
            else:
                on_their_way.append((request, message))
        self._sending = on_their_way
        return list(self._arrived())

    def _choose(self) -> bool:
        """Find out whether the duplicate can be used, or has been waited for long enough."""
        if self._copying.Test():
            self._comm = self._copy
        elif time.monotonic() >= self._late:
            self._comm = self._parent
        return self._comm is not None

    def _arrived(self) -> Iterator[tuple[int, bytes]]:
        status = self._mpi.Status()
        for _ in range(TURN):
            message = self._comm.Improbe(source=self._mpi.ANY_SOURCE, tag=TAG, status=status)
            if message is None:
                return
            buffer = bytearray(status.Get_count(self._mpi.BYTE))
            source = status.Get_source()
            message.Recv([buffer, self._mpi.BYTE])
            yield source, bytes(buffer)


@functools.cache
def _keyval() -> int:
    """Under this key a communicator holds how many bring-ups it has carried."""
    keyval: int = import_module("mpi4py.MPI").Comm.Create_keyval()
    return keyval


def is_initialised() -> bool:
    """Whether MPI runs in this process; looking does not start it."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and bool(mpi.Is_initialized()) and not mpi.Is_finalized()


def _initialised(deadline: Deadline) -> Any:
    """mpi4py's MPI, which initialises it when it is first imported."""
    if is_initialised():
        return import_module("mpi4py.MPI")
    message = "the deadline of {0:g} s passed in MPI_Init: some process of the job never came to it"
    try:
        # mpi4py holds Python's lock while MPI_Init waits: only another process can end this one.
        with watchdog(deadline, message.format(deadline.whole_s)):
            return import_module("mpi4py.MPI")
    except ImportError as error:
        raise MissingPackage(
            f"the MPI engine needs mpi4py ({error})", fix="pip install 'rankmuster[mpi]'"
        ) from error


def _mapped(mpi: Any, what: str) -> Any:
    """MPI's errors as ours: whatever it is, no peer can be reached any more."""
    return map_errors({mpi.Exception: PeerLost}, what)


def _pauses() -> Iterator[float]:
    """Ever longer pauses between two looks: at first it costs latency, later the CPU of others."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
