"""One root cause, however many communicators show it: what each side holds, told as one finding.

A majority is named as the expectation only when it is one; on a tie all sides are shown alike.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rankmuster.compare.steps import CODES, FIELDS, Step
from rankmuster.copies import ProgramClass
from rankmuster.finding import Finding, OpRef, Severity, Value, finding
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import Token, tokens
from rankmuster.wording import describe, place, reference, short, who

DETAIL = {
    "trips": " {value} times",
    "members": " on {value}",
    "reduce": " with {field} {value}",
    "root": " with {field} {value}",
    "dimension": " with {field} {value}",
}
"""How a message tells a value that the description of the op does not show."""
AROUND = 3  # ops of context before and after


@dataclass(slots=True, kw_only=True)
class Holding:
    """What some devices hold: the value, and the step that holds it in the program of `first`.

    Without a step, `gap` is the place in that program where it would stand.
    """

    value: Any
    step: Step | None
    first: ProgramClass
    gap: int = 0
    devices: set[int] = dataclasses.field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Story:
    """A difference as it is put together: `holdings` by the text of their value."""

    code: str
    field: str
    count: int = 1
    operand: int = 0
    severity: Severity | None = None
    holdings: dict[str, Holding] = dataclasses.field(default_factory=dict)

    def add(self, holding: Holding, devices: Iterable[int]) -> None:
        """Count *devices* among those that hold this value; the earliest op tells of it."""
        known = self.holdings.setdefault(repr(holding.value), holding)
        known.devices.update(devices)
        if holding.step and known.step and holding.step.token.index < known.step.token.index:
            known.step, known.first = holding.step, holding.first

    @property
    def first_place(self) -> int:
        """The lowest place of its op in any of the programs."""
        steps = (each.step for each in self.holdings.values())
        return min((step.token.index for step in steps if step), default=0)

    def split(self) -> tuple[list[Holding], Holding | None]:
        """The holdings that the finding is about, and the one that most devices hold, if any."""
        held = sorted(self.holdings.values(), key=lambda each: min(each.devices))
        most = max(held, key=lambda each: len(each.devices))
        if 2 * len(most.devices) <= sum(len(each.devices) for each in held):
            return held, None
        return [each for each in held if each is not most], most


def code_of(name: str) -> str:
    """The finding code of a differing field; an op on one side only is RM306."""
    return "RM306" if name == "op" else CODES[name]


def tell(story: Story, runs: dict[int, ProgramClass]) -> Finding:
    """The finding of *story*; *runs* says which program each device runs."""
    named, most = story.split()
    shown = [*([most] if most else []), *named]
    speaker = next((each for each in (*named, *shown) if each.step), None)
    token = own_token(speaker, runs) if speaker else None
    own = runs[min(speaker.devices)].resolved if speaker else None
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
        context=tuple(line for each in (*named[:2], *shown[:1])[:2] for line in context(each)),
    )


def own_token(holding: Holding, runs: dict[int, ProgramClass]) -> Token:
    """The step's token in the program that the lowest device of the holding runs itself.

    Kin post the same collectives, but messages between them may move the places.
    """
    assert holding.step is not None
    token = holding.step.token
    theirs, own = holding.first.resolved, runs[min(holding.devices)].resolved
    number = place_of(theirs, token)
    mine = collectives(own)
    if number < len(mine) and mine[number].key[:-2] == token.key[:-2]:
        return mine[number]
    return token


def collectives(resolved: Resolved) -> Sequence[Token]:
    """The tokens of the program that are ops."""
    if (known := resolved.memo.get("collectives")) is None:
        known = resolved.memo["collectives"] = [each for each in tokens(resolved) if each.op]
    return known


def place_of(resolved: Resolved, token: Token) -> int:
    """The token's number among the collectives of its program."""
    return bisect_left(collectives(resolved), token.index, key=lambda each: each.index)


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
        text = " and ".join(clause(story, each) for each in named)
        text += f" where {clause(story, most)}" if most else ""
    return f"{where}{text}{ending(story)}{op_place(token, own) if token and own else ''}"


