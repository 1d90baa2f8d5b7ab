"""The seeds' two-level MD5, bit for bit (`enc_calculate_signature`, S0 §4; facts §11.1, §11.10).

An inner MD5 per set runs over the device's own sub-group (or all sorted pairs) and the ops posted
on the set; an outer one over the inner digests. It is blind to root, dimension, loop counts and
the order across sets, so it never decides a verdict: `canonical` does.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING

from rankmuster.group import SubGroup
from rankmuster.program import POINT_TO_POINT, Op, OpKind
from rankmuster.resolve import GroupSet, Resolved
from rankmuster.signature.digest import Digest
from rankmuster.signature.words import (
    CUSTOM_REDUCE,
    DTYPE_WORDS,
    OP_WORDS,
    REDUCE_WORDS,
    UNKNOWN_DTYPE,
    sizes,
)

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

VIEW = struct.Struct("<IQII")  # op, size_n, dtype, reduce (facts D2)
P2P_VIEW = struct.Struct("<IQI")  # SEND, size_n, destination (facts D1, D3)
assert VIEW.size == 20
assert P2P_VIEW.size == 16

SEND = OP_WORDS[OpKind.SEND]
BETWEEN = b"\xff" * 8  # parts a stretch's sends from its receives (facts E5)
U32, U64 = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF
CHUNK = 4096  # views rendered at a time: they stay in the cache until they are hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class LibnrtSignatures:
    """A device's digests: `groups` by set id, and `whole` over those; None in no set (facts E8)."""

    whole: Digest | None
    groups: Mapping[int, Digest]


def sign(
    resolved: Resolved, device: int, *, hash_only_nonmember_groups: bool = False
) -> LibnrtSignatures:
    """Sign the program as *device*, a global id, does; loops count once, whatever their trips.

    *hash_only_nonmember_groups* takes S0's listing by its word: of the replica-group sets only
    those without the device sign, as a group of no members (facts D5 says why that cannot be).
    """
    groups = {
        each.id: set_digest(resolved, each, device)
        for each in resolved.sets
        if (device in each.by_device) is not (hash_only_nonmember_groups and each.pairs is None)
    }
    return LibnrtSignatures(whole=md5(*groups.values()) if groups else None, groups=groups)


def md5(*parts: bytes) -> Digest:
    """The MD5 of *parts* joined; a fingerprint here, no protection."""
    state = hashlib.md5(usedforsecurity=False)
    for part in parts:
        state.update(part)
    return Digest(state.digest())


def set_digest(resolved: Resolved, each: GroupSet, device: int) -> Digest:
    """The inner digest of one set as *device* signs it; computed once where devices share it."""
    own = each.by_device.get(device, ())
    shown = shows_device(resolved, each, device)
    # The sub-group by identity, as equal ones are one object and hashing a long one is slow.
    holder = device if shown else id(own) if each.pairs is None else None
    key = ("libnrt", each.id, shown, holder)
    if (known := resolved.memo.get(key)) is None:
        ids = own if each.pairs is None else chain.from_iterable(each.pairs)
        known = resolved.memo[key] = md5(pack_ids(ids), joined_views(resolved, each, device))
    return known


def shows_device(resolved: Resolved, each: GroupSet, device: int) -> bool:
    """Whether the digest depends on the device: only where two exchange messages (facts E6)."""
    if each.pairs is not None or len(each.by_device.get(device, ())) != 2:
        return False
    key = ("libnrt messages", each.id)
    if (known := resolved.memo.get(key)) is None:
        queue = queues(resolved).get(each.id, ())
        known = resolved.memo[key] = any(map(is_point_to_point, queue))
    return known


def set_views(resolved: Resolved, each: GroupSet, device: int) -> Iterator[bytes]:
    """The views of a set's ops that *device* hashes behind the ids of its group, op by op."""
    queue = queues(resolved).get(each.id, ())
    if shows_device(resolved, each, device):
        return two_rank_views(queue, device)
    return group_views(queue) if each.pairs is None else pairs_views(queue)


def joined_views(resolved: Resolved, each: GroupSet, device: int) -> bytes:
    """The same as one text, rendered once where it does not depend on the device."""
    if shows_device(resolved, each, device):
        return b"".join(set_views(resolved, each, device))
    key = ("libnrt views", each.id)
    if (known := resolved.memo.get(key)) is None:
        known = resolved.memo[key] = b"".join(set_views(resolved, each, device))
    return known


