"""Figures that need a process of their own: imports counted, whole commands, peak memory."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from harness import Figure, Missing

CHILDREN = Path(__file__).parent / "children"
POLL_S = 0.001
ANONYMOUS = re.compile(rb"RssAnon:\s+(\d+) kB")


def wall(*command: str) -> Figure:
    """Seconds from starting *command* to its end."""

    def figure() -> float:
        start = perf_counter()
        output(*command)
        return perf_counter() - start

    figure()  # warms the page cache
    return figure


def own_clock(script: str, *arguments: str) -> Figure:
    """Seconds that a script in `children/` measures and prints itself."""

    def figure() -> float:
        return float(output(sys.executable, str(CHILDREN / script), *arguments))

    figure()
    return figure


def output(*command: str, **environ: str) -> str:
    """What *command* prints with *environ* added; `Missing` says how it failed."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, **environ}
    )
    if done.returncode:
        raise Missing((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    return done.stdout


def peak_memory(script: str, *arguments: str) -> Figure:
    """Bytes of anonymous memory that a script in `children/` adds while it does its work.

    The script prints a line when it is ready, starts on a line from us, and prints one when done.
    Mapped files do not count: their pages belong to the page cache.
    """
    if not Path("/proc/self/status").is_file():
        raise Missing("peak memory is read from /proc, which this system does not have")
    command = [sys.executable, str(CHILDREN / script), *arguments]

    def figure() -> float:
        with subprocess.Popen(
            command,
            bufsize=0,  # so that what select sees is all there is
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            return highest(child)

    figure()
    return figure


def highest(child: subprocess.Popen[bytes]) -> float:
    """Peak of *child*'s anonymous memory during its work, less what it had before."""
    assert child.stdin is not None
    assert child.stdout is not None
    expect(child, b"ready\n")
    before = top = anonymous(child.pid)
    child.stdin.write(b"go\n")
    while not select.select([child.stdout], [], [], POLL_S)[0]:
        top = max(top, anonymous(child.pid))
    expect(child, b"done\n")
    top = max(top, anonymous(child.pid))  # it keeps its result until its input ends
    child.stdin.close()
    return float(top - before)


def expect(child: subprocess.Popen[bytes], line: bytes) -> None:
    """Read *line* from *child*; `Missing` says what it died of instead."""
    assert child.stdout is not None
    assert child.stderr is not None
    if child.stdout.readline() != line:
        errors = child.stderr.read().decode(errors="replace").strip().splitlines()
        raise Missing((errors or ["ended without a word"])[-1])


def anonymous(pid: int) -> int:
    """Bytes of anonymous memory that a process holds now."""
    found = ANONYMOUS.search(Path(f"/proc/{pid}/status").read_bytes())
    return 1024 * int(found[1]) if found else 0
