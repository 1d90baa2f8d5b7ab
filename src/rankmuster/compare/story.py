"""One root cause, however many communicators show it: what each side holds, told as one finding.

A majority is named as the expectation only when it is one; on a tie all sides are shown alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rankmuster.compare.steps import CODES, FIELDS, Step
from rankmuster.copies import ProgramClass
from rankmuster.finding import Severity
from rankmuster.wording import describe, who


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

    @property
    def subject(self) -> str:
        """Who holds it, as messages say it."""
        return subject(self.first, self.devices)

    def turn(self) -> tuple[int, int]:
        """What sorts holdings: programs with names as they were given, else the lowest device."""
        return (self.first.number if self.first.name else 0, min(self.devices))

    def does(self, verb: str) -> str:
        """Subject and verb: "device 3 lacks"."""
        is_one = self.first.name or len(self.devices) == 1
        return f"{self.subject} {verb}{'s' if is_one else ''}"


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
        """The holdings that the finding is about, and the one that most devices hold, if any.

        Programs with names are compared as such, whoever runs them.
        """
        held = sorted(self.holdings.values(), key=Holding.turn)
        most = max(held, key=lambda each: len(each.devices))
        if most.first.name or 2 * len(most.devices) <= sum(len(each.devices) for each in held):
            return held, None
        return [each for each in held if each is not most], most


def subject(program: ProgramClass, devices: Iterable[int]) -> str:
    """What messages call *devices*, who run *program*."""
    return program.name or who(devices)


def code_of(name: str) -> str:
    """The finding code of a differing field; an op on one side only is RM306."""
    return "RM306" if name == "op" else CODES[name]


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
