"""The endpoint over TCP: one selector, no threads, every socket non-blocking.

Whoever wants to send dials. A dialled connection that fails before both sides are proven is
dialled again, with growing pauses, for as long as its owner keeps polling: the listener may not be
there yet. Accepted connections that do not prove themselves cost their own time and nothing else:
few bytes are read from them, few are kept, the oldest goes first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from rankmuster.address import Ends, join_address, shown, split_address
from rankmuster.errors import Closed, RemoteProtocolError
from rankmuster.transport.base import Event, Identity, Joined, Knocked, Lost, Role
from rankmuster.transport.doors import BACKLOG
from rankmuster.transport.framing import Frame
from rankmuster.transport.guests import LEFT, LEFT_HALF, Guests, TurnAway, kind_of
from rankmuster.transport.handshake import WORDS, Credentials, Refused, Why, dial, listen
from rankmuster.transport.link import Link
from rankmuster.transport.names import Names

ACCEPTS = 64  # per turn, so that a flood does not starve those who are in
FIRST_PAUSE_S, LAST_PAUSE_S = 0.001, 0.05
LOOK_UP_PAUSE_S = 1.0  # name servers are shared by all
CONNECT_S = 5.0  # then dial again: the first packet may have been lost


class TcpEndpoint:
    """All of one process's connections (see `base.Endpoint` for the contract).

    `strangers` counts, by kind, the connections that were turned away.
    """

    def __init__(self, credentials: Credentials, me: Identity, nonce: Callable[[], bytes]) -> None:
        self.strangers: Counter[str] = Counter()
        self._us, self._me, self._nonce = credentials, me, nonce
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._links: dict[int, Link] = {}
        self._guests = Guests()
        self._closed_doors: dict[socket.socket, float] = {}  # until then, for want of descriptors
        self._unsettled: dict[int, Link] = {}  # dialled, not proven yet
        self._dirty: dict[int, Link] = {}
        self._events: list[Event] = []
        self._handles = 0
        self._open = True

    # what others call

    def listen(self, host: str, backlog: int = BACKLOG) -> str:
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
        self._open_door(listener)
        return join_address(listener.getsockname())

    def deafen(self, listener: socket.socket) -> None:
        """Stop accepting from *listener* and close it; proven connections that it brought stay."""
        if self._closed_doors.pop(listener, None) is None:
            self._selector.unregister(listener)
        self._listeners.remove(listener)
        listener.close()
        # Who meant us dials again.
        self._turn_away(self._guests.left_over(time.monotonic()))

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
        link = self._new_link()
        link.address, link.role, link.patient = address, role, patient
        link.pause_s = FIRST_PAUSE_S
        self._unsettled[link.handle] = link
        self._connect(link)
        return link.handle

    def send(self, handle: int, frame: Frame) -> None:
        """Queue *frame*; on a handle that was lost it goes nowhere, as `Lost` has said."""
        self._check_open()
        if (link := self._links.get(handle)) is not None:
            link.send(frame)
            self._dirty[handle] = link

    def ends(self, handle: int) -> Ends | None:
        """Both addresses of a connection that is up."""
        link = self._links.get(handle)
        try:
            return ends_of(link.sock) if link is not None and link.sock is not None else None
        except OSError:
            return None

    def drop(self, handle: int) -> None:
        """Close one connection of ours; no `Lost` follows."""
        if (link := self._links.get(handle)) is not None:
            self._forget(link)

    def poll(self, timeout_s: float) -> list[Event]:
        """Move bytes, wait up to *timeout_s* for something, return what happened; it may be [].

        Raises `Closed`.
        """
        self._check_open()
        self._flush()
        due = self._next_chore()
        wait_s = 0.0 if self._events else max(0.0, min(timeout_s, due - time.monotonic()))
        for key, mask in self._selector.select(wait_s):
            key.data(mask)
        if time.monotonic() >= due:
            self._do_chores()
        self._flush()
        events, self._events = self._events, []
        return events

    def has_spoken(self) -> bool:
        """Whether every connection that we dialled has our first message on its way."""
        return all(link.has_spoken for link in self._unsettled.values())

    def unreached(self) -> dict[int, str]:
        """By handle, what is wrong with each address that we dialled and where nobody answers."""
        return {
            link.handle: f"{link.address}: {link.trouble or 'no answer'}"
            for link in self._unsettled.values()
            if not link.is_connected
        }

    def settled(self) -> bool:
        """Whether every connection that we dialled is proven."""
        return not self._unsettled

    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return all(link.is_idle for link in self._links.values())

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet."""
        return self._open

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

    def _accept(self, listener: socket.socket, _mask: int) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # out of descriptors
                if not self._turn_away(self._guests.make_room()):
                    self._close_door(listener)
                return
            link = self._new_link(sock)
            self._turn_away(self._guests.arrive(link))
            self._welcome(link)

    def _close_door(self, listener: socket.socket) -> None:
        """Accept nobody for a while; callers wait in the kernel's queue."""
        self._selector.unregister(listener)
        self._closed_doors[listener] = time.monotonic() + LAST_PAUSE_S

    def _open_door(self, listener: socket.socket) -> None:
        self._closed_doors.pop(listener, None)
        self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def _welcome(self, link: Link) -> None:
        link.begin(listen(self._us, self._me, self._nonce()))
        self._watch(link, selectors.EVENT_READ)
        self._readable(link)  # the hello is often here already

    def _turn_away(self, guests: list[TurnAway]) -> bool:
        for link, kind in guests:
            if kind:
                self._refuse(link, kind)
            else:
                self._forget(link)
        return bool(guests)

    def _connect(self, link: Link) -> None:
        link.since = time.monotonic()
        try:
            names = link.names = link.names or Names(link.address)
            if not names.known:
                link.trouble = "its name is being looked up"
                link.pause_s = min(2 * link.pause_s, LAST_PAUSE_S)
                return  # to come again after that
            family, name = names.next()
            link.sock = _settled(socket.socket(family, socket.SOCK_STREAM))
        except OSError as error:
            link.trouble, link.names = error.strerror or str(error), None
            self._retry(link)
            link.pause_s = LOOK_UP_PAUSE_S
            return
        link.sock.connect_ex(name)
        self._connected(link)  # on one machine it mostly is, at once
        if link.sock is not None and not link.is_connected:
            self._watch(link, selectors.EVENT_WRITE)

    def _connected(self, link: Link) -> None:
        assert link.sock is not None
        assert link.role is not None
        error = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error == errno.ECONNREFUSED and not link.patient:
            self._lose(link, "nobody listens there any more")
            return
        if error:
            link.trouble = os.strerror(error)
            self._retry(link)
            return
        try:
            ends = ends_of(link.sock)
        except OSError:
            return  # not yet
        link.begin(dial(self._us, self._me, link.role, self._nonce(), ends))
        self._flush_link(link)

    def _retry(self, link: Link) -> None:
        """Dial again after a pause, with the frames that wait kept."""
        self._detach(link)
        link.start_over()
        link.since = time.monotonic()
        link.pause_s = min(2 * link.pause_s, LAST_PAUSE_S)

    def _next_chore(self) -> float:
        due = self._guests.next_due()
        if self._unsettled or self._closed_doors:
            # One that is connected waits for as long as its owner does: the listener may read.
            times = [
                link.since + (CONNECT_S if link.sock else link.pause_s)
                for link in self._unsettled.values()
                if not link.is_connected
            ]
            due = min([due, *times, *self._closed_doors.values()])
        return due

    def _do_chores(self) -> None:
        now = time.monotonic()
        for link in list(self._unsettled.values()):
            if link.sock is None and now >= link.since + link.pause_s:
                self._connect(link)
            elif not link.is_connected and now >= link.since + CONNECT_S:
                self._retry(link)
        if now >= self._guests.next_due():
            self._turn_away(self._guests.overdue(now))
        for listener in [door for door, until in self._closed_doors.items() if now >= until]:
            self._open_door(listener)

    # bytes in, bytes out

    def _ready(self, link: Link, mask: int) -> None:
        if link.sock is None:
            return  # closed by an earlier event of the same turn
        if not link.is_connected:
            self._connected(link)
            return
        if mask & selectors.EVENT_WRITE:
            self._flush_link(link)
        if mask & selectors.EVENT_READ:
            self._readable(link)

    def _readable(self, link: Link) -> None:
        try:
            chunk = link.read()
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(link, error.strerror or str(error))
            return
        if not chunk:
            self._broken(link, "it closed the connection")
            return
        was_proven = link.is_proven
        try:
            events = link.take(chunk)
        except Refused as refused:
            self._turned_away(link, refused)
        except RemoteProtocolError as error:
            self._lose(link, str(error))
        else:
            if was_proven:
                self._events += events
                return
            self._note(link, events)
            if link.sock is not None and link.has_spoken:
                self._readable(link)  # it is not our turn: the rest came with it, mostly

    def _note(self, link: Link, events: list[Event]) -> None:
        """Take note of how far a handshake is."""
        for event in events:
            if isinstance(event, Knocked):
                self._turn_away(self._guests.knock(link, event.identity))
            elif isinstance(event, Joined):
                self._guests.leave(link)
                self._unsettled.pop(link.handle, None)
        self._events += events
        self._dirty[link.handle] = link

    def _turned_away(self, link: Link, refused: Refused) -> None:
        if not link.address:
            link.refuse(refused.reply)
            self._refuse(link, kind_of(link.beginning) or WORDS[refused.why])
        elif refused.why in {Why.PROTOCOL, Why.CONFIRM} or (
            refused.why is Why.EPOCH and refused.theirs < self._us.epoch
        ):
            self._retry(link)  # the root of our attempt is not there yet
        else:
            self._lose(link, f"refused: {WORDS[refused.why]}")

    def _broken(self, link: Link, why: str) -> None:
        if link.is_proven or link.has_knocked:
            self._lose(link, why)
        elif link.address:
            self._retry(link)
        else:
            self._refuse(link, LEFT_HALF if link.began_to_speak else LEFT)

    def _refuse(self, link: Link, kind: str) -> None:
        """Drop a connection that is not one of ours, and count it."""
        self.strangers[kind] += 1
        if link.has_knocked:
            self._events.append(Lost(link.handle, kind))
        self._forget(link)

    def _lose(self, link: Link, why: str) -> None:
        self._forget(link)
        self._events.append(Lost(link.handle, why))

    def _flush(self) -> None:
        while self._dirty:
            _, link = self._dirty.popitem()
            self._flush_link(link)

    def _flush_link(self, link: Link) -> None:
        if link.sock is None:
            return
        more = link.flush()
        if link.is_connected:
            self._watch(link, selectors.EVENT_READ | (selectors.EVENT_WRITE if more else 0))

    # bookkeeping

    def _new_link(self, sock: socket.socket | None = None) -> Link:
        self._handles += 1
        link = Link(self._handles, sock and _settled(sock), since=time.monotonic())
        self._links[link.handle] = link
        return link

    def _watch(self, link: Link, mask: int) -> None:
        assert link.sock is not None
        if link.watched == mask:
            return
        change = self._selector.modify if link.watched else self._selector.register
        change(link.sock, mask, partial(self._ready, link))
        link.watched = mask

    def _detach(self, link: Link) -> None:
        if link.sock is not None:
            if link.watched:
                self._selector.unregister(link.sock)
            link.sock.close()
        link.sock, link.watched = None, 0

    def _forget(self, link: Link) -> None:
        self._detach(link)
        self._guests.leave(link)
        for table in (self._links, self._unsettled, self._dirty):
            table.pop(link.handle, None)

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("this endpoint was closed")


def ends_of(sock: socket.socket) -> Ends:
    """Both addresses of a connected socket. Raises OSError where the other end is gone."""
    return Ends(shown(sock.getsockname()), shown(sock.getpeername()))


def _settled(sock: socket.socket) -> socket.socket:
    """The socket, so that it never blocks and sends small frames at once."""
    sock.settimeout(0.0)
    with contextlib.suppress(OSError):  # macOS refuses it on a connection that was reset already
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
