"""The ops table as people look it up: every known slot, what each generation answers, and why.

For documentation and `rankmuster chips`; nothing that runs a bring-up asks it.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from rankmuster.arch import cayman, mariana, sunda
from rankmuster.arch.chip import Chip, Forward, Generation
from rankmuster.arch.common import Constant, Unpublished
from rankmuster.arch.fabric import TRN3_SWITCH
from rankmuster.arch.slots import KNOWN, OpsTable
from rankmuster.errors import UnknownGeneration, did_you_mean

TABLES = {
    Generation.SUNDA: sunda.TABLE,
    Generation.CAYMAN: cayman.TABLE,
    Generation.MARIANA: mariana.TABLE,
}
BEHIND_SWITCH = mariana.table(TRN3_SWITCH)
HEX_FROM = 0x10000


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """One slot: where it stands, who asks it and how, and what each generation answers."""

    offset: int
    index: int
    slot: str
    accessor: str
    shape: str
    answers: dict[str, str]
    evidence: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def rows() -> tuple[SlotRow, ...]:
    """Every known slot by offset."""
    forwards = {each.offset: each for each in vars(Chip).values() if isinstance(each, Forward)}
    return tuple(
        SlotRow(
            offset=offset,
            index=known.index,
            slot=known.name,
            accessor=forwards[offset].accessor,
            shape=forwards[offset].shape,
            answers={each.name.lower(): answer(each, known.name) for each in Generation},
            evidence=known.evidence,
            note=known.note,
        )
        for offset, known in sorted(KNOWN.items())
    )


def answer(generation: Generation, slot: str) -> str:
    """What a generation's slot answers, where that does not depend on a question."""
    here = said(getattr(TABLES[generation], slot), slot)
    if generation is not Generation.MARIANA:
        return here
    behind = said(getattr(BEHIND_SWITCH, slot), slot)
    return here if behind == here else f"{here} ({behind} behind a switch)"


def said(leaf: Any, slot: str) -> str:
    """A leaf in one or two words."""
    if leaf is None:
        return "by the wiring" if slot in WIRED else "NULL"
    if isinstance(leaf, Unpublished):
        return "not public"
    if isinstance(leaf, Constant):
        return number(leaf.value)
    if inspect.isfunction(leaf) and not inspect.signature(leaf).parameters:
        return number(leaf())
    return "by the wiring" if slot in WIRED else "computed"


WIRED = frozenset(
    name
    for name in OpsTable.__dataclass_fields__
    if all(getattr(table, name) is None for table in TABLES.values())
)


def number(value: int) -> str:
    """A count in decimal, a large size in hexadecimal."""
    return f"{value:#x}" if value >= HEX_FROM else str(value)


def generation_named(text: str) -> Generation:
    """A generation by name or number. Raises UnknownGeneration with the nearest name."""
    by_name = {each.name.lower(): each for each in Generation}
    by_number = {str(int(each)): each for each in Generation}
    found = by_name.get(text.lower()) or by_number.get(text)
    if found is None:
        raise UnknownGeneration(
            f"no chip generation {text!r}", fix=did_you_mean(text.lower(), by_name)
        )
    return found
