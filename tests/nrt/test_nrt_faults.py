"""Real processes of which one is killed: the others end in time, with a status and a name."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from nrt_worlds import free_root

PROCESS = """
import logging, os, signal, sys
from rankmuster import nrt
from rankmuster.nrt.log import FORMAT
from rankmuster.testing.build import all_reduce, program

me, phase, victim = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
logging.basicConfig(format=FORMAT)

def begin(name):
    if (me, name) == (victim, phase):
        os.kill(os.getpid(), signal.SIGKILL)

step = program(all_reduce(7), groups=[[[0, 1, 2]]])
calls = {
    "init": lambda: nrt.nrt_init(0, "", ""),
    "build": lambda: nrt.nrt_build_global_comm(0, me, 3),
    "load": lambda: nrt.nrt_load_collectives(step, 0, 0, -1, me, 3, nrt.Out()),
    "barrier": lambda: nrt.nrt_barrier(0, me, 3),
}
said = []
for name, call in calls.items():
    begin(name)
    said.append(call())
    if said[-1]:
        break
said.append(nrt.nrt_close())
print(*map(int, said))
"""
SHORT_S, LONG_S = 3.0, 30.0  # a call that must time out, and one that must not
FAILURE, TIMEOUT = 1, 5


def run(phase: str, victim: int, deadline_s: float) -> tuple[list[list[int]], list[str], float]:
    """What each survivor was told, what it logged, and how long all of them took."""
    environ = {
        "NEURON_RT_ROOT_COMM_ID": free_root(),
        "RANKMUSTER_NRT_DEADLINE": str(deadline_s),
        "PATH": "",
    }
    began = time.monotonic()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(me), phase, str(victim)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me in range(3)
    ]
    ended = [child.communicate(timeout=60) for child in children]
    told = [list(map(int, out.split())) for me, (out, _) in enumerate(ended) if me != victim]
    return told, [log for _, log in ended], time.monotonic() - began


def test_nobody_dies() -> None:
    """The same script without a victim goes all the way."""
    told, logs, _ = run("", -1, LONG_S)
    assert (told, logs) == ([[0] * 5] * 3, [""] * 3)


@pytest.mark.parametrize(
    ("phase", "victim"),
    [("build", 0), ("build", 2), *((p, v) for p in ("load", "barrier") for v in range(3))],
)
def test_one_dies(phase: str, victim: int) -> None:
    """Everything before its death succeeds, that call fails everywhere, and closing still works."""
    # Nobody can tell that a process never came, but by the clock; a lost one is seen at once.
    told, logs, took_s = run(phase, victim, SHORT_S if phase == "build" else LONG_S)
    before = ["init", "build", "load", "barrier"].index(phase)
    for *good, failed, closed in told:
        assert (good, closed) == ([0] * before, 0)
        assert failed in {FAILURE, TIMEOUT}
    # It is named by whoever waited for it; without a root nobody can know more.
    names = [
        f"device {victim}",
        "devices 1-2",
        "the root",
        f"from {victim}",
        "waiting for",
        "failed signature",
    ]
    assert all(any(name in log for name in names) for n, log in enumerate(logs) if n != victim)
    assert any(f"device {victim}" in log or "the root" in log for log in logs)
    assert took_s < LONG_S / 2
