"""The endpoint over TCP: one selector, no threads, every socket non-blocking.

Whoever wants to send dials. A dialled connection that fails before both sides are proven is
dialled again, with growing pauses, for as long as its owner keeps polling: the listener may not be
there yet. Accepted connections that do not prove themselves cost their own time and nothing else:
few bytes are read from them, few are kept, the oldest goes first.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rankmuster.errors import Closed, LocalProtocolError, RemoteProtocolError
from rankmuster.transport.address import join_address, split_address
from rankmuster.transport.base import Event, Identity, Joined, Knocked, Lost, Received, Role
from rankmuster.transport.framing import Frame, Opener, Sealer
from rankmuster.transport.handshake import (
    WORDS,
    Credentials,
    Exchange,
    Proven,
    Refused,
    Turn,
    Why,
    dial,
    listen,
)

CHUNK_BYTES = 1 << 16
QUEUE_BYTES = 128 << 20  # what may wait to be written on one connection
UNPROVEN_LIMIT = 256  # accepted connections that have not shown a valid hello
HELLO_S = 5.0  # and how long one of them may take
ACCEPTS = 64  # per turn, so that a flood does not starve those who are in
FIRST_PAUSE_S, LAST_PAUSE_S = 0.001, 0.05
CONNECT_S = 5.0  # then dial again: the first packet may have been lost


NOTHING = Turn(b"", 0)


@dataclass(slots=True, eq=False)
class _Link:
    """One connection, or the wish for one."""

    handle: int
    role: Role | None = None
    address: str = ""  # where to dial; "" where it was accepted
    sock: socket.socket | None = None
    exchange: Exchange | None = None
    turn: Turn = NOTHING
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    queued: list[Frame] = field(default_factory=list)  # until there is a key to seal them with
    sealer: Sealer | None = None
    opener: Opener | None = None
    watched: int = 0
    since: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    patient: bool = True


class TcpEndpoint:
    """All of one process's connections (see `base.Endpoint` for the contract).

    `strangers` counts, by kind, the connections that were turned away.
    """

    def __init__(self, credentials: Credentials, me: Identity, nonce: Callable[[], bytes]) -> None:
        self.strangers: Counter[str] = Counter()
        self._us, self._me, self._nonce = credentials, me, nonce
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._links: dict[int, _Link] = {}
        self._unproven: dict[int, _Link] = {}  # accepted, no valid hello yet; oldest first
        self._unsettled: dict[int, _Link] = {}  # dialled, not proven yet
        self._dirty: dict[int, _Link] = {}
        self._events: list[Event] = []
        self._handles = 0
        self._open = True

    # what others call

    def listen(self, host: str, backlog: int = 128) -> str:
        """Listen on a free port of *host*; return the address that others may dial."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((host, 0))
            listener.listen(backlog)
        except OSError:
            listener.close()
            raise
        return self.adopt(listener)

    def adopt(self, listener: socket.socket) -> str:
        """Accept from a socket that listens already; it is closed with this endpoint."""
        self._check_open()
        listener.settimeout(0.0)
        self._listeners.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, lambda _: self._accept(listener))
        return join_address(listener.getsockname())

    def watch(self, descriptor: int, action: Callable[[], None]) -> None:
        """Call *action* in `poll` when *descriptor*, which stays the caller's, has news."""
        self._check_open()
        self._selector.register(descriptor, selectors.EVENT_READ, lambda _: action())

    def dial(self, address: str, role: Role, *, patient: bool = True) -> int:
        """Want a connection to *address*; frames may be sent on the handle at once.

        Raises `BadAddress`. `Lost` follows only when the other side turned us away for good, went
        away after both were proven, or, unless we are *patient*, does not listen.
        """
        self._check_open()
        split_address(address)
        link = self._new_link(role=role, address=address)
        link.patient = patient
        self._unsettled[link.handle] = link
        self._connect(link)
        return link.handle

    def send(self, handle: int, frame: Frame) -> None:
        """Queue *frame*; on a handle that was lost it goes nowhere, as `Lost` has said."""
        self._check_open()
        link = self._links.get(handle)
        if link is None:
            return
        if link.sealer is None:
            link.queued.append(frame)
            return
        link.outbox += link.sealer.seal(frame)
        if len(link.outbox) > QUEUE_BYTES:
            raise LocalProtocolError(f"over {QUEUE_BYTES} bytes wait to be written to one process")
        self._dirty[handle] = link

    def drop(self, handle: int) -> None:
        """Close one connection of ours; no `Lost` follows."""
        link = self._links.get(handle)
        if link is not None:
            self._forget(link)

    def poll(self, timeout_s: float) -> list[Event]:
        """Move bytes, wait up to *timeout_s* for something, return what happened; it may be [].

        Raises `Closed`.
        """
        self._check_open()
        self._flush()
        wait_s = 0.0 if self._events else max(0.0, min(timeout_s, self._next_chore_s()))
        for key, mask in self._selector.select(wait_s):
            key.data(mask)
        self._do_chores()
        self._flush()
        events, self._events = self._events, []
        return events

    def has_spoken(self) -> bool:
        """Whether every connection that we dialled has our first message on its way."""
        return all(link.exchange and not link.outbox for link in self._unsettled.values())

    def settled(self) -> bool:
        """Whether every connection that we dialled is proven."""
        return not self._unsettled

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not any(link.outbox or link.queued for link in self._links.values())

    def close(self) -> None:
        """Close every socket; what still waits to be written is lost. Closing twice is fine."""
        self._open = False
        for link in list(self._links.values()):
            self._forget(link)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._selector.close()

    # accepting and dialling

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of descriptors, or the other side was gone already: make room, try later.
                self._evict()
                return
            link = self._new_link(sock=sock)
            self._settle(sock)
            self._unproven[link.handle] = link
            if len(self._unproven) > UNPROVEN_LIMIT:
                self._evict()
            self._begin(link, listen(self._us, self._me, self._nonce(), _ends(sock, dialled=False)))
            if link.sock is not None:
                self._readable(link)  # the hello is often here already

    def _evict(self) -> None:
        oldest = next(iter(self._unproven.values()), None)
        if oldest is not None:
            self._refuse(oldest, "pushed out by newer ones")

    def _connect(self, link: _Link) -> None:
        host, port = split_address(link.address)
        link.since = time.monotonic()
        try:
            # As bytes: a name given as text goes through the IDNA codec, whose import alone takes
            # longer than all the rest of a connection.
            family, kind, protocol, _, name = socket.getaddrinfo(
                host.encode(), port, type=socket.SOCK_STREAM
            )[0]
            link.sock = sock = socket.socket(family, kind, protocol)
        except OSError:
            self._retry(link)
            return
        self._settle(sock)
        sock.connect_ex(name)
        self._watch(link, selectors.EVENT_WRITE)
        self._connected(link)  # on one machine it mostly is, at once

    def _connected(self, link: _Link) -> None:
        assert link.sock is not None
        error = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error == errno.ECONNREFUSED and not link.patient:
            self._lose(link, "nobody listens there any more")
            return
        if error:
            self._retry(link)
            return
        try:
            ends = _ends(link.sock, dialled=True)
        except OSError:
            return  # not yet
        assert link.role is not None
        self._begin(link, dial(self._us, self._me, link.role, self._nonce(), ends))

    def _retry(self, link: _Link) -> None:
        """Dial again after a pause, with the frames that wait kept."""
        self._detach(link)
        link.exchange = None
        link.inbox.clear()
        link.outbox.clear()
        link.since = time.monotonic()
        link.pause_s = min(2 * link.pause_s, LAST_PAUSE_S)

    def _next_chore_s(self) -> float:
        now = time.monotonic()
        times = [
            link.since + (CONNECT_S if link.sock else link.pause_s)
            for link in self._unsettled.values()
        ]
        oldest = next(iter(self._unproven.values()), None)
        if oldest is not None:
            times.append(oldest.since + HELLO_S)
        return min(times) - now if times else float("inf")

    def _do_chores(self) -> None:
        if not self._unsettled and not self._unproven:
            return
        now = time.monotonic()
        for link in list(self._unsettled.values()):
            if link.sock is None and now >= link.since + link.pause_s:
                self._connect(link)
            elif link.sock is not None and now >= link.since + CONNECT_S:
                self._retry(link)
        for link in list(self._unproven.values()):
            if now < link.since + HELLO_S:
                break
            self._refuse(link, "silent")

    # the handshake

    def _begin(self, link: _Link, exchange: Exchange) -> None:
        link.exchange = exchange
        link.turn = next(exchange)
        self._take_turn(link)

    def _take_turn(self, link: _Link) -> None:
        link.outbox += link.turn.send
        self._dirty[link.handle] = link
        if link.turn.knocked is not None:
            self._unproven.pop(link.handle, None)
            self._events.append(Knocked(link.handle, *link.turn.knocked))
        self._flush_link(link)

    def _advance(self, link: _Link) -> None:
        """Go on with the handshake as far as the bytes in hand allow."""
        try:
            while link.exchange is not None and len(link.inbox) >= link.turn.needs:
                taken = bytes(link.inbox[: link.turn.needs])
                del link.inbox[: link.turn.needs]
                link.turn = link.exchange.send(taken)
                self._take_turn(link)
        except StopIteration as stop:
            self._prove(link, stop.value)
        except Refused as refused:
            self._turned_away(link, refused)

    def _turned_away(self, link: _Link, refused: Refused) -> None:
        if link.address:
            behind = refused.why is Why.EPOCH and refused.theirs < self._us.epoch
            if behind or refused.why in {Why.PROTOCOL, Why.CONFIRM}:
                self._retry(link)  # the root of our attempt is not there yet
            else:
                self._lose(link, f"refused: {WORDS[refused.why]}")
            return
        if refused.reply and link.sock is not None:
            with contextlib.suppress(OSError):
                link.sock.send(refused.reply)
        self._refuse(link, WORDS[refused.why])

    def _prove(self, link: _Link, proven: Proven) -> None:
        link.exchange = None
        link.sealer, link.opener = Sealer(proven.send_key), Opener(proven.receive_key)
        link.role = proven.role
        self._unproven.pop(link.handle, None)
        self._unsettled.pop(link.handle, None)
        self._events.append(Joined(link.handle, proven.identity, proven.role))
        for frame in link.queued:
            self.send(link.handle, frame)
        link.queued.clear()

    def _refuse(self, link: _Link, kind: str) -> None:
        """Drop a connection that is not one of ours, and count it."""
        self.strangers[kind] += 1
        self._forget(link)

    # bytes in, bytes out

    def _ready(self, link: _Link, mask: int) -> None:
        if link.sock is None:
            return  # closed by an earlier event of the same turn
        if link.exchange is None and link.sealer is None:
            self._connected(link)
            return
        if mask & selectors.EVENT_WRITE:
            self._flush_link(link)
        if mask & selectors.EVENT_READ and link.sock is not None:
            self._readable(link)

    def _readable(self, link: _Link) -> None:
        assert link.sock is not None
        unproven = link.sealer is None
        try:
            # Before a hello is valid not a byte more is read than it has (at most 256).
            size = max(link.turn.needs - len(link.inbox), 1) if unproven else CHUNK_BYTES
            chunk = link.sock.recv(size)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(link, error.strerror or str(error))
            return
        if not chunk:
            self._broken(link, "it closed the connection")
        elif unproven:
            link.inbox += chunk
            if link.inbox.startswith(link.turn.prefix[: len(link.inbox)]):
                self._advance(link)
            else:
                self._turned_away(link, Refused(Why.PROTOCOL))
        else:
            self._open_frames(link, chunk)

    def _open_frames(self, link: _Link, chunk: bytes) -> None:
        assert link.opener is not None
        try:
            frames = link.opener.feed(chunk)
        except RemoteProtocolError as error:
            self._lose(link, str(error))
            return
        self._events += [Received(link.handle, frame) for frame in frames]

    def _broken(self, link: _Link, why: str) -> None:
        if link.sealer is not None:
            self._lose(link, why)
        elif link.address:
            self._retry(link)
        elif link.turn.knocked is not None:
            self._lose(link, why)
        else:
            self._refuse(link, "left without a word" if not link.inbox else "left half-way")

    def _lose(self, link: _Link, why: str) -> None:
        self._forget(link)
        self._events.append(Lost(link.handle, why))

    def _flush(self) -> None:
        while self._dirty:
            _, link = self._dirty.popitem()
            self._flush_link(link)

    def _flush_link(self, link: _Link) -> None:
        self._dirty.pop(link.handle, None)
        if link.sock is None:
            return
        try:
            while link.outbox:
                sent = link.sock.send(link.outbox)
                del link.outbox[:sent]
        except BlockingIOError:
            pass  # the rest goes when the socket has room
        except OSError:
            # The reading side says why; until then nothing more can be written.
            link.outbox.clear()
        want = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.outbox else 0)
        if link.watched != want:
            self._watch(link, want)

    # bookkeeping

    def _new_link(
        self, *, role: Role | None = None, address: str = "", sock: socket.socket | None = None
    ) -> _Link:
        self._handles += 1
        link = _Link(
            handle=self._handles, role=role, address=address, sock=sock, since=time.monotonic()
        )
        self._links[link.handle] = link
        return link

    @staticmethod
    def _settle(sock: socket.socket) -> None:
        sock.settimeout(0.0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _watch(self, link: _Link, mask: int) -> None:
        assert link.sock is not None
        if link.watched:
            self._selector.modify(link.sock, mask, lambda got: self._ready(link, got))
        else:
            self._selector.register(link.sock, mask, lambda got: self._ready(link, got))
        link.watched = mask

    def _detach(self, link: _Link) -> None:
        if link.sock is not None:
            if link.watched:
                self._selector.unregister(link.sock)
            link.sock.close()
        link.sock, link.watched = None, 0

    def _forget(self, link: _Link) -> None:
        self._detach(link)
        for table in (self._links, self._unproven, self._unsettled, self._dirty):
            table.pop(link.handle, None)

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("this endpoint was closed")


def _ends(sock: socket.socket, *, dialled: bool) -> tuple[str, str]:
    """The dialler's and the listener's address, as this end sees them."""
    ours, theirs = join_address(sock.getsockname()), join_address(sock.getpeername())
    return (ours, theirs) if dialled else (theirs, ours)
