"""The three messages by which two processes of one job prove themselves to each other.

    dialler                                  listener
    hello: who, nonce, proof of the secret ->
                                          <- hello: who, nonce, proof over the dialler's hello
    confirm: both addresses, proof over
             everything                   ->

Knows no socket and no randomness: each side is a generator that yields what to send and how many
bytes it needs next. The listener reads one hello (80 bytes) and nothing more before it believes
that the other side knows the secret. Whatever is wrong ends in `Refused`, which says what kind of
stranger that was.

The addresses are those that the dialler sees. The listener may see others, for they are translated
on some ways; it does not compare them. What a process says of its own address is in its card, which
the root compares with what it sees (RM608).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Generator
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from rankmuster.address import Ends
from rankmuster.errors import RemoteProtocolError
from rankmuster.transport.base import Identity, Role

MAGIC = b"RMUSTER\n"
REFUSAL_MAGIC = b"RMREFUSE"
VERSION = 1
NONCE_BYTES = 16
PROOF_BYTES = KEY_BYTES = 32
# magic, protocol version, role (0 from the listener), job epoch, process, first device, devices,
# nonce, proof
HELLO = struct.Struct("<8sHB5xIIII16s32s")
assert HELLO.size == 80
CONFIRM = struct.Struct("<96s32s")  # the dialler's and the listener's address as text, proof
REFUSAL = struct.Struct("<8sBI")  # magic, why, and the listener's epoch


class Why(IntEnum):
    """Why a connection was turned away; the numbers are on the wire."""

    PROTOCOL = 1
    SECRET = 2
    VERSION = 3
    EPOCH = 4
    ROLE = 5
    CONFIRM = 6


WORDS = {
    Why.PROTOCOL: "not our protocol",
    Why.SECRET: "wrong secret",
    Why.VERSION: "other version",
    Why.EPOCH: "other epoch",
    Why.ROLE: "unknown role",
    Why.CONFIRM: "handshake not confirmed",
}
"""The kinds of strangers, as the report lists them."""
_WHYS = {int(why): why for why in Why}


class Refused(RemoteProtocolError):
    """The other side is not one of us. `reply` tells it why, where it may know."""

    def __init__(self, why: Why, *, reply: bytes = b"", theirs: int = 0) -> None:
        super().__init__(WORDS[why])
        self.why, self.reply, self.theirs = why, reply, theirs


class Credentials(NamedTuple):
    """What the processes of one attempt of one job share."""

    secret: bytes
    job: bytes
    epoch: int

    def proof(self, *parts: bytes) -> bytes:
        """What only a holder of the secret can make of *parts*."""
        framed = b"".join([len(part).to_bytes(4, "little") + part for part in (self.job, *parts)])
        return _hmac(self.secret, framed)[:PROOF_BYTES]


class Turn(NamedTuple):
    """Send these bytes, then come back with exactly `needs` bytes that start with `prefix`.

    The other side may have sent up to `at_most` bytes, where that is more.
    """

    send: bytes
    needs: int
    prefix: bytes = b""
    at_most: int = 0
    knocked: tuple[Identity, Role] | None = None


class Proven(NamedTuple):
    """Both sides know the secret: who the other is, and a key for each direction."""

    identity: Identity
    role: Role
    send_key: bytes
    receive_key: bytes


Exchange: TypeAlias = Generator[Turn, bytes, Proven]


class Hello(NamedTuple):
    """The first message of either side, without its proof."""

    version: int
    role: int
    epoch: int
    identity: Identity
    nonce: bytes

    def pack(self, proof: bytes) -> bytes:
        """The message; the proof covers all of it that comes before."""
        return HELLO.pack(
            MAGIC, self.version, self.role, self.epoch, *self.identity, self.nonce, proof
        )

    @property
    def body(self) -> bytes:
        """What the proof covers."""
        return self.pack(bytes(PROOF_BYTES))[:-PROOF_BYTES]


def dial(us: Credentials, me: Identity, role: Role, nonce: bytes, ends: Ends) -> Exchange:
    """The dialler's side, who sees *ends* as the addresses. Raises `Refused`."""
    mine = Hello(VERSION, role, us.epoch, me, nonce)
    hello = mine.pack(us.proof(b"dialler", mine.body))
    answer = yield Turn(hello, REFUSAL.size, at_most=HELLO.size)
    magic, why, epoch = REFUSAL.unpack(answer)
    if magic == REFUSAL_MAGIC:
        raise Refused(_WHYS.get(why, Why.PROTOCOL), theirs=epoch)
    answer += yield Turn(b"", HELLO.size - REFUSAL.size)
    theirs, proof = _unpack(answer)
    if not hmac.compare_digest(proof, us.proof(b"listener", theirs.body, hello)):
        raise Refused(Why.SECRET)
    seen = " ".join(ends).encode().ljust(CONFIRM.size - PROOF_BYTES, b"\0")
    yield Turn(seen + us.proof(b"confirm", hello, answer, seen), 0)
    to_listener, to_dialler = _keys(us, mine.nonce + theirs.nonce)
    return Proven(theirs.identity, role, to_listener, to_dialler)