def queues(resolved: Resolved) -> Mapping[int, list[Op]]:
    """The ops posted on each set, in signing order (facts D4): once a place, whatever the trips."""
    if (known := resolved.memo.get("queues")) is None:
        known = resolved.memo["queues"] = {}
        for op in resolved.program.walk():
            known.setdefault(resolved.set_id(op), []).append(op)
    return known


def pack_ids(ids: Iterable[int]) -> bytes:
    """Ids as the original holds them: four bytes each, little endian (facts D6, D9)."""
    words = [number & U32 for number in ids]
    return struct.pack(f"<{len(words)}I", *words)


def is_point_to_point(op: Op) -> bool:
    """Whether *op* is a send or a receive."""
    return op.kind in POINT_TO_POINT


def views(op: Op) -> bytes:
    """The 20-byte views of a collective, one per operand (facts D2, E1 to E4)."""
    kind = OP_WORDS[op.kind]
    reduce = REDUCE_WORDS.get(op.reduce, CUSTOM_REDUCE)
    dtypes = op.dtype or ("unknown",)
    return b"".join(
        VIEW.pack(kind, size & U64, DTYPE_WORDS.get(dtype, UNKNOWN_DTYPE), reduce)
        for size, dtype in zip(sizes(op), dtypes, strict=True)
    )


def messages(ops: Iterable[Op], destination: int = 0) -> list[bytes]:
    """The 16-byte views of sends and receives, one per operand."""
    return [P2P_VIEW.pack(SEND, size & U64, destination & U32) for op in ops for size in sizes(op)]


def group_views(queue: Iterable[Op]) -> Iterator[bytes]:
    """The ops of a replica-group set without its messages, which differ by rank (facts E6)."""
    return (views(op) for op in queue if not is_point_to_point(op))


def two_rank_views(queue: Iterable[Op], device: int) -> Iterator[bytes]:
    """The ops of a sub-group of two: both ends of a message name the device that receives it.

    S0 §4: RECV hashes as SEND plus the receiver's own id. Each stretch of messages is sorted by
    that id, so that both ranks list it in one order (facts E6).
    """
    for crossing, stretch in groupby(queue, is_point_to_point):
        if not crossing:
            yield from map(views, stretch)
            continue
        addressed = [(op.peer if op.kind is OpKind.SEND else device, op) for op in stretch]
        addressed.sort(key=lambda each: -1 if each[0] is None else each[0])
        for destination, op in addressed:
            yield from messages([op], U32 if destination is None else destination)


def pairs_views(queue: Iterable[Op]) -> Iterator[bytes]:
    """The ops of a pairs set, where a rank's own place must not show (facts E5).

    Of each stretch of messages the sends stand for the receives if they are alike or alone.
    """
    for crossing, stretch in groupby(queue, is_point_to_point):
        if not crossing:
            yield from map(views, stretch)
            continue
        ops = list(stretch)
        sends = b"".join(messages(op for op in ops if op.kind is OpKind.SEND))
        receives = b"".join(messages(op for op in ops if op.kind is OpKind.RECV))
        if sends == receives or not receives:
            yield sends
        else:
            yield sends + BETWEEN + receives if sends else receives


def digest_columns(
    members: SubGroup,
    kinds: NDArray[np.integer[Any]],
    elements: NDArray[np.integer[Any]],
    dtypes: NDArray[np.integer[Any]],
    reduces: NDArray[np.integer[Any]],
) -> Digest:
    """The inner digest of a sub-group whose collectives come as columns of words (facts E1 to E3).

    All columns have one entry per view, in queue order; `elements` are already 0 where counts may
    differ. Equal to signing the same ops one by one; raises ValueError for unequal lengths.
    """
    import numpy as np

    columns = (kinds, elements, dtypes, reduces)
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"columns of {', '.join(str(len(column)) for column in columns)} entries")
    layout = np.dtype([("op", "<u4"), ("size", "<u8"), ("dtype", "<u4"), ("reduce", "<u4")])
    assert layout.itemsize == VIEW.size
    block = np.empty(CHUNK, layout)
    names = layout.names or ()
    state = hashlib.md5(pack_ids(members), usedforsecurity=False)
    for start in range(0, len(kinds), CHUNK):
        part = block[: len(kinds) - start]
        for name, column in zip(names, columns, strict=True):
            part[name] = column[start : start + CHUNK]
        state.update(part.view(np.uint8).data)
    return Digest(state.digest())
