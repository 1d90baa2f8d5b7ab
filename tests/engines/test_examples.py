"""The committed texts are what the example really compiles to, and the example really trains."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from rankmuster.formats import read

pytestmark = pytest.mark.engines
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_dumps_are_what_jax_prints(tmp_path: Path) -> None:
    """The example dumps to the collectives of the committed texts, down to their source lines."""
    if metadata.version("jax") != "0.10.2":
        pytest.skip("the committed texts are those of jax 0.10.2")
    run("dump.py", "--to", str(tmp_path))
    kept = {path.name: read(path.read_bytes()) for path in EXAMPLES.glob("*.hlo")}
    assert {path.name: read(path.read_bytes()) for path in tmp_path.glob("*.hlo")} == kept


def test_training_step_learns() -> None:
    """The loss of the example falls from line to line."""
    losses = [float(line.split()[-1]) for line in run("train_step.py").splitlines()]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2
