"""An endpoint over any library that carries messages between numbered processes.

It adds to a `Carrier` what a bring-up needs: connections with a role, frames of any size, and a
farewell, by which peers tell an end from a silence. Who may send is the library's affair, so there
is no secret and no stranger here; a carrier may hold late messages of an earlier bring-up, which
the epoch in each message tells apart.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from socket import socket
from typing import Protocol

from rankmuster.address import BadAddress
from rankmuster.errors import Closed, LocalProtocolError, PeerLost, RemoteProtocolError
from rankmuster.transport.base import Event, Identity, Joined, Knocked, Lost, Received, Role
from rankmuster.transport.framing import BOUND, Frame, Kind

VERSION = 1
# magic, version, word, whether the dialler speaks, the connection's number, the bring-up's
ENVELOPE = struct.Struct("<4sBB?xII")
assert ENVELOPE.size == 16
MAGIC = b"RMCE"
INTRODUCTION = struct.Struct("<BIII")  # role (0 from who was dialled), process, first device, count
FRAME = struct.Struct("<BI16sII")  # kind, payload bytes, group key, source, destination
PIECE_BYTES = 1 << 20  # a torch store refuses values of 8 MiB
LINKS_EACH = 64  # that one process may open to another
FAREWELL = b"it closed the connection"
BROKEN_S = 0.05  # between two looks at a carrier that broke


class Carrier(Protocol):
    """Messages between processes numbered from 0, in order between any two of them."""

    @property
    def process(self) -> int:
        """This process's number."""

    @property
    def processes(self) -> int:
        """How many there are."""

    def post(self, peer: int, message: bytes) -> None:
        """Queue *message*. Raises `LocalProtocolError` where too much waits."""

    def collect(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Move what is queued and wait for messages; return each with the process it is from.

        Raises `PeerLost` once the carrier itself is gone.
        """

    def idle(self) -> bool:
        """Whether the carrier is there and nothing is queued."""

    def close(self) -> None:
        """Send what can be sent at once, and let go."""


class Word(IntEnum):
    """What a message says; the numbers are on the wire."""

    HELLO = 1
    WELCOME = 2
    PIECE = 3  # of a frame, and more of it follows
    FRAME = 4  # all of a frame, or its last piece
    BYE = 5


@dataclass(slots=True, eq=False)
class _Link:
    """One connection; `number` is the dialler's own for it."""

    handle: int
    peer: int
    number: int
    dialled: bool  # by us
    role: Role
    joined: bool = False
    inbox: bytearray = field(default_factory=bytearray)


class CarriedEndpoint:
    """All of one process's connections over *carrier* (see `base.Connections` for the contract).

    *epoch* counts the bring-ups that the carrier's owner has seen, alike on all processes.
    """

    def __init__(self, carrier: Carrier, me: Identity, epoch: int) -> None:
        self.strangers: Counter[str] = Counter()
        self._carrier, self._me, self._epoch = carrier, me, epoch
        self._links: dict[int, _Link] = {}
        self._by_key: dict[tuple[int, int, bool], _Link] = {}
        self._opened: Counter[int] = Counter()  # connections that each process dialled
        self._events: list[Event] = []
        self._handles = 0
        self._open = True

    def listen(self, host: str = "") -> str:
        """Whoever shares the carrier may dial us; our address is our number."""
        del host
        return str(self._carrier.process)

    def adopt(self, listener: socket) -> str:
        """A carrier has no doors. Raises `LocalProtocolError`."""
        raise LocalProtocolError(f"nobody can come in by {listener.getsockname()} here")

    def watch(self, descriptor: int, action: Callable[[], None]) -> None:
        """A carrier watches nothing else. Raises `LocalProtocolError`."""
        raise LocalProtocolError(f"descriptor {descriptor} cannot be watched here for {action}")

    def dial(self, address: str, role: Role, *, patient: bool = True) -> int:
        """Say hello to the process that *address* numbers. Raises `BadAddress`."""
        del patient  # the carrier keeps our hello until it is taken
        self._check_open()
        if not (address.isdecimal() and int(address) < self._carrier.processes):
            raise BadAddress(f"{address!r} is none of the {self._carrier.processes} processes")
        link = self._new_link(int(address), self._handles + 1, role, dialled=True)
        self._say(link, Word.HELLO, INTRODUCTION.pack(role, *self._me))
        return link.handle

    def send(self, handle: int, frame: Frame) -> None:
        """Queue *frame*. Raises `LocalProtocolError` above the bound of its kind."""
        self._check_open()
        link = self._links.get(handle)
        if link is None:
            return
        if len(frame.payload) > BOUND[frame.kind]:
            raise LocalProtocolError(
                f"a {frame.kind.name} frame of {len(frame.payload)} bytes is over the bound of "
                f"{BOUND[frame.kind]}"
            )
        *first, last = _pieces(frame)
        for piece in first:
            self._say(link, Word.PIECE, piece)
        self._say(link, Word.FRAME, last)

    def drop(self, handle: int) -> None:
        """Say farewell to one process; no `Lost` follows."""
        link = self._links.get(handle)
        if link is not None:
            self._say(link, Word.BYE, FAREWELL)
            self._forget(link)

    def poll(self, timeout_s: float) -> list[Event]:
        """Move messages, wait up to *timeout_s* for one, return what happened; it may be []."""
        self._check_open()
        try:
            arrived = self._carrier.collect(0.0 if self._events else max(0.0, timeout_s))
        except PeerLost as lost:
            self._lose_all(str(lost), timeout_s)
            arrived = []
        for peer, message in arrived:
            self._take(peer, message)
        events, self._events = self._events, []
        return events

    def has_spoken(self) -> bool:
        """Whether the carrier has taken all that we said."""
        return self._carrier.idle()

    def settled(self) -> bool:
        """Whether every process that we dialled has welcomed us."""
        return all(link.joined for link in self._links.values())

    def idle(self) -> bool:
        """Whether the carrier has taken all that we said."""
        return self._carrier.idle()

    def close(self) -> None:
        """Say farewell to all, and close the carrier."""
        if not self._open:
            return
        for handle in list(self._links):
            self.drop(handle)
        self._open = False
        self._carrier.close()

    # messages out and in

    def _say(self, link: _Link, word: Word, body: bytes = b"") -> None:
        envelope = ENVELOPE.pack(MAGIC, VERSION, word, link.dialled, link.number, self._epoch)
        self._carrier.post(link.peer, envelope + body)

    def _take(self, peer: int, message: bytes) -> None:
        """Take one message; what cannot be one of ours is counted and dropped."""
        if len(message) < ENVELOPE.size or not message.startswith(MAGIC):
            self.strangers["not our protocol"] += 1
            return
        _, version, word, by_dialler, number, epoch = ENVELOPE.unpack_from(message)
        if epoch != self._epoch:
            return  # the farewells of an earlier bring-up
        body = message[ENVELOPE.size :]
        link = self._by_key.get((peer, number, not by_dialler))
        if version != VERSION:
            self._turn_away(peer, number, link)
        elif link is None:
            if word == Word.HELLO:
                self._welcome(peer, number, body)
        else:
            try:
                self._take_word(link, word, body)
            except (RemoteProtocolError, struct.error) as error:
                self.drop(link.handle)
                self._events.append(Lost(link.handle, f"it broke the protocol: {error}"))

    def _take_word(self, link: _Link, word: int, body: bytes) -> None:
        match word:
            case Word.PIECE | Word.FRAME:
                link.inbox += body
                _refuse_oversize(link.inbox)
                if word == Word.FRAME:
                    frame = _whole(bytes(link.inbox))
                    link.inbox.clear()
                    self._events.append(Received(link.handle, frame))
            case Word.WELCOME if link.dialled and not link.joined:
                _, *identity = INTRODUCTION.unpack(body)
                link.joined = True
                self._events.append(Joined(link.handle, Identity(*identity), link.role))
            case Word.BYE:
                self._forget(link)
                self._events.append(Lost(link.handle, body.decode(errors="replace")))
            case _:
                raise RemoteProtocolError(f"a message of unknown meaning {word}")

    def _welcome(self, peer: int, number: int, body: bytes) -> None:
        role, *identity = INTRODUCTION.unpack(body) if len(body) == INTRODUCTION.size else (0,)
        if role not in {Role.CENSUS, Role.PEER} or self._opened[peer] >= LINKS_EACH:
            too_many = self._opened[peer] >= LINKS_EACH
            self.strangers["too many connections" if too_many else "unknown role"] += 1
            return
        self._opened[peer] += 1
        link = self._new_link(peer, number, Role(role), dialled=False)
        link.joined = True
        who = Identity(*identity)
        self._events += [Knocked(link.handle, who, link.role), Joined(link.handle, who, link.role)]
        self._say(link, Word.WELCOME, INTRODUCTION.pack(0, *self._me))

    def _turn_away(self, peer: int, number: int, link: _Link | None) -> None:
        """The other side is of another version: tell both ends."""
        why = "refused: other version"
        if link is None:
            self.strangers["other version"] += 1
            envelope = ENVELOPE.pack(MAGIC, VERSION, Word.BYE, False, number, self._epoch)  # noqa: FBT003 a field
            self._carrier.post(peer, envelope + why.encode())
        else:
            self._forget(link)
            self._events.append(Lost(link.handle, why))

    # bookkeeping

    def _new_link(self, peer: int, number: int, role: Role, *, dialled: bool) -> _Link:
        self._handles += 1
        link = _Link(self._handles, peer, number, dialled, role)
        self._links[link.handle] = self._by_key[peer, number, dialled] = link
        return link

    def _forget(self, link: _Link) -> None:
        del self._links[link.handle], self._by_key[link.peer, link.number, link.dialled]
        if not link.dialled:
            self._opened[link.peer] -= 1

    def _lose_all(self, why: str, timeout_s: float) -> None:
        if not self._links:
            time.sleep(min(timeout_s, BROKEN_S))
        for link in list(self._links.values()):
            self._forget(link)
            self._events.append(Lost(link.handle, why))

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("this endpoint was closed")


def _pieces(frame: Frame) -> Iterator[bytes]:
    kind, payload, key, source, destination = frame
    whole = FRAME.pack(kind, len(payload), key, source, destination) + payload
    for at in range(0, len(whole), PIECE_BYTES):
        yield whole[at : at + PIECE_BYTES]


def _refuse_oversize(inbox: bytearray) -> None:
    """Raise before more is kept than a frame of that kind may have."""
    kind, size, *_ = FRAME.unpack_from(inbox)
    if kind not in BOUND or size > BOUND[Kind(kind)] or len(inbox) > FRAME.size + size:
        raise RemoteProtocolError(f"a frame of kind {kind} and {size} bytes, or more than it says")


def _whole(inbox: bytes) -> Frame:
    kind, size, key, source, destination = FRAME.unpack_from(inbox)
    if len(inbox) != FRAME.size + size:
        raise RemoteProtocolError(f"a frame of {len(inbox)} bytes that says {size}")
    return Frame(Kind(kind), inbox[FRAME.size :], key, source, destination)
