"""Standard streams that are closed, full or without a reader: exit codes stay what they mean."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = {
    "format": "rankmuster.program/1",
    "world_size": 2,
    "replica_groups": [[[0, 1]]],
    "ops": [{"kind": "barrier", "group": 0}],
}
CHECK = "check step.json"
MISSING = "check none.json"
WRONG = "check --wrong"
UP = "up -n 2 --program step.json"
BECOME = f"{UP} -- sh -c 'echo $RANK > $RANK.ran'"
RUNS = ((CHECK, 0), (MISSING, 2), (WRONG, 2), (UP, 0), (BECOME, 0), ("check -", 2))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "step.json").write_text(json.dumps(PROGRAM))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(line: str) -> tuple[int, str]:
    """Exit code and both streams of a line in which RM stands for the command."""
    line = line.replace("RM", f"{sys.executable} -m rankmuster")
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("streams", ["<&- >&-", "<&- 2>&-", "<&- >&- 2>&-", "<&- 2>/dev/full"])
@pytest.mark.parametrize(("command", "code"), RUNS)
def test_nobody_hears_and_the_exit_code_is_right(
    here: Path, command: str, code: int, streams: str
) -> None:
    """Closed and full streams change neither the answer nor whether the command runs."""
    before, dashes, after = command.partition(" -- ")
    got, said = shell(f"RM {before} {streams} {dashes} {after}")
    assert (got, "Traceback" in said) == (code, False), said
    assert len([*here.glob("*.ran")]) == (2 if command == BECOME else 0)


@pytest.mark.parametrize("command", [CHECK, UP, "--help", "chips", "simulate --world 4"])
def test_a_reader_that_has_gone_is_no_finding(here: Path, command: str) -> None:
    """Exit code 1 would say that an error was found."""
    got, said = shell(f"RM {command} 2>/dev/null | true; exit ${{PIPESTATUS[0]}}")
    assert (got, said) == (141, "")


def test_a_command_gets_streams_that_lead_nowhere(here: Path) -> None:
    """What was closed before us is open for it: else its first socket is standard error."""
    got, _ = shell("RM up -n 1 --world 2 --program step.json 2>&- -- sh -c 'echo ok >&2'")
    assert got == 0
