"""What `rankmuster doctor` says of a machine, from facts that are handed in."""

from __future__ import annotations

import resource
import socket
import threading

import msgspec
import pytest

from rankmuster.address import Reach
from rankmuster.cli import run
from rankmuster.doctor.checkup import State
from rankmuster.doctor.expected import PHASES, Costs, Expected, beside, expect, recall, store
from rankmuster.doctor.machine import (
    check_backlog,
    check_clock,
    check_descriptors,
    check_host_name,
)
from rankmuster.doctor.network import (
    Lookup,
    check_interfaces,
    check_name,
    check_port,
    look_up,
)
from rankmuster.transport.interfaces import Interface
from rankmuster.transport.limits import Limit, allow, limit, needed

COSTS = Costs(connection_s=1e-4, frame_s=1e-5, work_s=dict.fromkeys(PHASES, 1e-3))


@pytest.mark.parametrize(
    ("has", "state"),
    [
        (Limit(1 << 20, 1 << 20), State.OK),
        (Limit(1024, 1 << 20), State.OK),
        (Limit(1024, 1024), State.ERROR),
    ],
)
def test_descriptors(has: Limit, state: State) -> None:
    """A soft limit is raised at bring-up; only a hard one that is too low is an error."""
    assert check_descriptors(2048, has).state is state


def test_the_soft_limit_is_raised_as_far_as_needed() -> None:
    """And left alone where it suffices."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = limit()
    try:
        assert allow(soft)
        assert limit() == (soft, hard)
        assert allow(hard + 1) is False
        assert limit() == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert needed(16) < 1024


def test_backlog() -> None:
    """Fewer places than processes make the last ones late; an unknown bound is no complaint."""
    states = [check_backlog(512, bound).state for bound in (4096, 128, None)]
    assert states == [State.OK, State.WARNING, State.OK]


def test_host_name() -> None:
    """A part of a DNS name has 63 characters at most."""
    states = [check_host_name(name).state for name in ("trn-7.cluster.example", "x" * 64, "")]
    assert states == [State.OK, State.WARNING, State.WARNING]


def test_clock() -> None:
    """This machine's clock tells a likely time."""
    assert check_clock().state is not State.ERROR


def test_a_hanging_resolver_costs_its_deadline() -> None:
    """A name is looked up in a thread that nobody waits for any longer."""
    release = threading.Event()

    def hangs(_name: str) -> list[str]:
        release.wait(5)
        return []

    found = look_up("nowhere", within_s=0.05, resolver=hangs)
    release.set()
    for thread in threading.enumerate():
        if thread.name == "look up nowhere":
            thread.join(5)
    assert found.problem == "no answer within 0.05 s"
    assert check_name("root name", "nowhere", found, is_root=True).state is State.ERROR
    assert check_name("own name", "nowhere", found, is_root=False).state is State.WARNING


def test_names() -> None:
    """A slow name and a root that only this host reaches are told; numbers are fine."""
    known = [
        Lookup(("10.0.0.4",), 0.001),
        Lookup(("10.0.0.4",), 0.5),
        Lookup(("127.0.1.1",), 0.001),
    ]
    states = [check_name("root name", "head", each, is_root=True).state for each in known]
    assert states == [State.OK, State.WARNING, State.WARNING]


def test_interfaces() -> None:
    """A host whose addresses nobody else reaches can only muster alone."""
    alone = Interface("lo", "127.0.0.1", Reach.LOOPBACK)
    seen = Interface("eth0", "10.0.0.4", Reach.ROUTABLE)
    states = [check_interfaces(known).state for known in ([alone], [alone, seen], [])]
    assert states == [State.WARNING, State.OK, State.WARNING]


def test_the_roots_port() -> None:
    """A port that somebody listens on is an error on our own host; a free one is well."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        here = Lookup(("127.0.0.1",), 0.0)
        assert check_port("localhost", port, here, []).state is State.ERROR
    assert check_port("localhost", port, here, []).state is State.OK
    assert check_port("nowhere", port, Lookup((), 0.0, "no"), []).state is State.WARNING


def test_more_processes_take_longer_and_more_hosts_do_not() -> None:
    """The root's own work grows with the world, the others' with what shares a core."""
    small, large, spread = (
        expect(n, COSTS, round_trip_s=1e-4, cores=cores)
        for n, cores in ((8, 8), (800, 8), (800, 800))
    )
    assert small.total_s < spread.total_s < large.total_s


def test_what_was_expected_is_kept_for_a_later_run(tmp_path) -> None:
    """By the number of processes; the last word on each counts, and a broken file is no file."""
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    assert recall(8, environ) is None
    for seconds in (1.0, 2.0):
        assert store(Expected(processes=8, phases={"census": seconds}), environ) is not None
    held = recall(8, environ)
    assert held == Expected(processes=8, phases={"census": 2.0})
    assert held is not None
    assert beside({"census": 1.5, "read": 9.0}, held).endswith(": census 1500.0 (2000.0)")
    (tmp_path / "rankmuster" / "expected.json").write_text("[{")
    assert recall(8, environ) is None


def test_a_world_of_four_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """With --world each phase has a time, and it is kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("NEURON_RT_ROOT_COMM_ID", "RANKMUSTER_SECRET"):
        monkeypatch.delenv(name, raising=False)
    assert run(["doctor", "--world", "64", "--format", "json"]) == 0
    answer = msgspec.json.decode(capsys.readouterr().out)
    assert set(answer["expected"]["phases"]) == set(PHASES)
    assert all(seconds > 0 for seconds in answer["expected"]["phases"].values())
    assert {check["name"] for check in answer["checks"]} == {
        *("descriptors", "backlog", "host name", "own name", "interfaces", "clock")
    }
    assert recall(64, {"XDG_STATE_HOME": str(tmp_path)}) is not None


def test_a_bad_root_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """An address without a port cannot be looked at."""
    assert run(["doctor", "--root", "nowhere"]) == 1
    assert "write host:port" in capsys.readouterr().out
