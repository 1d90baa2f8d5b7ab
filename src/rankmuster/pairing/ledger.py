"""One number per process that adds up to zero over a world whose messages pair.

Each send adds a 128-bit hash of itself and each receive subtracts that of the send it expects, and
so do input and output splits (design §3.1): whoever sums the world's numbers need not see a
program to know that every message has its other end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rankmuster.group import SubGroup
from rankmuster.pairing.posts import Numbered, edges, posts, sequence
from rankmuster.pairing.splits import has_splits, split_ops
from rankmuster.program import OpKind
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import feed, hasher

MODULUS = 1 << 128


def ledger(resolved: Resolved, devices: Iterable[int]) -> int:
    """The sum, modulo 2**128, over what *devices* send less what they receive.

    Zero over all processes of a world whose sends, receives and splits match; a world in which they
    do not has one chance in 2**128 of that.
    """
    own = tuple(devices)
    total = 0
    if posts(resolved):
        total += sum(message_entries(resolved, own))
    if has_splits(resolved):
        total += sum(entry for device in own for entry in split_entries(resolved, device))
    return total % MODULUS


def message_entries(resolved: Resolved, devices: Iterable[int]) -> Iterator[int]:
    """One number per send, and one below zero per receive."""
    numbered = Numbered()
    for kind, sign in ((OpKind.SEND, 1), (OpKind.RECV, -1)):
        for edge, through in edges(resolved, devices, kind, numbered).items():
            where = members_digest(resolved, numbered.members[edge.communicator])
            ends = (edge.source, edge.target, edge.label)
            for ordinal, message in enumerate(sequence(resolved, through)):
                yield sign * number(where, *ends, ordinal, message.content)


def split_entries(resolved: Resolved, device: int) -> Iterator[int]:
    """One number per peer and op for the input splits, and one below zero for the output splits."""
    for members in resolved.communicators(device):
        where = members_digest(resolved, members)
        for ordinal, token in enumerate(split_ops(resolved, members)):
            assert token.op is not None
            inputs, outputs = token.op.input_splits, token.op.output_splits
            if inputs is None or outputs is None:
                continue  # half of the splits says nothing of the other half
            for peer, count in zip(members, inputs, strict=False):
                yield number(where, device, peer, "split", ordinal, count)
            for peer, count in zip(members, outputs, strict=False):
                yield -number(where, peer, device, "split", ordinal, count)


def members_digest(resolved: Resolved, members: SubGroup) -> bytes:
    """A communicator as the ledger names it."""
    key = ("ledger", id(members))
    if (known := resolved.memo.get(key)) is None:
        state = hasher("ledger members")
        feed(state, members)
        known = resolved.memo[key] = (state.digest(), members)  # its members keep the id taken
    return bytes(known[0])


def number(*fields: Any) -> int:
    """A hash of *fields* as a number below 2**128."""
    state = hasher("ledger")
    feed(state, *fields)
    return int.from_bytes(state.digest(), "little")
