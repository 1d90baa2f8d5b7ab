"""The page on the entry points: its example runs and prints what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rankmuster import nrt
from rankmuster.environment import VARIABLES

PAGE = (Path(__file__).parents[2] / "docs" / "nrt.md").read_text()


def test_example(tmp_path: Path) -> None:
    """Four processes go through init, build, load, barrier and close, as the page shows."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```text\n(0 .*?)```", PAGE, re.DOTALL)
    script = tmp_path / "four.py"
    script.write_text(source)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == shown.splitlines()


def test_names_exist() -> None:
    """Every call, status and variable that the page names is there."""
    calls = set(re.findall(r"`(nrta?_\w+)\(", PAGE))
    assert [name for name in calls if not hasattr(nrt, name)] == []
    statuses = re.findall(r"(\d+) `([A-Z_]+)`", PAGE)
    assert len(statuses) == 9
    assert all(nrt.Status[name] == int(number) for number, name in statuses)
    known = {variable.name for variable in VARIABLES}
    assert set(re.findall(r"(?:NEURON_RT|RANKMUSTER)_[A-Z_]+", PAGE)) <= known
