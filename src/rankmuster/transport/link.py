"""One TCP connection, or the wish for one: its handshake first, then its frames.

Bytes that came are taken in with `take` and become events; what is to be written stands in a buffer
until `flush`. Knows nothing of other connections, nor when it is time to give up.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field

from rankmuster.errors import LocalProtocolError
from rankmuster.transport.base import Event, Joined, Knocked, Received, Role
from rankmuster.transport.framing import Frame, Opener, Sealer, pack
from rankmuster.transport.handshake import Exchange, Proven, Refused, Turn, Why
from rankmuster.transport.names import Names

CHUNK_BYTES = 1 << 16
QUEUE_BYTES = 128 << 20  # what may wait to be written on one connection
NOTHING = Turn(b"", 0)


@dataclass(slots=True, eq=False)
class Link:
    """One connection. `address` is where it was dialled, "" for one that was accepted.

    `since` and `pause_s` are for whoever dials it again; a *patient* one waits for a listener.
    """

    handle: int
    sock: socket.socket | None = None
    address: str = ""
    role: Role | None = None
    patient: bool = True
    since: float = 0.0
    pause_s: float = 0.0
    trouble: str = ""  # what was wrong with the last attempt
    names: Names | None = None  # where the address leads to
    watched: int = 0
    _exchange: Exchange | None = None
    _turn: Turn = NOTHING
    _inbox: bytearray = field(default_factory=bytearray)
    _outbox: bytearray = field(default_factory=bytearray)
    _queued: list[bytes] = field(default_factory=list)  # until they are written, all at once
    _queued_bytes: int = 0
    _sealer: Sealer | None = None
    _opener: Opener | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the handshake has begun."""
        return self._exchange is not None or self._sealer is not None

    @property
    def is_proven(self) -> bool:
        """Whether both sides have shown that they know the secret."""
        return self._sealer is not None

    @property
    def has_knocked(self) -> bool:
        """Whether an accepted connection came with a valid hello."""
        return self._turn.knocked is not None

    @property
    def has_spoken(self) -> bool:
        """Whether our first message is on its way."""
        return self.is_connected and not self._outbox

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._outbox and not self._queued

    @property
    def began_to_speak(self) -> bool:
        """Whether the other side sent some bytes that led nowhere yet."""
        return bool(self._inbox)

    @property
    def beginning(self) -> bytes:
        """The first bytes of what led nowhere."""
        return bytes(self._inbox[:8])

    def begin(self, exchange: Exchange) -> None:
        """Start the handshake."""
        self._exchange = exchange
        self._turn = next(exchange)
        self._outbox += self._turn.send

    def read(self) -> bytes:
        """What the socket has; b"" at its end. Raises OSError, BlockingIOError for nothing now.

        Before the handshake is over not a byte more is read than its next message has.
        """
        assert self.sock is not None
        if self._sealer is not None:
            return self.sock.recv(CHUNK_BYTES)
        most = max(self._turn.needs, self._turn.at_most)
        return self.sock.recv(max(most - len(self._inbox), 1))

    def take(self, chunk: bytes) -> list[Event]:
        """Take in what was read. Raises `Refused`, and `RemoteProtocolError` for a bad frame."""
        if self._opener is not None:
            return [Received(self.handle, frame) for frame in self._opener.feed(chunk)]
        self._inbox += chunk
        if not self._inbox.startswith(self._turn.prefix[: len(self._inbox)]):
            raise Refused(Why.PROTOCOL)
        return self._shake()

    def send(self, frame: Frame) -> None:
        """Keep *frame* until what is queued is written, or the handshake is over."""
        packed = pack(frame)
        self._queued.append(packed)
        self._queued_bytes += len(packed)
        if self._queued_bytes + len(self._outbox) > QUEUE_BYTES:
            raise LocalProtocolError(f"over {QUEUE_BYTES} bytes wait to be written to one process")

    def flush(self) -> bool:
        """Write what the socket takes now; return whether something is left."""
        if self.sock is None:
            return False
        if self._sealer is not None and self._queued:
            self._outbox += self._sealer.seal_all(self._queued)
            self._queued.clear()
            self._queued_bytes = 0
        try:
            while self._outbox:
                sent = self.sock.send(self._outbox)
                del self._outbox[:sent]
        except BlockingIOError:
            return True
        except OSError:
            # The reading side says why; until then nothing more can be written.
            self._outbox.clear()
        return False

    def refuse(self, reply: bytes) -> None:
        """Tell the other side why it is turned away, if that can be written at once."""
        if reply and self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.send(reply)

    def start_over(self) -> None:
        """Forget a handshake that failed; frames that wait are kept for the next one."""
        self._exchange = None
        self._turn = NOTHING
        self._inbox.clear()
        self._outbox.clear()

    def _shake(self) -> list[Event]:
        """Go on with the handshake as far as the bytes in hand allow."""
        events: list[Event] = []
        assert self._exchange is not None
        try:
            while len(self._inbox) >= self._turn.needs:
                taken = bytes(self._inbox[: self._turn.needs])
                del self._inbox[: self._turn.needs]
                self._turn = self._exchange.send(taken)
                self._outbox += self._turn.send
                if self._turn.knocked is not None:
                    events.append(Knocked(self.handle, *self._turn.knocked))
        except StopIteration as stop:
            events.append(self._prove(stop.value))
        return events

    def _prove(self, proven: Proven) -> Joined:
        self._exchange = None
        self._sealer, self._opener = Sealer(proven.send_key), Opener(proven.receive_key)
        return Joined(self.handle, proven.identity, proven.role)