def listen(us: Credentials, me: Identity, nonce: bytes) -> Exchange:
    """The listener's side.

    Raises `Refused`; its `reply` is empty where the other side has proven nothing but noise.
    """
    hello = yield Turn(b"", HELLO.size, prefix=MAGIC)
    theirs, proof = _unpack(hello)
    if not hmac.compare_digest(proof, us.proof(b"dialler", theirs.body)):
        raise Refused(Why.SECRET, reply=_refusal(us, Why.SECRET))
    why = _objection(us, theirs)
    if why:
        told = theirs.epoch if why is Why.EPOCH else theirs.version
        raise Refused(why, reply=_refusal(us, why), theirs=told)
    mine = Hello(VERSION, 0, us.epoch, me, nonce)
    answer = mine.pack(us.proof(b"listener", mine.body, hello))
    confirm = yield Turn(answer, CONFIRM.size, knocked=(theirs.identity, Role(theirs.role)))
    seen, proof = CONFIRM.unpack(confirm)
    if not hmac.compare_digest(proof, us.proof(b"confirm", hello, answer, seen)):
        raise Refused(Why.CONFIRM)
    to_listener, to_dialler = _keys(us, theirs.nonce + nonce)
    return Proven(theirs.identity, Role(theirs.role), to_dialler, to_listener)


def _objection(us: Credentials, theirs: Hello) -> Why | None:
    if theirs.version != VERSION:
        return Why.VERSION
    if theirs.epoch != us.epoch:
        return Why.EPOCH
    return None if theirs.role in {Role.CENSUS, Role.PEER} else Why.ROLE


def _unpack(message: bytes) -> tuple[Hello, bytes]:
    magic, version, role, epoch, process, first, devices, nonce, proof = HELLO.unpack(message)
    if magic != MAGIC:
        raise Refused(Why.PROTOCOL)
    return Hello(version, role, epoch, Identity(process, first, devices), nonce), proof


def _refusal(us: Credentials, why: Why) -> bytes:
    return REFUSAL.pack(REFUSAL_MAGIC, why, us.epoch)


def _keys(us: Credentials, nonces: bytes) -> tuple[bytes, bytes]:
    """One key for each direction: HKDF (RFC 5869) of the secret, per job, epoch and direction."""
    root = _hmac(nonces, us.secret)  # extract
    info = b"to listener, to dialler" + us.job + us.epoch.to_bytes(4, "little")
    block = _hmac(root, info + b"\x01")  # expand, of which the first block holds both
    return block[:KEY_BYTES], block[KEY_BYTES:]


def _hmac(key: bytes, message: bytes) -> bytes:
    """HMAC (RFC 2104) with BLAKE2b, 64 bytes.

    Not with SHA-256: every process would start OpenSSL for it, which costs it half a millisecond.
    """
    return hmac.digest(key, message, blake2b)
