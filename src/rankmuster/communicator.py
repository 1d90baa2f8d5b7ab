"""A communicator that came up: small control-plane exchanges among its members, nothing more.

Knows the steps of its exchanges, and that somebody can run them; no socket and no root.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol, TypeVar

import msgspec

from rankmuster.errors import LocalProtocolError, MusterError, RemoteProtocolError
from rankmuster.group import SubGroup
from rankmuster.protocol.barrier import barrier
from rankmuster.protocol.bootstrap import (
    hypercube_children,
    hypercube_parent,
    tree_children,
    tree_parent,
)
from rankmuster.protocol.steps import Recv, Send, Steps
from rankmuster.transport.base import Deadline

T = TypeVar("T")
DEADLINE_S = 60.0
GATHERED_BYTES = 8 << 20  # by all members together
LENGTH_BYTES = 4


class Runner(Protocol):
    """Runs steps for the local members of a group, over the connections of a bring-up."""

    def run(
        self,
        key: bytes,
        members: SubGroup,
        make: Callable[[int], Steps[T]],
        deadline: Deadline,
    ) -> dict[int, T | MusterError]:
        """Run what *make* makes of each local member's rank; each device's result or error."""


class Communicator:
    """The devices *members*, in order; `unique_id` (128 bytes) is the same on all of them.

    All members call the same methods in the same order. Every call ends by its deadline: it raises
    `DeadlineExceeded`, or `PeerLost` when a member went away.
    """

    def __init__(self, members: SubGroup, unique_id: bytes, runner: Runner) -> None:
        self.members = members
        self.unique_id = unique_id
        self._runner = runner
        self._calls = 0

    @property
    def size(self) -> int:
        """How many devices it has."""
        return len(self.members)

    def barrier(self, *, deadline_s: float = DEADLINE_S) -> None:
        """Return once every member has come here."""
        no = self._run(lambda rank: barrier(rank, self.size), deadline_s)
        if no is not None:
            raise no.__cause__ if isinstance(no.__cause__, MusterError) else no

    def all_gather(self, payload: bytes, *, deadline_s: float = DEADLINE_S) -> tuple[bytes, ...]:
        """Every member's *payload*, by rank; each device of this process contributes this one.

        Raises `LocalProtocolError` where all of them together could be too large.
        """
        if len(payload) * self.size > GATHERED_BYTES:
            raise LocalProtocolError(
                f"{len(payload)} bytes from each of {self.size} members are over the bound of "
                f"{GATHERED_BYTES}",
                fix="control-plane payloads only",
            )
        return self._run(lambda rank: all_gather(rank, self.size, payload), deadline_s)

    def _run(self, make: Callable[[int], Steps[T]], deadline_s: float) -> T:
        deadline = Deadline.after(deadline_s)
        outcomes = self._runner.run(self._next_key(), self.members, make, deadline)
        for outcome in outcomes.values():
            if isinstance(outcome, MusterError):
                raise outcome
        first = next(iter(outcomes.values()))
        assert not isinstance(first, MusterError)
        return first

    def _next_key(self) -> bytes:
        """A key of its own for each call, the same on all members."""
        self._calls += 1
        packed = msgspec.json.encode((self.members, self._calls))
        return blake2b(packed, digest_size=16, person=b"call").digest()


def all_gather(rank: int, size: int, payload: bytes) -> Steps[tuple[bytes, ...]]:
    """Payloads up the binary tree, all of them down the hypercube: the edges of the bootstrap."""
    held = {rank: payload}
    for child in tree_children(rank, size):
        held |= _decode((yield from _hear(child)))
    whole = msgspec.msgpack.encode(held)
    if rank > 0:
        yield from _say(tree_parent(rank), whole)
        whole = yield from _hear(hypercube_parent(rank))
        held = _decode(whole)
    for child in hypercube_children(rank, size):
        yield from _say(child, whole)
    if sorted(held) != list(range(size)):
        raise RemoteProtocolError(f"a gather of {size} ranks brought {sorted(held)}")
    return tuple(held[each] for each in range(size))


def _say(peer: int, body: bytes) -> Steps[None]:
    yield Send(peer, len(body).to_bytes(LENGTH_BYTES, "little"))
    yield Send(peer, body)


def _hear(peer: int) -> Steps[bytes]:
    length = int.from_bytes((yield Recv(peer, LENGTH_BYTES)), "little")
    if length > 2 * GATHERED_BYTES:
        raise RemoteProtocolError(f"rank {peer} wants to send {length} bytes")
    return (yield Recv(peer, length))


def _decode(body: bytes) -> dict[int, bytes]:
    try:
        return msgspec.msgpack.decode(body, type=dict[int, bytes])
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"a gather brought what cannot be read: {error}") from error
