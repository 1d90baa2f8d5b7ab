"""Splits of uneven all-to-alls: what one rank sends to another is what that one expects.

Rank i's input split for rank j equals rank j's output split for rank i: splits are transposed, not
compared (RM305).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from rankmuster.copies import ProgramClass
from rankmuster.finding import Finding, OpRef, Value, finding
from rankmuster.group import SubGroup
from rankmuster.program import OpKind
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import Token, posting_on, tokens
from rankmuster.wording import reference, whereabouts, who


class Part(NamedTuple):
    """The ranks of a communicator that run one program, and its op there."""

    program: ProgramClass
    places: tuple[int, ...]
    token: Token

    @property
    def where(self) -> str:
        """Where the op stands, as messages say it."""
        assert self.token.op is not None
        return whereabouts(self.program.resolved.program, ref(self.token), self.token.op.label)

    @property
    def inputs(self) -> tuple[int, ...] | None:
        """The elements that it sends to each rank."""
        assert self.token.op is not None
        return self.token.op.input_splits

    @property
    def outputs(self) -> tuple[int, ...] | None:
        """The elements that it expects of each rank."""
        assert self.token.op is not None
        return self.token.op.output_splits


class Mismatch(NamedTuple):
    """The first of `sources` sends `sent` elements to the first of `targets`: not as `expected`.

    The other sources disagree with that target too, and that source with the other targets.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    sent: int
    expected: int
    sender: Part
    receiver: Part


def has_splits(resolved: Resolved) -> bool:
    """Whether any op of the program records splits."""
    if (known := resolved.memo.get("has splits")) is None:
        known = resolved.memo["has splits"] = any(map(splits, tokens(resolved)))
    return bool(known)


def splits(token: Token) -> bool:
    """Whether this op records splits."""
    op = token.op
    return op is not None and (op.input_splits is not None or op.output_splits is not None)


def split_ops(resolved: Resolved, members: SubGroup) -> tuple[Token, ...]:
    """The ops on a communicator whose ranks may post different counts, in order."""
    set_ids = resolved.sets_by_members.get(members, ())
    key = ("split ops", set_ids)
    if (known := resolved.memo.get(key)) is None:
        known = resolved.memo[key] = tuple(
            token
            for token in posting_on(resolved, set_ids)
            if token.op and (token.op.kind is OpKind.ALL_TO_ALL_V or splits(token))
        )
    return known


def transposed(held: Sequence[ProgramClass]) -> Iterator[Finding]:
    """RM305 for splits that do not match, and RM706 where one end does not record them."""
    if not any(has_splits(each.resolved) for each in held):
        return
    runs = {device: each for each in held for device in each.devices}
    for members in communicators(held, runs):
        for parts in posted(members, runs):
            yield from judge(members, parts)


def communicators(
    held: Iterable[ProgramClass], runs: dict[int, ProgramClass]
) -> Iterator[SubGroup]:
    """Every communicator on which a member's own program records splits."""
    seen: set[SubGroup] = set()
    for each in held:
        used = {token.group for token in tokens(each.resolved) if splits(token)}
        for number in sorted(used):
            for members in each.resolved.sets[number].members:
                if members not in seen and any(runs.get(d) is each for d in members):
                    seen.add(members)
                    yield members


def posted(members: SubGroup, runs: dict[int, ProgramClass]) -> Iterator[tuple[Part, ...]]:
    """For each op on a communicator, what each program posts.

    Nothing where they post unlike many: then an op is missing, and that is told elsewhere.
    """
    places: dict[int, list[int]] = {}
    for rank, device in enumerate(members):
        if device in runs:
            places.setdefault(runs[device].number, []).append(rank)
    programs = {each.number: each for each in runs.values() if each.number in places}
    queues = [split_ops(programs[number].resolved, members) for number in places]
    if len({len(queue) for queue in queues}) > 1:
        return
    for tokens_here in zip(*queues, strict=True):
        yield tuple(
            Part(programs[number], tuple(places[number]), token)
            for number, token in zip(places, tokens_here, strict=True)
        )


def judge(members: SubGroup, parts: Sequence[Part]) -> Iterator[Finding]:
    """What is wrong with the splits of one op."""
    wrong = [part for part in parts if not fits(part, len(members))]
    if wrong:
        yield from (misfit(members, part) for part in wrong)
    elif any(part.inputs is None or part.outputs is None for part in parts):
        yield unrecorded(members, parts)
    elif found := [each for pair in product(parts, parts) for each in mismatch(*pair)]:
        yield told(members, found)


