"""The long answers: one for each finding, and none promises what nothing reports."""

from __future__ import annotations

from pathlib import Path

import rankmuster
from rankmuster.explanations import EXPLANATIONS, FAMILIES
from rankmuster.rules import RULES

SRC = Path(str(rankmuster.__file__)).parent


def test_every_rule_is_explained() -> None:
    """Every rule has an explanation that says something under each heading."""
    assert list(EXPLANATIONS) == list(RULES)
    assert [code for code, (*texts, _) in EXPLANATIONS.items() if not all(texts)] == []


def test_every_rule_has_a_family() -> None:
    """The first digit of a code is that of a family."""
    assert {code[:3] for code in RULES} == set(FAMILIES)


def test_reserved_codes_are_those_that_nothing_reports() -> None:
    """A code is marked as reserved exactly where no module but the tables names it."""
    tables = {SRC / "rules.py", SRC / "report.py", *SRC.glob("explanations/*.py")}
    code = "".join(path.read_text() for path in SRC.rglob("*.py") if path not in tables)
    silent = {each for each in RULES if f'"{each}"' not in code}
    assert {each for each, text in EXPLANATIONS.items() if text.is_reserved} == silent
