"""A story as a finding: one line for people, three ops around, and the fields for machines."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from rankmuster.compare.steps import collectives, place_of
from rankmuster.compare.story import Holding, Story
from rankmuster.copies import ProgramClass
from rankmuster.finding import Finding, OpRef, Value, finding
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import Token
from rankmuster.wording import contrast, describe, listed, reference, whereabouts

DETAIL = {
    "trips": " {value} times",
    "members": " on {value}",
    "reduce": " with {field} {value}",
    "root": " with {field} {value}",
    "dimension": " with {field} {value}",
}
"""How a message tells a value that the description of the op does not show."""
SIDES_SHOWN = 3  # with context
AROUND = 3  # ops of context before and after


def tell(story: Story, runs: dict[int, ProgramClass]) -> Finding:
    """The finding of *story*; *runs* says which program each device runs."""
    named, most = story.split()
    shown = [*([most] if most else []), *named]
    speaker = next((each for each in (*named, *shown) if each.step), None)
    sides = [*named[: SIDES_SHOWN - 1], most] if most else named
    own = runs[voice(speaker)].resolved if speaker else None
    token = own_token(speaker, own) if speaker and own else None
    return finding(
        story.code,
        message(story, named, most, token, own),
        severity=story.severity,
        ranks=(device for each in named for device in each.devices),
        others=most.devices if most else (),
        majority=most is not None,
        group=token.group if token else None,
        op=op_ref(token, story.operand) if token else None,
        field=story.field,
        values=tuple(Value(ranks=tuple(sorted(e.devices)), value=e.value) for e in shown),
        context=tuple(line for each in sides[:SIDES_SHOWN] for line in context(each)),
    )


def voice(holding: Holding) -> int:
    """The lowest device of the holding, of those that run the program it was compared by."""
    return min(holding.devices.intersection(holding.first.devices) or holding.devices)


def own_token(holding: Holding, own: Resolved) -> Token:
    """The step's token in *own*, the program that the one who speaks runs itself.

    Kin post the same collectives, but messages between them may move the places.
    """
    assert holding.step is not None
    token = holding.step.token
    number, mine = place_of(holding.first.resolved, token), collectives(own)
    if number < len(mine) and mine[number].key[:-2] == token.key[:-2]:
        return mine[number]
    return token


def message(
    story: Story,
    named: list[Holding],
    most: Holding | None,
    token: Token | None,
    own: Resolved | None,
) -> str:
    """One line: where, who holds what, and where that op stands."""
    where = f"group {token.group}: " if token else ""
    if story.field == "op" and len(story.holdings) == 2:
        text = one_sided(named, most)
    else:
        every = [*named, *([most] if most else [])]
        values = contrast([str(each.value) for each in every])
        told = [clause(story, each, value) for each, value in zip(every, values, strict=True)]
        text = " and ".join(told[: len(named)])
        text += f" where {told[-1]}" if most else ""
    return f"{where}{text}{ending(story)}{op_place(token, own) if token and own else ''}"


def one_sided(named: list[Holding], most: Holding | None) -> str:
    """Of an op that one side lacks: "device 3 lacks barrier that devices 0-2 post"."""
    first, second = (named[0], most) if most else named
    step = first.step or second.step
    assert step is not None
    assert step.token.op is not None
    verbs = ("post", "lack") if first.step else ("lack", "post")
    return f"{first.does(verbs[0])} {describe(step.token.op)} that {second.does(verbs[1])}"


def clause(story: Story, holding: Holding, value: str) -> str:
    """Who does what: "device 8 posts all_reduce of 524288 f32"; *value* is that of the field."""
    if story.code == "RM706" and is_missing(holding.value):
        return f"{holding.does('record')} no {story.field}"
    if story.field == "members" and is_apart(holding):
        return f"{holding.does('form')} group {value}{' for it' if holding.step else ''}"
    if holding.step is None:
        return holding.does("post") + " nothing"
    assert holding.step.token.op is not None
    what = holding.value if story.field == "order" else describe(holding.step.token.op)
    detail = DETAIL.get(story.field, "").format(field=story.field, value=value)
    return f"{holding.does('run' if story.field == 'trips' else 'post')} {what}{detail}"


def is_apart(holding: Holding) -> bool:
    """Whether its value are members that some of its devices are not of: these post elsewhere."""
    members = holding.value
    if holding.step is None:
        return members is not None
    flat = isinstance(members, list) and all(isinstance(each, int) for each in members)
    return flat and not holding.devices.issubset(members)


def is_missing(value: Any) -> bool:
    """Whether a value, or one of a list, is not known."""
    return any(
        each in (None, "unknown") for each in (value if isinstance(value, list) else [value])
    )


def ending(story: Story) -> str:
    """What else there is to say of the difference."""
    if story.field == "order":
        held = story.holdings.values()
        groups = sorted({each.step.token.group for each in held if each.step})
        if len(groups) < 2:
            return ": the same ops in another order"
        return (
            f": the same ops of groups {groups[0]} and {groups[1]} in another order, so that each "
            "side may wait in one group for those who wait in the other"
        )
    if story.field == "op" and story.count > 1:
        return f", and {story.count - 1} more"
    return ""


def op_place(token: Token, own: Resolved) -> str:
    """Where the op stands in the program of the one who is named first."""
    assert token.op is not None
    return whereabouts(own.program, op_ref(token, 0), token.op.label)


def op_ref(token: Token, operand: int) -> OpRef:
    """Where an op, or one operand of it, stands, for a finding."""
    assert token.op is not None
    return reference(token.op, token.index + operand, token.in_group + operand)


def context(holding: Holding) -> list[str]:
    """The op, or where it is missing, with three ops before and after, one line each."""
    every = collectives(holding.first.resolved)
    here = holding.step.token.index if holding.step else holding.gap
    number = bisect_left(every, here, key=lambda each: each.index)
    before, after = every[max(0, number - AROUND) : number], every[number:][: AROUND + 1]
    lines = [f"{holding.subject}:", *(f"  {line(each)}" for each in before)]
    if holding.step is None:
        lines.append(">    -  nothing here")
    elif after:
        lines.append(f"> {line(after[0])}")
        after = after[1:]
    return [*lines, *(f"  {line(each)}" for each in after[:AROUND])]


def line(token: Token) -> str:
    """An op as the context of a finding shows it."""
    assert token.op is not None
    return listed(token.index, token.op, token.group)
