"""docs/fidelity.md: every row points at an object and a test that exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in (ROOT / "docs" / "fidelity.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("|---", "| what the seed names"))
]


def find(place: str) -> object:
    module, _, path = place.partition(":")
    found: object = importlib.import_module(module)
    for name in filter(None, path.split(".")):
        found = getattr(found, name)
    return found


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)}  # fmt: skip


def test_rows_have_four_cells() -> None:
    """What the seed names, where ours is, its test, and whether it is the same."""
    assert [row for row in ROWS if len(row) != 4] == []


def test_rows_point_at_objects() -> None:
    """Where a row says ours is, there it is."""
    for _, ours, _, _ in ROWS:
        for place in re.findall(r"`(rankmuster[\w.:]*)`", ours):
            find(place)


def test_rows_point_at_tests() -> None:
    """The test that a row names exists."""
    known: dict[Path, set[str]] = {}
    wrong = []
    for _, _, test, _ in ROWS:
        for place in re.findall(r"`(tests/[^`]+)`", test):
            file, _, name = place.partition("::")
            path = ROOT / file
            names = known.setdefault(path, names_in(path) if path.is_file() else set())
            if not path.is_file() or (name and name not in names):
                wrong.append(place)
    assert wrong == []
