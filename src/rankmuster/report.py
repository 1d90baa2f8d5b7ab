"""The report: one verdict, the findings behind it, and all that was worked out on the way.

A frozen value that prints as `rankmuster.report/1`. Knows no file, clock or terminal.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rankmuster.errors import NotAgreed
from rankmuster.finding import Finding, Severity
from rankmuster.group import SubGroup
from rankmuster.ranks import fold
from rankmuster.resolve import Resolved, SetKind
from rankmuster.screen import Screen
from rankmuster.signature.digest import Digest
from rankmuster.signature.libnrt import LibnrtSignatures
from rankmuster.world import World

SCHEMA = "rankmuster.report/1"

Verdict = Literal["invalid", "differ", "undecided", "agree"]
Basis = Literal["compared", "one program"]

BETWEEN_PROGRAMS = frozenset({"RM001", "RM206", "RM208", "RM503"})
UNDECIDED = frozenset(
    (*("RM312", "RM601", "RM602", "RM603", "RM605", "RM606"), *("RM701", "RM702", "RM703", "RM705"))
)


def verdict(findings: Iterable[Finding]) -> Verdict:
    """The verdict that *findings* come to, the first that applies (design §2.1).

    An RM706 that shows values is about a field that only part of the evidence has; one that shows
    none says what all of it lacks, and decides nothing.
    """
    answers = {answer(each) for each in findings}
    for each in ("invalid", "differ", "undecided"):
        if each in answers:
            return each
    return "agree"


def answer(each: Finding) -> Verdict:
    """What one finding alone would make the verdict."""
    if each.code in UNDECIDED or (each.code == "RM706" and each.values):
        return "undecided"
    if each.severity is not Severity.ERROR:
        return "agree"
    if each.code == "RM608":  # a peer tried to reach it, and could not
        return "undecided"
    if each.code in BETWEEN_PROGRAMS or each.code.startswith("RM3"):
        return "differ"
    return "invalid" if each.code.startswith(("RM0", "RM1", "RM2")) else "agree"


def exit_code(findings: Sequence[Finding], *, strict: bool = False) -> int:
    """1 for an error (*strict*: or a warning), 3 for "undecided", else 0 (design §2.1)."""
    severe = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    if any(each.severity in severe for each in findings):
        return 1
    return 3 if verdict(findings) == "undecided" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRow:
    """One program as the report lists it; `ops` counts places in the text."""

    devices: tuple[int, ...]
    process: int | None
    path: str
    format: str
    ops: int
    digest: Digest

    def to_dict(self) -> dict[str, Any]:
        """The row as the JSON report holds it."""
        return {
            "ranks": fold(self.devices),
            "process": self.process,
            "path": self.path,
            "format": self.format,
            "ops": self.ops,
            "digest": self.digest.hex(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group set as the report lists it: see `GroupSet`; `ops` counts places in the text."""

    id: int
    kind: SetKind
    members: tuple[SubGroup, ...]
    pairs: tuple[tuple[int, int], ...] | None
    ops: int

    @property
    def communicators(self) -> int:
        """How many sub-groups have two or more members."""
        return sum(len(members) > 1 for members in self.members)

    def to_dict(self) -> dict[str, Any]:
        """The row as the JSON report holds it."""
        pairs = {} if self.pairs is None else {"pairs": [list(pair) for pair in self.pairs]}
        return {
            "id": self.id,
            "kind": self.kind,
            **pairs,
            "members": [list(members) for members in self.members],
            "ops": self.ops,
            "communicators": self.communicators,
        }


def group_rows(resolved: Resolved) -> tuple[GroupRow, ...]:
    """Every set that the program names, also those that no op uses."""
    places: Counter[int] = Counter()
    for op in resolved.program.walk():
        places[resolved.set_id(op)] += op.places
    return tuple(
        GroupRow(
            id=each.id,
            kind=each.kind,
            members=each.members,
            pairs=each.pairs,
            ops=places[each.id],
        )
        for each in resolved.sets
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSignatures:
    """One device's digests in both projections; `communicators` by member list."""

    libnrt: LibnrtSignatures
    program: Digest
    communicators: Mapping[SubGroup, Digest]

    def to_dict(self) -> dict[str, Any]:
        """Both projections, as `rankmuster.signatures/1` holds them."""
        whole, groups = self.libnrt.whole, self.libnrt.groups
        communicators = self.communicators.items()
        return {
            "libnrt": {
                "whole": None if whole is None else whole.hex(),
                "groups": {str(number): digest.hex() for number, digest in groups.items()},
            },
            "canonical": {
                "program": self.program.hex(),
                "communicators": {
                    ",".join(map(str, members)): digest.hex() for members, digest in communicators
                },
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `check` and `up` found out; `absent` devices gave no program."""

    world: World
    basis: Basis = "compared"
    compared: tuple[str, ...] = ()
    not_recorded: tuple[str, ...] = ()
    absent: tuple[int, ...] = ()
    cluster: str | None = None
    programs: tuple[ProgramRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    signatures: Mapping[int, DeviceSignatures] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    placement: Mapping[str, Any] = field(default_factory=dict)
    screen: Screen = field(default_factory=Screen)
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """What the findings come to: agree, or the first other that applies (design §2.1)."""
        return verdict(self.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings of severity error."""
        return tuple(each for each in self.findings if each.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        """Whether the programs agree and nothing else is an error."""
        return self.verdict == "agree" and not self.errors

    def exit_code(self, *, strict: bool = False) -> int:
        """1 for an error (*strict*: or a warning), 3 for "undecided", else 0 (design §2.1)."""
        return exit_code(self.findings, strict=strict)

    def adding(self, *findings: Finding, timings: Mapping[str, float] | None = None) -> Report:
        """The report with more findings, and with more timings."""
        return dataclasses.replace(
            self,
            findings=(*self.findings, *findings),
            timings={**self.timings, **(timings or {})},
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON report, `rankmuster.report/1` (design §2.2)."""
        signed = {str(device): each.to_dict() for device, each in sorted(self.signatures.items())}
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "basis": self.basis,
            "compared": list(self.compared),
            "not_recorded": list(self.not_recorded),
            "world": {
                "size": self.world.size,
                "source": self.world.source,
                "absent": fold(self.absent),
                "cluster": self.cluster,
            },
            "programs": [each.to_dict() for each in self.programs],
            "groups": [each.to_dict() for each in self.groups],
            "signatures": {
                projection: {device: each[projection] for device, each in signed.items()}
                for projection in ("libnrt", "canonical")
            },
            "findings": [each.to_dict() for each in self.findings],
            "placement": dict(self.placement),
            "screen": self.screen.to_dict(),
            "timings": dict(self.timings),
        }


class Disagreement(NotAgreed):
    """The world does not agree: `report` says who, where and what to do."""

    def __init__(self, report: Report) -> None:
        self.report = report
        cause = next(iter(report.errors or report.findings), None)
        more = len(report.errors) - 1
        what = cause.message if cause else f"the verdict is {report.verdict}"
        if more > 0:
            what += f" (and {more} more error{'s' if more > 1 else ''})"
        super().__init__(what, fix=cause.fix if cause else "")
