"""The projection that decides: BLAKE2b-128 over everything that must be equal to run together.

Three grains (design §3): the program, the communicator (one distinct member list) and the group
set. Names, sources, streams, labels, splits, sends and receives never count here: those that must
match are paired or transposed, not compared. Loops are kept with their trip counts and never
unrolled; loops and branches that hold nothing of a projection vanish from it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

from rankmuster.group import SubGroup
from rankmuster.program import POINT_TO_POINT, Branch, Loop, Op
from rankmuster.resolve import Resolved
from rankmuster.signature.digest import Digest
from rankmuster.signature.places import Event, Mark, events, places
from rankmuster.signature.words import sizes

OP_FIELDS = ("kind", "elements", "dtype", "reduce", "root", "dimension", "ordinal", "pairs")
"""What the `key` of an op's token holds, in order, behind its leading "op"."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a projected program: an op, or where a loop or branch starts, turns or ends.

    Two tokens say the same exactly when their `key` is equal: ("op", *OP_FIELDS), ("loop", trips),
    ("branch",), ("next",) between the bodies of a branch, or ("end",). Of an op, `index` is its
    place in the whole program and `in_group` its place among the ops of set `group`, both from 0
    and counting one per operand, sends and receives included. `pairs` in the key is the digest of
    the set's sorted pairs, `ordinal` the set's place among the program's sets with one member list.
    """

    key: tuple[Any, ...]
    op: Op | None = None
    index: int = 0
    in_group: int = 0
    group: int = 0


NEXT = Token(key=("next",))
END = Token(key=("end",))
BRANCH = Token(key=("branch",))


def program_digest(resolved: Resolved) -> Digest:
    """The digest of all collectives in signing order and of all sets, whatever the sets' ids."""
    if (known := resolved.memo.get("program digest")) is None:
        names = [set_digest(resolved, each.id) for each in resolved.sets]
        seen: Counter[Digest] = Counter()
        state = hasher("program")
        feed(state, sorted(names))
        ordinals = {}
        for number, name in enumerate(names):
            ordinals[number] = seen[name]
            seen[name] += 1
        for token in project(resolved, ordinals):
            feed(state, token.key, names[token.group] if token.op else None)
        known = resolved.memo["program digest"] = Digest(state.digest())
    return known


def communicator_digest(resolved: Resolved, members: SubGroup) -> Digest:
    """The digest of what a program does on the communicator of *members*, order as written.

    Equal on two processes exactly when the keys of their `posting` there are. A list that no set
    holds has the digest of a communicator without ops.
    """
    # By identity: hashing a list of 98304 ids takes longer than all else. The entry keeps it alive.
    key = ("communicator digest", id(members))
    known = resolved.memo.get(key)
    if known is None:
        state = posting_state(resolved, resolved.sets_by_members.get(members, ())).copy()
        feed(state, members)
        known = resolved.memo[key] = (members, Digest(state.digest()))
    return known[1]


def set_digest(resolved: Resolved, set_id: int) -> Digest:
    """The digest of one set: its sub-groups in any order, members in theirs; or its pairs."""
    key = ("set digest", set_id)
    if (known := resolved.memo.get(key)) is None:
        each = resolved.sets[set_id]
        state = hasher("set")
        feed(state, each.kind, sorted(each.members) if each.pairs is None else each.pairs)
        known = resolved.memo[key] = Digest(state.digest())
    return known


def content_digest(resolved: Resolved) -> Digest:
    """The digest of all that any check of two programs may look at: equal ones need no comparing.

    Set ids count, and so do sends, receives, splits, labels and streams; names, sources, the
    format, findings and the file's own rank do not.
    """
    if (known := resolved.memo.get("content digest")) is None:
        program = resolved.program
        state = hasher("content")
        feed(state, program.world_size, program.num_streams, program.target, program.core_size)
        feed(state, sorted(program.not_recorded))
        for each in resolved.sets:
            feed(state, each.kind, each.members, each.pairs)
        for event in events(program.ops):
            feed(state, content(event))
        known = resolved.memo["content digest"] = Digest(state.digest())
    return known


def posting(resolved: Resolved, members: SubGroup) -> tuple[Token, ...]:
    """What a program posts on the communicator of *members*: what its digest is made of."""
    return posting_on(resolved, resolved.sets_by_members.get(members, ()))


def posting_on(resolved: Resolved, set_ids: tuple[int, ...]) -> tuple[Token, ...]:
    """The posting that the member lists held by just these sets share."""
    key = ("posting", set_ids)
    if (known := resolved.memo.get(key)) is None:
        ordinals = {number: ordinal for ordinal, number in enumerate(set_ids)}
        known = resolved.memo[key] = tuple(project(resolved, ordinals))
    return known


