"""Worlds that another launcher starts: programs to bring up, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

BIN = Path(sys.executable).parent
UP = (sys.executable, "-m", "rankmuster", "up")
AGREE = "agree: 4 programs for 4 devices, identical in all collectives"
# Of a process that torchrun starts, so that two cores are enough; and none of ours.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("RANKMUSTER_")},
    "OMP_NUM_THREADS": "1",
    "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
}


class Done(NamedTuple):
    """How a launcher ended: its exit code, and what all its processes said."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The one report, where nothing else was printed."""
        return json.loads(self.out)

    @property
    def findings(self) -> list[tuple[str, str]]:
        """Code and devices of the findings of that report."""
        return [(found["code"], found["ranks"]) for found in self.report["findings"]]


def launch(*command: str, timeout_s: float = 60.0, **more: str) -> Done:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=ENVIRONMENT | more,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def write(folder: Path, *, odd: int | None = None, size: int = 4) -> str:
    """Programs of all processes, alike but perhaps for an odd one; returns their pattern."""
    for number in range(size):
        program = {
            "format": "rankmuster.program/1",
            "world_size": size,
            "replica_groups": [[list(range(size))]],
            "ops": [
                {
                    "kind": "all_gather",
                    "group": 0,
                    "elements": 256 if number == odd else 512,
                    "dtype": "f32",
                    "dimension": 0,
                }
            ],
        }
        (folder / f"{number}.json").write_text(json.dumps(program))
    return str(folder / "{rank}.json")
