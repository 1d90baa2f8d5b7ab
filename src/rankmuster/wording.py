"""How findings name ops and devices: short enough for one line, the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankmuster.finding import OpRef
from rankmuster.program import Op, OpKind, Program
from rankmuster.ranks import fold

LONGEST = 60  # characters of one part of a message; the finding's own fields hold all


def short(text: str) -> str:
    """The text, cut where it would not fit on a line."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def contrast(texts: Sequence[str]) -> list[str]:
    """Each text, cut to a line around the first place where they are not the same."""
    if max(map(len, texts)) <= LONGEST:
        return list(texts)
    alike = next((n for n, each in enumerate(zip(*texts)) if len(set(each)) > 1), 0)  # noqa: B905 of other lengths
    start = texts[0].rfind(" ", 0, max(0, alike - LONGEST // 4)) + 1
    return [short(f"...{each[start:]}" if start else each) for each in texts]


def who(devices: Iterable[int]) -> str:
    """Devices as the subject of a sentence: "device 3", "devices 0-2,7"."""
    ids = set(devices)
    return f"device{'s' if len(ids) != 1 else ''} {short(fold(ids))}"


def describe(op: Op) -> str:
    """An op in a few words: "all_reduce of 524288 f32"."""
    if not op.elements:
        return op.kind.value
    operands = zip(op.elements, op.dtype, strict=False)
    return f"{op.kind.value} of {amount(operands)}"


def amount(operands: Iterable[tuple[int, str]]) -> str:
    """What an op carries, operand by operand: "524288 f32 + 1 s32"."""
    return short(" + ".join(f"{elements} {dtype}" for elements, dtype in operands))


def reference(op: Op, index: int, in_group: int) -> OpRef:
    """Where an op stands, as findings hold it."""
    return OpRef(index=index, in_group=in_group, kind=op.kind.value, name=op.name, source=op.source)


def listed(index: int, op: Op, group: int) -> str:
    """An op as the context of a finding lists it."""
    ends = {OpKind.SEND: f"to device {op.peer}", OpKind.RECV: f"from device {op.peer}"}
    peer = "" if op.peer is None else ends.get(op.kind, "")
    label = f"label {op.label}" if op.label else ""
    told = (describe(op), peer, f"on group {group}", op.name, label, op.source)
    return f"{index:>4}  {'  '.join(part for part in told if part)}"


def ordinal(number: int) -> str:
    """A number from 1 on as people count: "1st", "12th", "23rd"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in {11, 12, 13} else 0)
    return f"{number}{ending or 'th'}"


def whereabouts(program: Program, ref: OpRef, label: str | None = None) -> str:
    """Where an op of *program* stands, as messages say: " (op 17 of 42, grad.0, model.py:123)"."""
    total = sum(each.places for each in program.walk())
    tag = f"label {label}" if label and label not in ref.name else ""
    told = (f"op {ref.index} of {total}", short(ref.name), short(tag), short(ref.source))
    return f" ({', '.join(part for part in told if part)})"