def posting_state(resolved: Resolved, set_ids: tuple[int, ...]) -> hashlib.blake2b:
    """A hasher that has seen the posting of these sets; copy it before feeding it more."""
    key = ("posting state", set_ids)
    if (known := resolved.memo.get(key)) is None:
        known = resolved.memo[key] = hasher("communicator")
        for token in posting_on(resolved, set_ids):
            feed(known, token.key)
    return known


def project(resolved: Resolved, ordinals: Mapping[int, int]) -> list[Token]:
    """The program's tokens with only the ops of the sets in *ordinals* (set id -> ordinal)."""
    kept: list[Token] = []
    opened: list[int] = []  # where each loop or branch that is still open starts in `kept`
    ops_before: list[int] = []
    ops = 0
    for token in tokens_of(resolved, ordinals):
        if token.op is not None:
            kept.append(with_ordinal(token, ordinals[token.group]))
            ops += 1
        elif token is END:
            start = opened.pop()
            if ops == ops_before.pop():
                del kept[start:]
            else:
                kept.append(END)
        else:
            if token is not NEXT:
                opened.append(len(kept))
                ops_before.append(ops)
            kept.append(token)
    return kept


def tokens_of(resolved: Resolved, set_ids: Iterable[int]) -> list[Token]:
    """The tokens of the ops of these sets, and all that are no op, in order.

    Found by set: looking through a whole program once for each of its communicators takes as long
    as forming them.
    """
    if (by_set := resolved.memo.get("tokens by set")) is None:
        by_set = resolved.memo["tokens by set"] = defaultdict(list)
        for place, token in enumerate(tokens(resolved)):
            by_set[None if token.op is None else token.group].append((place, token))
    chosen = chain(by_set.get(None, ()), *[by_set.get(each, ()) for each in set_ids])
    return [token for _, token in sorted(chosen, key=itemgetter(0))]


def with_ordinal(token: Token, ordinal: int) -> Token:
    """The token with its set's ordinal in the key, which is 0 in the list of all tokens."""
    if not ordinal:
        return token
    *front, _, pairs = token.key
    return msgspec.structs.replace(token, key=(*front, ordinal, pairs))


def tokens(resolved: Resolved) -> list[Token]:
    """Every token of the program but sends and receives, ordinals all 0."""
    if (known := resolved.memo.get("tokens")) is None:
        known = resolved.memo["tokens"] = list(make_tokens(resolved))
    return known


def make_tokens(resolved: Resolved) -> Iterator[Token]:
    """See `tokens`."""
    for place in places(resolved):
        op = place.event
        if not isinstance(op, Op):
            yield turn(op)
        elif op.kind not in POINT_TO_POINT:
            yield Token(
                key=op_key(resolved, op),
                op=op,
                index=place.index,
                in_group=place.in_group,
                group=place.group,
            )


def turn(event: Loop | Branch | Mark) -> Token:
    """The token of an event that is no op."""
    if isinstance(event, Loop):
        return Token(key=("loop", event.trips))
    if isinstance(event, Branch):
        return BRANCH
    return NEXT if event == "next" else END


def op_key(resolved: Resolved, op: Op) -> tuple[Any, ...]:
    """What all ranks must share of one op; see `OP_FIELDS`."""
    pairs = None if op.pairs is None else set_digest(resolved, resolved.set_id(op))
    key = (op.kind.value, sizes(op), op.dtype, op.reduce, op.root, op.dimension, 0, pairs)
    return ("op", *key)


assert Op.__struct_fields__[-2:] == ("name", "source")


def content(event: Event) -> Any:
    """All of an event that a check may look at: not an op's name and source."""
    match event:
        case Op():
            return (event.kind.value, *msgspec.structs.astuple(event)[1:-2])
        case Loop():
            return ("loop", event.trips)
        case Branch():
            return ("branch", event.on)
        case _:
            return event


def hasher(grain: str) -> hashlib.blake2b:
    """A hasher of 16-byte digests; each grain has its own, so that no two are ever alike."""
    return hashlib.blake2b(digest_size=Digest.SIZE, person=grain.encode(), usedforsecurity=False)


def feed(state: hashlib.blake2b, *fields: Any) -> None:
    """Add *fields* (text, ints, bytes, None and sequences of those), each with its length before.

    `ascii` gives every such value a text of its own, alike in every Python.
    """
    for field in fields:
        text = ascii(field).encode()
        state.update(len(text).to_bytes(8, "little"))
        state.update(text)