def one_sided(named: list[Holding], most: Holding | None) -> str:
    """Of an op that one side lacks: "device 3 lacks barrier that devices 0-2 post"."""
    first, second = (named[0], most) if most else named
    step = first.step or second.step
    assert step is not None
    assert step.token.op is not None
    verbs = ("post", "lack") if first.step else ("lack", "post")
    return f"{does(first, verbs[0])} {describe(step.token.op)} that {does(second, verbs[1])}"


def does(holding: Holding, verb: str) -> str:
    """Subject and verb: "device 3 lacks"."""
    return f"{who(holding.devices)} {verb}{'s' if len(holding.devices) == 1 else ''}"


def clause(story: Story, holding: Holding) -> str:
    """Who does what: "device 8 posts all_reduce of 524288 f32"."""
    value = short(str(holding.value))
    if story.code == "RM706" and is_missing(holding.value):
        return f"{does(holding, 'record')} no {story.field}"
    if holding.step is None:
        if story.field == "members" and holding.value is not None:
            return f"{does(holding, 'form')} group {value}"
        return f"{does(holding, 'post')} nothing"
    assert holding.step.token.op is not None
    what = value if story.field == "order" else describe(holding.step.token.op)
    detail = DETAIL.get(story.field, "").format(field=story.field, value=value)
    return f"{does(holding, 'run' if story.field == 'trips' else 'post')} {what}{detail}"


def is_missing(value: Any) -> bool:
    """Whether a value, or one of a list, is not known."""
    return any(
        each in (None, "unknown") for each in (value if isinstance(value, list) else [value])
    )


def ending(story: Story) -> str:
    """What else there is to say of the difference."""
    if story.field == "order":
        return ": the same ops in another order"
    if story.field == "op" and story.count > 1:
        return f", and {story.count - 1} more"
    return ""


def op_place(token: Token, own: Resolved) -> str:
    """Where the op stands in the program of the one who is named first."""
    assert token.op is not None
    return place(token.index, sum(op.places for op in own.program.walk()), token.op)


def op_ref(token: Token, operand: int) -> OpRef:
    """Where an op, or one operand of it, stands, for a finding."""
    assert token.op is not None
    return reference(token.op, token.index + operand, token.in_group + operand)


def describe_on(step: Step) -> str:
    """An op and where it runs: "barrier on group 1"."""
    assert step.token.op is not None
    return f"{describe(step.token.op)} on group {step.token.group}"


def describe_fully(step: Step) -> str:
    """An op with all that may tell it from one of the same size on the same members."""
    values = dict(zip(FIELDS, step.values, strict=True))
    told = [
        f"{name} {values[name]}"
        for name in ("reduce", "root", "dimension")
        if values[name] is not None
    ]
    told += [f"in loops of {list(values['trips'])}"] if values["trips"] else []
    told += [
        f"in loop {number}" if body < 0 else f"in body {body} of branch {number}"
        for number, body in values["order"]
    ]
    return ", ".join([describe_on(step), *told])


def context(holding: Holding) -> list[str]:
    """The op, or where it is missing, with three ops before and after, one line each."""
    every = collectives(holding.first.resolved)
    here = holding.step.token.index if holding.step else holding.gap
    number = bisect_left(every, here, key=lambda each: each.index)
    before, after = every[max(0, number - AROUND) : number], every[number:][: AROUND + 1]
    lines = [f"{who(holding.devices)}:", *(f"  {line(each)}" for each in before)]
    if holding.step is None:
        lines.append(">    -  nothing here")
    elif after:
        lines.append(f"> {line(after[0])}")
        after = after[1:]
    return [*lines, *(f"  {line(each)}" for each in after[:AROUND])]


def line(token: Token) -> str:
    """An op as the context of a finding shows it."""
    assert token.op is not None
    told = (describe(token.op), f"on group {token.group}", token.op.name, token.op.source)
    return f"{token.index:>4}  {'  '.join(part for part in told if part)}"


def value_of(name: str, step: Step | None) -> Any:
    """What the step holds in a field, as JSON has it; an op or its order as a description."""
    if step is None:
        return None
    if name in {"op", "order"}:
        assert step.token.op is not None
        return describe(step.token.op)
    value = step.values[FIELDS.index(name)]
    if name == "trips" and not value:
        return 1  # it stands in no loop
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value)
    return value
