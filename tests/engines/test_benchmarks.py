"""The benchmarks run, and everything of ours that they measure gives right answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines
RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"


@pytest.mark.parametrize(
    "row", ["digests: 100,000", "partition: 1,000", "hlo: 2,000", "hlo: unscheduled, 2"]
)
def test_row_compares_ours_with_its_peer(row: str) -> None:
    """A quick run has figures of ours, whose answers are checked, and of the peer to beat."""
    command = [sys.executable, str(RUN), "--quick", "--format", "json", "--rows", row]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    cases = json.loads(done.stdout)["cases"]
    assert cases
    for case in cases:
        wanted = {"rankmuster", case["goal"] and case["goal"]["peer"]}
        assert [c["missing"] for c in case["contestants"] if c["name"] in wanted] == ["", ""]