def fits(part: Part, size: int) -> bool:
    """Whether the splits have one entry per rank."""
    return all(each is None or len(each) == size for each in (part.inputs, part.outputs))


def mismatch(sender: Part, receiver: Part) -> Iterator[Mismatch]:
    """The first disagreement of two programs, of which one may be the other."""
    assert sender.inputs is not None
    assert receiver.outputs is not None
    sent = {sender.inputs[place] for place in receiver.places}
    expected = {receiver.outputs[place] for place in sender.places}
    if len(sent | expected) == 1:
        return
    inputs, outputs = sender.inputs, receiver.outputs
    ends = product(sender.places, receiver.places)
    source, target = next((s, t) for s, t in ends if inputs[t] != outputs[s])
    yield Mismatch(
        sources=(
            source,
            *(s for s in sender.places if s > source and outputs[s] != inputs[target]),
        ),
        targets=(
            target,
            *(t for t in receiver.places if t > target and inputs[t] != outputs[source]),
        ),
        sent=inputs[target],
        expected=outputs[source],
        sender=sender,
        receiver=receiver,
    )


def told(members: SubGroup, found: Sequence[Mismatch]) -> Finding:
    """RM305; the rank that all disagreements have in common, if one has, is out of line."""
    ends = {place for each in found for place in (*each.sources, *each.targets)}
    common = [place for place in ends if all(has_alone(place, each) for each in found)]
    odd = set(common) if len(common) == 1 and len(ends) > 2 else ends
    first = found[0]
    source, target = members[first.sources[0]], members[first.targets[0]]
    is_receiver = odd == set(first.targets)
    part = first.receiver if is_receiver else first.sender
    token, field = part.token, "output_splits" if is_receiver else "input_splits"
    named = {members[place] for place in odd}
    return finding(
        "RM305",
        f"group {token.group}: {who([source])} sends {first.sent} elements to {who([target])}, "
        f"which expects {first.expected} of it ({field}){part.where}",
        ranks=named,
        others={members[place] for place in ends} - named,
        majority=odd != ends,
        group=token.group,
        op=ref(token),
        field=field,
        values=(
            Value(ranks=(source,), value=first.sent),
            Value(ranks=(target,), value=first.expected),
        ),
    )


def has_alone(place: int, each: Mismatch) -> bool:
    """Whether one end of the disagreement is just this rank."""
    return (place,) in (each.sources, each.targets)


def ref(token: Token) -> OpRef:
    """Where the op stands, for a finding."""
    assert token.op is not None
    return reference(token.op, token.index, token.in_group)


def misfit(members: SubGroup, part: Part) -> Finding:
    """RM305 for splits that do not have one entry per rank."""
    field, given = next(
        (field, each)
        for field, each in (("input_splits", part.inputs), ("output_splits", part.outputs))
        if each is not None and len(each) != len(members)
    )
    ranks = tuple(members[place] for place in part.places)
    return finding(
        "RM305",
        f"group {part.token.group}: {field} of {who(ranks)} name {len(given)} ranks "
        f"where the group has {len(members)}{part.where}",
        ranks=ranks,
        group=part.token.group,
        op=ref(part.token),
        field=field,
        values=(Value(ranks=tuple(sorted(ranks)), value=list(given)),),
    )


def unrecorded(members: SubGroup, parts: Sequence[Part]) -> Finding:
    """RM706 where splits are missing; it shows them as a value if others record them."""
    silent = [part for part in parts if part.inputs is None or part.outputs is None]
    field = "input_splits" if silent[0].inputs is None else "output_splits"
    ranks = sorted(members[place] for part in silent for place in part.places)
    others = sorted(set(members) - set(ranks))
    values = (Value(ranks=tuple(ranks), value=None),) if others else ()
    return finding(
        "RM706",
        f"group {silent[0].token.group}: no {field} recorded for {who(ranks)}, "
        f"so nobody can tell whether they match{silent[0].where}",
        ranks=ranks,
        others=others,
        group=silent[0].token.group,
        op=ref(silent[0].token),
        field=field,
        values=values,
    )
