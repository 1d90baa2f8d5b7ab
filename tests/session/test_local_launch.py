"""What a launched process inherits, and what it says when that is gone."""

from __future__ import annotations

import os
import time

import pytest

from rankmuster import launch
from rankmuster.launch.fork import CannotFork, Family
from rankmuster.launch.local import BrokenLaunch, spawn

LAUNCHED = {
    "RANKMUSTER_LAUNCHER": "local",
    "RANKMUSTER_ROOT": "127.0.0.1:1",
    "RANKMUSTER_PROCESS": "1",
    "RANKMUSTER_PROCESSES": "2",
    "RANKMUSTER_WORLD_SIZE": "4",
    "RANKMUSTER_DEVICES": "2-3",
    "RANKMUSTER_JOB": "00" * 16,
    "RANKMUSTER_EPOCH": "0",
    "RANKMUSTER_SECRET_FD": "99999",
}


def test_nobody_launched_a_process_without_the_variables():
    """Detection never guesses."""
    assert launch.detect({"RANKMUSTER_PROCESS": "1"}) is None
    assert launch.place({}) is None


def test_a_grandchild_has_the_variables_and_not_the_secret():
    """A process that a launched one starts is told to muster in the right one."""
    with pytest.raises(BrokenLaunch, match="descriptor 99999; muster in the process that was"):
        launch.place(LAUNCHED)


@pytest.mark.parametrize("name", ["RANKMUSTER_EPOCH", "RANKMUSTER_JOB"])
def test_variables_that_somebody_changed_are_quoted(name):
    """A broken launch is said in one line with what was found."""
    changed = {key: value for key, value in LAUNCHED.items() if key != name}
    with pytest.raises(BrokenLaunch, match="not as it left them"):
        launch.place(changed)


def test_children_know_their_place_and_the_secret_is_in_no_variable():
    """Each child finds its number and devices; what is secret came through a pipe."""

    def target() -> bytes:
        place = launch.place(os.environ)
        hidden = not any(place.secret.hex() in value for value in os.environ.values())
        return repr((place.process, place.devices, len(place.secret), hidden)).encode()

    expected = [(0, repr((n, (2 * n, 2 * n + 1), 32, True)).encode()) for n in range(3)]
    assert spawn(target, 3, devices_each=2, deadline_s=8) == expected


def test_what_a_child_raises_is_its_own_affair(capfd):
    """An error in a child ends it with a traceback and code 70, and never reaches the parent."""

    def target() -> bytes:
        raise RuntimeError("only here")

    assert spawn(target, 1, deadline_s=8) == [(70, b"")]
    assert "RuntimeError: only here" in capfd.readouterr().err


def test_too_many_processes_are_said_and_ended(monkeypatch):
    """When the machine says no, those that were started are ended."""
    fork, started = os.fork, []

    def limited() -> int:
        if len(started) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        pid = fork()
        started.append(pid)
        return pid

    def sleep(_number: int, _result: int) -> int:
        time.sleep(30)
        return 0

    monkeypatch.setattr(os, "fork", limited)
    family = Family(3, sleep)
    with pytest.raises(CannotFork, match="only 2 of 3 processes"):
        family.__enter__()
    family.__exit__()
    assert family.wait() == [143, 143]
