"""The transport over a torch.distributed Store: wherever a job has one, as under torchrun.

A message is a key of its own: one more number for each ordered pair of processes, under a prefix
for each bring-up, deleted once it is read. A store shows no process that died: its launcher ends
the job, or the deadline passes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar

from rankmuster.errors import LocalProtocolError, MissingPackage, MusterError, PeerLost
from rankmuster.status import Status
from rankmuster.transport.base import Deadline, Identity, map_errors
from rankmuster.transport.carried import CarriedEndpoint

WINDOW = 64  # messages of one process to another that lie unread in the store
QUEUE_BYTES = 128 << 20  # what may wait to be put there
CLOSE_S = 0.5  # for what was posted last
LEAVE_S = 2.0  # for all to say why they fail
FIRST_PAUSE_S, LAST_PAUSE_S = 100e-6, 5e-3

# What torchrun says: localhost, 39517, 3, 8, True, 4c75-a8da, 0
HOST, PORT, RANK, SIZE = "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
RUN, RESTART = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"
LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"


class NoStore(PeerLost):
    """There is no store to meet at."""

    status = Status.INVALID


class StoreTransport:
    """The processes that share *store*, of which we are one (see `base.Transport`).

    *name* keeps apart what different jobs, or attempts of one job, put into the same store.
    """

    must_stay: ClassVar[bool] = False
    SOURCES: ClassVar[tuple[str, str]] = (RANK, SIZE)

    def __init__(self, store: Any, process: int, processes: int, name: str = "0") -> None:
        self.process, self.processes = process, processes
        self._store, self._name = store, name

    @classmethod
    def of_torchrun(cls, environ: Mapping[str, str], deadline: Deadline) -> StoreTransport:
        """The store that torchrun's agent keeps. Raises `MissingPackage` and `NoStore`."""
        if not has_agent_store(environ):
            raise NoStore(
                "no agent keeps a torch store for this process",
                fix="start it by torchrun, or give a StoreTransport of your own store",
            )
        torch = torch_distributed()
        where = f"{environ[HOST]}:{environ[PORT]}"
        with map_errors({torch.DistError: NoStore}, f"the torch store at {where}"):
            store = torch.TCPStore(
                environ[HOST],
                int(environ[PORT]),
                is_master=False,
                timeout=timedelta(seconds=deadline.remaining()),
                wait_for_workers=False,
            )
        name = f"{environ.get(RUN, '')}/{environ.get(RESTART, '0')}"
        return cls(store, int(environ[RANK]), int(environ[SIZE]), name)

    def open(self, me: Identity, deadline: Deadline) -> CarriedEndpoint:
        """An endpoint over keys of this bring-up's own. Raises `PeerLost`."""
        del deadline  # a key is asked for only when it is there
        torch = torch_distributed()
        errors = {torch.DistError: PeerLost}  # whatever it is, nobody can be reached any more
        with map_errors(errors, "the torch store"):
            # Counted in the store, so that a command that follows this process counts on.
            epoch = self._store.add(f"rankmuster/{self._name}/musters/{self.process}", 1)
        store = torch.PrefixStore(f"rankmuster/{self._name}/{epoch}", self._store)
        return CarriedEndpoint(StoreCarrier(store, self.process, self.processes, errors), me, epoch)

    def leave(self, code: int) -> None:
        """Where it failed, wait a moment for all: an agent ends the job with the first that ends.

        Then everybody has said why, and above all the process of device 0, which has most to say.
        """
        if not code:
            return
        key = f"rankmuster/{self._name}/left"
        until = time.monotonic() + LEAVE_S
        with contextlib.suppress(torch_distributed().DistError):  # then there is no agent either
            self._store.add(key, 1)
            while self._store.add(key, 0) < self.processes and time.monotonic() < until:
                time.sleep(LAST_PAUSE_S)


