"""The barrier of a communicator's members on one machine (`bp_barrier`, S0 §2 and §5).

Members of one process have a leader, the first of them; leaders meet at the first leader. Unrelated
processes of one user find each other by a name that only they share, over Unix sockets in a folder
of that user's own. Who is lost ends everybody's wait with its name. Nobody spins: every wait is a
poll with a deadline.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self, TypeAlias

from rankmuster.errors import (
    BadArgument,
    Closed,
    DeadlineExceeded,
    MusterError,
    OutOfResources,
    PeerLost,
)
from rankmuster.ranks import fold
from rankmuster.transport.base import Deadline

FRAME = struct.Struct("<BI")  # word, device
MARGIN_SHARE, MARGIN_MAX_S = 0.05, 0.5  # of the deadline, for each of three
PAUSE_S = 0.01  # between attempts to reach a parent that does not listen yet

Member: TypeAlias = tuple[int, str, int]
"""A member's device, the name of its machine, and its process id there."""


class Word(IntEnum):
    """What a frame says."""

    HERE = 1  # up: this device, and everybody below it, has come
    GO = 2  # down: everybody has come
    LOST = 3  # either way: that device is gone
    LATE = 4  # either way: that device did not come in time


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """Who meets: `local_participants`, `local_leaders` and `my_local_leader`, as device ids."""

    participants: tuple[int, ...]
    leaders: tuple[int, ...]
    my_leader: int
    me: int

    @property
    def parent(self) -> int | None:
        """Whom I report to; None for the first leader."""
        if self.me != self.my_leader:
            return self.my_leader
        return None if self.me == self.leaders[0] else self.leaders[0]


def plan(places: Sequence[Member], me: int) -> LocalPlan:
    """The meeting of the members of my machine; *places* are all members, in rank order.

    Raises BadArgument where I am not among them.
    """
    mine = next((place for place in places if place[0] == me), None)
    if mine is None:
        raise BadArgument(f"device {me} is not a member", fix=f"members: {[p[0] for p in places]}")
    here = [place for place in places if place[1] == mine[1]]
    leader_of: dict[int, int] = {}
    for device, _, pid in here:
        leader_of.setdefault(pid, device)
    return LocalPlan(
        participants=tuple(device for device, _, _ in here),
        leaders=tuple(leader_of.values()),
        my_leader=leader_of[mine[2]],
        me=me,
    )


def children(places: Sequence[Member], me: int) -> frozenset[int]:
    """The devices that report to me."""
    here = plan(places, me).participants
    return frozenset(device for device in here if plan(places, device).parent == me)


