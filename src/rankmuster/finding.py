"""One thing that is wrong, or worth knowing: what, who, where, both values and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rankmuster.ranks import fold
from rankmuster.rules import RULES


class Severity(StrEnum):
    """How much a finding weighs: an error fails the check, a warning only with --strict."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRef:
    """Where an op stands, from 0: `index` in the whole program, `in_group` among its set's ops."""

    index: int
    in_group: int
    kind: str
    name: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What one side of a difference holds: device ids, and a JSON-ready value."""

    ranks: tuple[int, ...]
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the published list (`rules`); devices are global ids, ascending.

    `ranks` are those that the finding is about and `others` those it compares them with; on a tie
    `others` is empty and `majority` false. `context` shows up to three ops before and after the
    difference, one line each, for people only.
    """

    code: str
    message: str
    severity: Severity
    ranks: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    majority: bool = False
    group: int | None = None
    op: OpRef | None = None
    field: str | None = None
    values: tuple[Value, ...] = ()
    fix: str = ""
    context: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The finding as the JSON report holds it (`rankmuster.report/1`)."""
        op = self.op and {
            "index": self.op.index,
            "in_group": self.op.in_group,
            "kind": self.op.kind,
            "name": self.op.name,
            "source": self.op.source,
        }
        return {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "ranks": fold(self.ranks),
            "others": fold(self.others),
            "majority": self.majority,
            "group": self.group,
            "op": op,
            "field": self.field,
            "values": [{"ranks": fold(v.ranks), "value": v.value} for v in self.values],
            "fix": self.fix,
            "context": list(self.context),
        }


def finding(
    code: str,
    message: str,
    *,
    severity: Severity | None = None,
    ranks: Iterable[int] = (),
    others: Iterable[int] = (),
    fix: str | None = None,
    **rest: Any,
) -> Finding:
    """Make a finding; severity and fix come from the rule unless said otherwise.

    Raises KeyError for a code that `rules` does not know: a code is a promise to users.
    """
    rule = RULES[code]
    return Finding(
        code=code,
        message=message,
        severity=severity or Severity(rule.severity),
        ranks=tuple(sorted(set(ranks))),
        others=tuple(sorted(set(others))),
        fix=rule.fix if fix is None else fix,
        **rest,
    )
