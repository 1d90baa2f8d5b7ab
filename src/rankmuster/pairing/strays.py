"""Messages without another end, and the two of them that have one cause.

A send to the wrong peer leaves two ends open: nobody receives it, and somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rankmuster.finding import Finding, Value, finding
from rankmuster.group import SubGroup
from rankmuster.pairing.posts import Edge, Message
from rankmuster.program import OpKind
from rankmuster.wording import amount, short, who


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Where one end posts more messages than the other, on edges that all show the same.

    `members` is the communicator of the first edge, `kind` is what stands alone and `message` the
    first of it; `sent` and `received` count all.
    """

    edges: Sequence[Edge]
    members: SubGroup
    kind: OpKind
    message: Message
    sent: int
    received: int

    @property
    def poster(self) -> int:
        """The device that posts what stands alone, on the first edge."""
        return self.edges[0].source if self.kind is OpKind.SEND else self.edges[0].target

    @property
    def silent(self) -> int:
        """The device at the other end of the first edge."""
        return self.edges[0].target if self.kind is OpKind.SEND else self.edges[0].source


def strays_told(strays: Iterable[Stray]) -> Iterator[Finding]:
    """One finding for each stray, or for the two that belong together."""
    waiting: dict[object, Stray] = {}
    alone: dict[int, Stray] = {}
    for stray in sorted(strays, key=lambda each: len(each.edges)):
        partner = next(
            (waiting[key] for key in clues(stray, other_end(stray.kind)) if key in waiting), None
        )
        if partner is None or id(partner) not in alone:
            alone[id(stray)] = stray
            for key in clues(stray, stray.kind):
                waiting.setdefault(key, stray)
            continue
        del alone[id(partner)]
        is_send = stray.kind is OpKind.SEND
        yield astray(*((stray, partner) if is_send else (partner, stray)))
    for stray in alone.values():
        yield unpaired(stray)


def other_end(kind: OpKind) -> OpKind:
    """The kind of op that a send or receive meets."""
    return OpKind.RECV if kind is OpKind.SEND else OpKind.SEND


def clues(stray: Stray, kind: OpKind) -> Iterator[tuple[Any, ...]]:
    """What a stray of *kind* may have in common with this one if one mistake made both."""
    if len(stray.edges) == 1:
        edge, content = stray.edges[0], stray.message.content[:2]
        yield (kind, content, edge.source, edge.target)
        yield (kind, content, "from", edge.source)
        yield (kind, content, "to", edge.target)


def astray(sent: Stray, awaited: Stray) -> Finding:
    """RM206 for a send and a receive that miss each other: another peer, communicator or label."""
    here, there = sent.edges[0], awaited.edges[0]
    what = amount(zip(*sent.message.content[:2], strict=False))
    sender, receiver = who([here.source]), who([there.target])
    field, values = "peer", (here.target, there.source)
    if (here.source, here.target) == (there.source, there.target):
        field, values = apart(sent, awaited)
        named, others = {here.source, here.target}, set[int]()
        text = f"{sender} sends {what} with {field} {short(str(values[0]))} where {receiver} has "
        text += short(str(values[1]))
    elif here.source == there.source:
        named, others = {here.source}, {here.target, there.target}
        text = f"{sender} sends {what} to {who([here.target])}, which does not receive it where "
        text += f"{receiver} does"
    else:
        named, others = {there.target}, {here.source, there.source}
        text = f"{receiver} receives {what} from {who([there.source])}, which does not send it "
        text += f"where {sender} does"
    post = (awaited if named == {there.target} else sent).message.post
    return finding(
        "RM206",
        f"group {post.set_id}: {text}",
        ranks=named,
        others=others,
        majority=bool(others),
        group=post.set_id,
        op=post.ref,
        field=field,
        values=(
            Value(ranks=(here.source,), value=values[0]),
            Value(ranks=(there.target,), value=values[1]),
        ),
    )


def apart(sent: Stray, awaited: Stray) -> tuple[str, tuple[Any, Any]]:
    """The field, and both its values, that keeps two edges between the same devices apart."""
    labels = (sent.edges[0].label, awaited.edges[0].label)
    if labels[0] != labels[1]:
        return "label", labels
    return "members", (list(sent.members), list(awaited.members))


def unpaired(stray: Stray) -> Finding:
    """RM206 for messages that one end posts and the other does not."""
    is_send = stray.kind is OpKind.SEND
    post = stray.message.post
    what = amount(zip(*stray.message.content[:2], strict=False))
    verb, missing, way = ("sends", "receive", "to") if is_send else ("receives", "send", "from")
    more = f", and so on {len(stray.edges) - 1} other edges" if len(stray.edges) > 1 else ""
    label = stray.edges[0].label
    return finding(
        "RM206",
        f"group {post.set_id}: {who([stray.poster])} {verb} {what}"
        f"{f' labelled {label!r}' if label else ''} {way} {who([stray.silent])}, which posts no "
        f"{missing} for it ({stray.sent} sent, {stray.received} received{more})",
        ranks=(device for edge in stray.edges for device in (edge.source, edge.target)),
        group=post.set_id,
        op=post.ref,
        field="count",
        values=(
            Value(ranks=tuple(sorted({edge.source for edge in stray.edges})), value=stray.sent),
            Value(ranks=tuple(sorted({edge.target for edge in stray.edges})), value=stray.received),
        ),
    )