class StoreCarrier:
    """Messages as keys of *store* (see `carried.Carrier`).

    `3>0/17` is the 17th message of process 3 to process 0. Who sends its first one to a process
    also announces itself there, so that a process looks only at those which write to it: `to/0`
    counts the announcements, and `to/0/2` holds the second.
    """

    def __init__(
        self,
        store: Any,
        process: int,
        processes: int,
        errors: Mapping[type[Exception], type[MusterError]],
    ) -> None:
        self.process, self.processes = process, processes
        self._store, self._errors = store, errors
        self._waiting: defaultdict[int, deque[bytes]] = defaultdict(deque)
        self._bytes = 0
        self._written: dict[int, int] = {}  # peer -> number of our last message to it
        self._read: dict[int, int] = {}  # peer -> number of the last that we read
        self._announced = 0
        self._unheard: set[int] = set()  # announcements that were counted, and not there yet

    def idle(self) -> bool:
        """Whether the store holds all messages."""
        return not self._bytes

    def post(self, peer: int, message: bytes) -> None:
        """Queue *message*. Raises `LocalProtocolError` where too much waits."""
        if self._bytes + len(message) > QUEUE_BYTES:
            raise LocalProtocolError(f"over {QUEUE_BYTES} bytes wait to be put into the store")
        self._bytes += len(message)
        self._waiting[peer].append(message)

    def collect(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Write what waits, and look until some message came, or the time is over."""
        until = time.monotonic() + timeout_s
        pause_s = FIRST_PAUSE_S
        with map_errors(self._errors, "the torch store"):
            while True:
                self._write()
                arrived = list(self._arrived())
                left_s = until - time.monotonic()
                if arrived or left_s <= 0:
                    return arrived
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def close(self) -> None:
        """Write what was posted last, as far as there is room."""
        until = time.monotonic() + CLOSE_S
        try:
            with map_errors(self._errors, "the torch store"):
                self._write()
                while not self.idle() and time.monotonic() < until:
                    time.sleep(LAST_PAUSE_S)
                    self._write()
        except PeerLost:
            self._waiting.clear()  # nobody is there to read it

    def _write(self) -> None:
        for peer, messages in self._waiting.items():
            while messages and self._has_room(peer):
                number = self._written.get(peer, 0) + 1
                self._store.set(f"{self.process}>{peer}/{number}", messages[0])
                if number == 1:
                    place = self._store.add(f"to/{peer}", 1)
                    self._store.set(f"to/{peer}/{place}", str(self.process))
                self._written[peer] = number
                self._bytes -= len(messages.popleft())

    def _has_room(self, peer: int) -> bool:
        """Whether *peer* has read all but a few of our messages."""
        oldest = self._written.get(peer, 0) + 1 - WINDOW
        return oldest < 1 or not self._store.check([f"{self.process}>{peer}/{oldest}"])

    def _arrived(self) -> Iterator[tuple[int, bytes]]:
        self._hear_announcements()
        for peer in self._read:
            while (
                message := self._take(f"{peer}>{self.process}/{self._read[peer] + 1}")
            ) is not None:
                self._read[peer] += 1
                yield peer, message

    def _hear_announcements(self) -> None:
        count = self._store.add(f"to/{self.process}", 0)
        self._unheard |= set(range(self._announced + 1, count + 1))
        self._announced = count
        for place in sorted(self._unheard):
            peer = self._take(f"to/{self.process}/{place}")
            if peer is not None:  # else its sender is between two calls, or died there
                self._unheard.discard(place)
                self._read[int(peer)] = 0

    def _take(self, key: str) -> bytes | None:
        """The value of *key*, which is gone then; None where there is none."""
        if not self._store.check([key]):
            return None
        value: bytes = self._store.get(key)
        self._store.delete_key(key)
        return value


def has_agent_store(environ: Mapping[str, str]) -> bool:
    """Whether torchrun started us, and its agent keeps a store."""
    return environ.get(AGENT_STORE) == "True" and {HOST, PORT, RANK, SIZE} <= environ.keys()


def torch_distributed() -> Any:
    """The module. Raises `MissingPackage`."""
    said = LOG_LEVEL in os.environ
    os.environ.setdefault(LOG_LEVEL, "ERROR")  # else it prints its C++ stack for a lost store
    try:
        return import_module("torch.distributed")
    except ImportError as error:
        raise MissingPackage(
            f"the torch engine needs torch ({error})", fix="pip install 'rankmuster[torch]'"
        ) from error
    finally:
        if not said:
            del os.environ[LOG_LEVEL]