class LocalBarrier:
    """A barrier that can be waited at again and again; one thread of a device at a time.

    *name* is what all members know and nobody else (a unique id, say). `handles` are the addresses
    of the members that others report to. Made by `open_barrier`.
    """

    def __init__(self, name: bytes, mine: LocalPlan, below: Iterable[int], folder: Path) -> None:
        self.plan = mine
        self.handles = {
            device: str(folder / socket_name(name, device)) for device in self.plan.participants
        }
        self._below = frozenset(below)
        self._links: dict[int, socket.socket] = {}  # by device
        self._inbox: dict[socket.socket, bytearray] = {}
        self._ended: list[socket.socket] = []  # whose last frames may still stand in the inbox
        self._came: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._failure: MusterError | None = None
        self._open = True

    def wait(self, deadline: Deadline) -> None:
        """Return once every member has come here as often as I have.

        Raises `PeerLost` or `DeadlineExceeded` with the device, on every member and from then on.
        """
        if not self._open:
            raise Closed("this barrier was closed")
        if self._failure:
            raise self._failure.with_traceback(None)  # each raise would add to it
        try:
            first = self.plan.parent is None
            self._await(lambda: self._below - self._came, _before(deadline, 2 if first else 3))
            parent = self.plan.parent
            if parent is not None:
                self._say(parent, Word.HERE, self.plan.me)
                self._await(lambda: {parent} - self._came, _before(deadline, bool(self._below)))
        except MusterError as error:
            self._failure = error
            raise
        self._came.clear()
        for device in self._below:
            self._say(device, Word.GO, device)

    def close(self) -> None:
        """Leave: members that still wait are told that I am lost. Closing twice is fine."""
        self._open = False
        self._shut_door()
        for link in self._inbox:
            link.close()
        self._links.clear()
        self._inbox.clear()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    # meeting

    def meet(self, deadline: Deadline) -> None:
        """Listen for those below me, reach the one above me, then wait once. Raises as `wait` does.

        Without the wait a member could come and leave before others have seen it.
        """
        if self._below:
            self._listen()
        if self.plan.parent is not None:
            self._reach(self.plan.parent, deadline)
        self._await(lambda: self._below - self._links.keys(), deadline)
        self._shut_door()  # nobody else is to come, and a process that is killed leaves no file
        self.wait(deadline)

    def _listen(self) -> None:
        path = self.handles[self.plan.me]
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                Path(path).unlink()  # of a process that died; the name is ours alone
            listener.bind(path)
            listener.listen(len(self._below))
        except OSError as error:
            listener.close()
            raise OutOfResources(f"cannot listen at {path}: {error.strerror}") from error
        listener.settimeout(0.0)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)

    def _shut_door(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
            with contextlib.suppress(FileNotFoundError):
                Path(self.handles[self.plan.me]).unlink()

    def _reach(self, parent: int, deadline: Deadline) -> None:
        while True:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            link.settimeout(max(deadline.remaining(), PAUSE_S))
            try:
                link.connect(self.handles[parent])
                break
            except OSError:  # it is not there yet
                link.close()
            if deadline.passed:
                self._failure = _late(parent, deadline)
                raise self._failure
            time.sleep(min(PAUSE_S, deadline.remaining()))
        self._adopt(link)
        self._links[parent] = link
        self._say(parent, Word.GO, self.plan.me)  # who I am

    def _adopt(self, link: socket.socket) -> None:
        link.settimeout(0.0)
        self._inbox[link] = bytearray()
        self._selector.register(link, selectors.EVENT_READ)

    # frames

    def _say(self, device: int, word: Word, about: int) -> None:
        # Five bytes on a socket that is asked for an answer after each: they always fit.
        with contextlib.suppress(OSError):  # its end-of-file says more
            self._links[device].send(FRAME.pack(word, about))

    def _await(self, missing_now: Callable[[], AbstractSet[int]], deadline: Deadline) -> None:
        # One frame at a time: what stands behind the awaited one belongs to the next wait.
        while missing := missing_now():
            if self._hear_next():
                continue
            if deadline.passed:
                self._end(Word.LATE, min(missing), _late(min(missing), deadline, missing))
            for key, _ in self._selector.select(deadline.remaining()):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)

    def _hear_next(self) -> bool:
        """Take in one frame, or one end, of those that came; False where there is none."""
        for link, inbox in self._inbox.items():
            if len(inbox) >= FRAME.size:
                word, about = FRAME.unpack_from(inbox)
                del inbox[: FRAME.size]
                self._hear(link, word, about)
                return True
        if self._ended:
            self._drop(self._ended.pop())
            return True
        return False

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            link, _ = self._listener.accept()
            if len(self._inbox) > 2 * len(self._below) + 1:
                link.close()
            else:
                self._adopt(link)

    def _read(self, link: socket.socket) -> None:
        try:
            chunk = link.recv(1 << 12)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._inbox[link] += chunk
        if not chunk:
            self._selector.unregister(link)
            self._ended.append(link)

    def _hear(self, link: socket.socket, word: int, about: int) -> None:
        device = self._device_of(link)
        if device is None:  # its first frame says who it is
            if about in self._below and about not in self._links:
                self._links[about] = link
            else:
                self._drop(link)
        elif word == Word.LOST:
            self._end(Word.LOST, about, _lost(about))
        elif word == Word.LATE:
            what = f"device {about} did not come to the local barrier in time"
            self._end(Word.LATE, about, DeadlineExceeded(what))
        else:
            self._came.add(device)

    def _device_of(self, link: socket.socket) -> int | None:
        return next((device for device, known in self._links.items() if known is link), None)

    def _drop(self, link: socket.socket) -> None:
        device = self._device_of(link)
        with contextlib.suppress(KeyError):  # an ended one is out already
            self._selector.unregister(link)
        self._inbox.pop(link, None)
        link.close()
        if device is not None:
            del self._links[device]
            self._end(Word.LOST, device, _lost(device))

    def _end(self, word: Word, about: int, error: MusterError) -> NoReturn:
        """Tell everybody within reach, and raise."""
        for device in self._links:
            self._say(device, word, about)
        self._failure = error
        raise error


def open_barrier(
    name: bytes, places: Sequence[Member], me: int, deadline: Deadline
) -> LocalBarrier:
    """Meet the members of my machine; returns once all of them are here.

    Raises `DeadlineExceeded` and `PeerLost` with the device, `OutOfResources` where the machine
    gives no socket.
    """
    try:
        barrier = LocalBarrier(name, plan(places, me), children(places, me), runtime_folder())
    except OSError as error:
        raise OutOfResources(f"no place for a local barrier: {error.strerror}") from error
    try:
        barrier.meet(deadline)
    except BaseException:
        barrier.close()
        raise
    return barrier


def socket_name(name: bytes, device: int) -> str:
    """The file name of one member's socket: short, for the system allows about a hundred bytes."""
    return f"{blake2b(name, digest_size=9, person=b'bp_barrier').hexdigest()}-{device}"


def runtime_folder() -> Path:
    """A folder of this user's own, made where it is missing. Raises `OutOfResources`.

    Always the same one: TMPDIR and XDG_RUNTIME_DIR may differ between the processes of a job, and
    may be longer than a socket's address allows.
    """
    folder = Path("/tmp") / f"rankmuster-{os.getuid()}"  # noqa: S108 checked below
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.getuid():
        raise OutOfResources(f"{folder} is not a private folder of this user", fix="remove it")
    return folder


def _before(deadline: Deadline, margins: int) -> Deadline:
    """So much earlier: whoever others wait for gives up first, and they hear who is missing."""
    margin = min(MARGIN_SHARE * deadline.whole_s, MARGIN_MAX_S)
    return replace(deadline, at=deadline.at - margins * margin)


def _lost(device: int) -> PeerLost:
    return PeerLost(f"device {device} was lost at the local barrier")


def _late(device: int, deadline: Deadline, missing: Iterable[int] = ()) -> DeadlineExceeded:
    who = fold(missing) or str(device)
    return DeadlineExceeded(
        f"device {who} did not come to the local barrier within {deadline.whole_s:g} s"
    )
