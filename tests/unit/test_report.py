"""The report: what findings come to, and the shape that it has as JSON."""

from __future__ import annotations

import pytest

from rankmuster.finding import Finding, Severity, Value, finding
from rankmuster.report import Disagreement, Report, verdict
from rankmuster.world import World

WORLD = World(size=2, source="option")
PARTIAL = finding("RM706", "one side", values=(Value(ranks=(0,), value=None),))


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], "agree"),
        ([finding("RM102", "")], "invalid"),
        ([finding("RM002", "")], "invalid"),
        ([finding("RM103", "", severity=Severity.INFO)], "agree"),
        ([finding("RM001", "")], "differ"),
        ([finding("RM206", "")], "differ"),
        ([finding("RM208", "")], "agree"),
        ([finding("RM208", "", severity=Severity.ERROR)], "differ"),
        ([finding("RM302", "")], "differ"),
        ([finding("RM310", "")], "agree"),
        ([finding("RM310", "", severity=Severity.ERROR)], "differ"),
        ([finding("RM312", "")], "undecided"),
        ([finding("RM313", "")], "agree"),
        ([finding("RM601", "")], "undecided"),
        ([finding("RM703", "")], "undecided"),
        ([finding("RM704", "")], "agree"),
        ([finding("RM706", "nobody records it")], "agree"),
        ([PARTIAL], "undecided"),
        ([finding("RM601", ""), finding("RM302", "")], "differ"),
        ([finding("RM302", ""), finding("RM102", "")], "invalid"),
    ],
)
def test_verdict_is_the_first_that_applies(findings: list[Finding], expected: str) -> None:
    """A program that is wrong in itself, then a proven difference, then what nobody can tell."""
    assert verdict(findings) == expected


@pytest.mark.parametrize(
    ("findings", "code", "strict"),
    [
        ([], 0, 0),
        ([finding("RM302", "")], 1, 1),
        ([finding("RM312", "")], 3, 1),
        ([finding("RM601", "")], 1, 1),
        ([finding("RM704", "")], 0, 0),
        ([finding("RM313", "")], 0, 1),
    ],
)
def test_exit_code(findings: list[Finding], code: int, strict: int) -> None:
    """An error is 1, with --strict a warning too; undecided is 3."""
    report = Report(world=WORLD, findings=tuple(findings))
    assert (report.exit_code(), report.exit_code(strict=True)) == (code, strict)


def test_ok_needs_agreement_and_no_error() -> None:
    """An error that decides no verdict is not ok either."""
    assert Report(world=WORLD).ok
    assert not Report(world=WORLD, findings=(finding("RM503", ""),)).ok
    assert not Report(world=WORLD, findings=(finding("RM312", ""),)).ok


def test_adding_keeps_what_is_known() -> None:
    """More findings and timings come behind those that are there."""
    report = Report(world=WORLD, findings=(finding("RM704", "a"),), timings={"read": 1.0})
    more = report.adding(finding("RM302", "b"), timings={"total": 2.0})
    assert [each.message for each in more.findings] == ["a", "b"]
    assert more.timings == {"read": 1.0, "total": 2.0}


def test_empty_report_has_every_key() -> None:
    """Whoever reads the JSON need not ask whether a key is there."""
    assert Report(world=WORLD, absent=(1,)).to_dict() == {
        "schema": "rankmuster.report/1",
        "verdict": "agree",
        "basis": "compared",
        "compared": [],
        "not_recorded": [],
        "world": {"size": 2, "source": "option", "absent": "1", "cluster": None},
        "programs": [],
        "groups": [],
        "signatures": {"libnrt": {}, "canonical": {}},
        "findings": [],
        "placement": {},
        "screen": {"use_2dev_proxy": False, "disable_rmv_dst_routing": False, "because": []},
        "timings": {},
    }


def test_disagreement_tells_the_first_error() -> None:
    """The exception says what is wrong in one line, and carries the rest."""
    findings = (finding("RM704", "a"), finding("RM302", "b"), finding("RM304", "c"))
    error = Disagreement(Report(world=WORLD, findings=findings))
    assert str(error) == (
        "b (and 1 more error); recompile the ranks that differ with the same batch and shapes"
    )
    assert error.report.findings == findings
