"""Messages without another end, and the two of them that have one cause.

A send to the wrong peer leaves two ends open: nobody receives it, and somebody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankmuster.finding import Finding, Value, finding
from rankmuster.group import SubGroup
from rankmuster.pairing.posts import Edge, Message
from rankmuster.pairing.showing import lacking, shown
from rankmuster.program import OpKind
from rankmuster.resolve import Resolved
from rankmuster.wording import amount, ordinal, short, who


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Where one end posts more messages than the other, on edges that all show the same.

    `members` is the communicator of the first edge, `kind` is what stands alone and `message` the
    first of it; `meets` are the messages of the other end that do pair before it. `sent` and
    `received` count all.
    """

    edges: Sequence[Edge]
    members: SubGroup
    kind: OpKind
    message: Message
    meets: Sequence[Message]
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


def strays_told(strays: Iterable[Stray], runs: Mapping[int, Resolved]) -> Iterator[Finding]:
    """One finding for each stray, or for the two that belong together; *runs* by device."""
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
        yield unpaired(stray, runs[stray.silent])


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
    """RM206 for a send and a receive that miss each other: another peer, communicator or label.

    Which of both is wrong nobody can tell.
    """
    here, there = sent.edges[0], awaited.edges[0]
    sender, receiver = who([here.source]), who([there.target])
    field, values = "peer", (here.target, there.source)
    own, waiting = counted(sent), counted(awaited)
    post = sent.message.post
    if (here.source, here.target) == (there.source, there.target):
        field, values = apart(sent, awaited)
        told = [short(str(each)) for each in values]
        text = f"{own} to {receiver} has {field} {told[0]} where {waiting} has {told[1]}"
    elif here.source == there.source:
        text = f"{own} goes to {who([here.target])}, which does not receive it; {receiver} waits "
        text += "for it"
    else:
        post = awaited.message.post
        text = f"{waiting} is from {who([there.source])}, which does not send it; {sender} does"
    ends = ((here.source, sent.message.post), (there.target, awaited.message.post))
    return finding(
        "RM206",
        f"group {post.set_id}: {text}{post.where}",
        ranks=(here.source, there.target),
        group=post.set_id,
        op=post.ref,
        field=field,
        values=(
            Value(ranks=(here.source,), value=values[0]),
            Value(ranks=(there.target,), value=values[1]),
        ),
        context=tuple(line for device, each in ends for line in shown(device, each)),
    )


def counted(stray: Stray) -> str:
    """A message as its own end counts it: "device 2's 8th send (4 f32)"."""
    post, what = stray.message.post, amount(zip(*stray.message.content[:2], strict=False))
    kind = "send" if stray.kind is OpKind.SEND else "receive"
    return f"{who([stray.poster])}'s {ordinal(post.count)} {kind} ({what})"


def others_too(more: int) -> str:
    """That *more* edges show the same."""
    return f", and {more} more {'edge does' if more == 1 else 'edges do'} the same" if more else ""


def apart(sent: Stray, awaited: Stray) -> tuple[str, tuple[Any, Any]]:
    """The field, and both its values, that keeps two edges between the same devices apart."""
    labels = (sent.edges[0].label, awaited.edges[0].label)
    if labels[0] != labels[1]:
        return "label", labels
    return "members", (list(sent.members), list(awaited.members))


def unpaired(stray: Stray, silent: Resolved) -> Finding:
    """RM206 for messages that one end posts and the other, which runs *silent*, does not."""
    is_send = stray.kind is OpKind.SEND
    post = stray.message.post
    missing, way = ("receive", "to") if is_send else ("send", "from")
    label = f" labelled {stray.edges[0].label!r}" if stray.edges[0].label else ""
    gap = stray.meets[-1].post.index + 1 if stray.meets else post.index
    return finding(
        "RM206",
        f"group {post.set_id}: {counted(stray)}{label} is {way} {who([stray.silent])}, which posts "
        f"no {missing} for it ({stray.sent} sent, {stray.received} received"
        f"{others_too(len(stray.edges) - 1)}){post.where}",
        ranks=(device for edge in stray.edges for device in (edge.source, edge.target)),
        group=post.set_id,
        op=post.ref,
        field="count",
        values=(
            Value(ranks=tuple(sorted({edge.source for edge in stray.edges})), value=stray.sent),
            Value(ranks=tuple(sorted({edge.target for edge in stray.edges})), value=stray.received),
        ),
        context=(*shown(stray.poster, post), *lacking(stray.silent, silent, gap)),
    )
