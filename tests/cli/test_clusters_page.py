"""The page on clusters: its commands print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rankmuster.cli import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "clusters.md").read_text()
BLOCKS = re.findall(r"```console\n\$ rankmuster (.*)\n((?:.*\n)*?)```", PAGE)


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_page(
    command: str,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command of the page prints what stands below it; … stands for any lines."""
    monkeypatch.chdir(ROOT)
    run(shlex.split(command))
    pattern = re.escape(shown).replace("…\\\n", "(?:.*\n)*")
    assert re.fullmatch(pattern, capsys.readouterr().out)


def test_page_has_commands() -> None:
    """The page shows something to run."""
    assert len(BLOCKS) == 2
