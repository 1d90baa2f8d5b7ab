"""Three hosts on one machine, each a network namespace: what a network does to a bring-up.

The namespaces have no names. They end with the processes that hold them, and so with this one.
What runs into its deadline takes long, and is for the nightly run.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from rankmuster import launch
from rankmuster.api import read
from rankmuster.errors import MusterError
from rankmuster.launch.fork import Family
from rankmuster.report import Disagreement
from rankmuster.session import join
from rankmuster.transport.base import Deadline

PROGRAM = Path(__file__).parents[2] / "examples" / "ring.json"
DEVICES = ("0-2", "3-5", "6-7")
ROOT = "10.77.0.1:20480"
SHORT_S = 5.0  # a deadline that is going to pass, and leaves a busy machine time before
LATE_S = 1.0
NEW_MOUNTS, NEW_NAMES, NEW_NETWORK = 0x20000, 0x4000000, 0x40000000  # CLONE_NEWNS, ...UTS, ...NET
BIND, PRIVATE = 0x1000, 0x44000  # MS_BIND, MS_REC | MS_PRIVATE
# As Debian has it: a host's own name means its loopback there.
NAMES = "127.0.0.1 localhost\n127.0.1.1 trn{0}\n10.77.0.1 trn1\n10.77.0.2 trn2\n10.77.0.3 trn3\n"
CABLE = "link add eth0 netns {pid} type veth peer name p{number} netns {switch}"
HOST = """
link set lo up
addr add 10.77.0.{number}/24 dev eth0
addr add fd77::{number}/64 dev eth0 nodad
link set eth0 up
link add docker0 type bridge
addr add 172.17.0.1/16 dev docker0
link set docker0 up
link add eth1 type bridge
addr add 10.78.0.{number}/32 dev eth1
link set eth1 up
"""


class Host:
    """A network of its own, for as long as somebody holds it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdout is not None
        self._keeper.stdout.readline()
        self.pid = self._keeper.pid

    def run(self, *command: str, text: str = "") -> None:
        """Run a command there."""
        there = ["nsenter", "--net", "--target", str(self.pid), *command]
        subprocess.run(there, input=text, text=True, check=True, capture_output=True)

    def enter(self, names: Path) -> None:
        """Move this process there, with a host name and a list of names of its own."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{self.pid}/ns/net", "rb") as network:
            _check(libc.setns(network.fileno(), NEW_NETWORK))
        _check(libc.unshare(NEW_MOUNTS | NEW_NAMES))
        socket.sethostname(f"trn{self.number}")
        _check(libc.mount(b"none", b"/", None, PRIVATE, None))
        _check(libc.mount(bytes(names), b"/etc/hosts", None, BIND, None))

    def end(self) -> None:
        self._keeper.communicate()


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Network(NamedTuple):
    """A switch and the three hosts on it; `names` holds each one's /etc/hosts."""

    hosts: tuple[Host, ...]
    switch: Host
    names: tuple[Path, ...]


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Iterator[Network]:
    """Hosts with an address of each family, and a bridge whose address all have."""
    if missing := [tool for tool in ("ip", "nsenter", "unshare") if not shutil.which(tool)]:
        pytest.skip(f"needs iproute2 and util-linux: no {', '.join(missing)}")
    tried = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no network namespaces here: {tried.stderr.decode().strip()}")
    switch, *hosts = made = [Host(number) for number in range(4)]
    try:
        connect(switch, hosts)
        folder = tmp_path_factory.mktemp("names")
        names = tuple(folder / f"hosts{host.number}" for host in hosts)
        for host, path in zip(hosts, names, strict=True):
            path.write_text(NAMES.format(host.number))
        yield Network(tuple(hosts), switch, names)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no virtual cables or bridges here: {error.stderr.strip()}")
    finally:
        for host in made:
            host.end()


def connect(switch: Host, hosts: Sequence[Host]) -> None:
    """Lay a cable from each of *hosts* to the switch, and give them their addresses."""
    lines = ["link add br0 type bridge", "link set br0 up"]
    for host in hosts:
        lines.append(CABLE.format(pid=host.pid, number=host.number, switch=switch.pid))
        lines.append(f"link set p{host.number} master br0 up")
    switch.run("ip", "-batch", "-", text="\n".join(lines))
    for host in hosts:
        host.run("ip", "-batch", "-", text=HOST.format(number=host.number))


class Said(NamedTuple):
    """How a process ended: its verdict, its findings' codes and devices, and their messages."""

    verdict: str
    findings: list[tuple[str, str]]
    messages: list[str]
    took_s: float


def muster(
    network: Network,
    root: str = ROOT,
    *,
    deadline_s: float = 5.0,
    on_phase: Callable[[int, str], None] = lambda _number, _phase: None,
    before: Callable[[int], None] = lambda _number: None,
    each: Mapping[int, Mapping[str, str]] | None = None,
    common: Mapping[str, str] | None = None,
) -> list[Said]:
    """One process on each host; *each* and *common* add variables, *before* runs first."""

    def environ(number: int) -> dict[str, str]:
        ours = {"PROCESS": str(number), "PROCESSES": "3", "DEVICES": DEVICES[number]}
        ours |= {"WORLD_SIZE": "8", "ROOT": root, "SECRET": "correct horse battery staple"}
        told = {f"RANKMUSTER_{name}": value for name, value in ours.items() if value}
        return told | dict(common or {}) | dict((each or {}).get(number, {}))

    def main(number: int, result: int) -> int:
        network.hosts[number].enter(network.names[number])
        before(number)
        start = time.monotonic()
        deadline = Deadline.after(deadline_s)
        try:
            place = launch.place(environ(number), deadline=deadline)
            assert place is not None
            phase = lambda name: on_phase(number, name)  # noqa: E731 - read where it is used
            with join(place, lambda: read(PROGRAM), deadline, on_phase=phase) as session:
                report = session.report.to_dict()
        except Disagreement as no:
            report = no.report.to_dict()
        except MusterError as error:
            report = {"verdict": type(error).__name__, "findings": [], "error": str(error)}
        os.write(result, msgspec.json.encode((report, time.monotonic() - start)))
        return 0

    results: dict[int, bytes] = {}
    with Family(3, main) as family:
        while got := family.next_result(time.monotonic() + deadline_s + LATE_S + 4):
            results[got[0]] = got[1]
        family.end(0.0)
        family.wait()
    return [_said(results.get(number, b"")) for number in range(3)]


def _said(result: bytes) -> Said:
    if not result:
        return Said("", [], [], 0.0)
    report, took_s = msgspec.json.decode(result)
    found: list[dict[str, Any]] = report["findings"]
    return Said(
        report["verdict"],
        [(each["code"], each["ranks"]) for each in found],
        [report["error"]] if "error" in report else [each["message"] for each in found],
        took_s,
    )


AGREE = [("agree", [])] * 3


def outcomes(said: list[Said]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(each.verdict, each.findings) for each in said]


def slurm(number: int) -> dict[str, str]:
    """The variables of one of three tasks on three nodes."""
    task = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "trn[1-3]"}
    task |= {"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "3", "SLURM_LOCALID": "0"}
    return {**task, "SLURM_PROCID": str(number)}


def after(seconds: float, who: int) -> Callable[[int], None]:
    """A start that is late on one host."""
    return lambda number: time.sleep(seconds) if number == who else None


@pytest.mark.parametrize("root", [ROOT, "[fd77::1]:20480", "trn1:20480"])
def test_hosts_meet_however_the_root_is_called(network, root):
    """By number of either family, or by a name that means the loopback on its own host."""
    assert outcomes(muster(network, root)) == AGREE


def test_slurm_says_where_the_root_is(network):
    """The first of its nodes, by name."""
    assert outcomes(muster(network, "", each={n: slurm(n) for n in range(3)})) == AGREE


@pytest.mark.parametrize("root", [ROOT, "trn1:20480"])
def test_a_root_that_comes_late_is_waited_for(network, root):
    """Nobody says where it listens before it knows its way to the root."""
    assert outcomes(muster(network, root, before=after(1.2, 0))) == AGREE


TWICE = {1: {"RANKMUSTER_PROCESS": "0", "RANKMUSTER_DEVICES": "0-2"}}


@pytest.mark.parametrize(
    ("root", "late"),
    [
        (ROOT, 0),
        pytest.param(ROOT, 1, marks=pytest.mark.nightly),
        pytest.param("trn1:20480", 0, marks=pytest.mark.nightly),
        pytest.param("trn1:20480", 1, marks=pytest.mark.nightly),
    ],
)
def test_two_roots_learn_of_each_other(network, root, late):
    """Who finds a root where the others look for one hands in its card there: RM605 names both."""
    said = muster(network, root, each=TWICE, deadline_s=12.0, before=after(1.0, late))
    assert outcomes(said) == [("undecided", [("RM605", "0-2"), ("RM601", "3-5")])] * 3
    both = r"devices 0-2 are claimed by process 0 \(pid \d+ on trn1\) and by .* on trn2\)"
    assert all(re.fullmatch(both, each.messages[0]) for each in said)


@pytest.fixture
def forwarded(network) -> Iterator[str]:
    """An address that no host has, and that leads to the first one from everywhere."""
    if shutil.which("iptables") is None:
        pytest.skip("needs iptables")
    rule = ("-p", "tcp", "-d", "10.77.0.99", "-j", "DNAT", "--to-destination", "10.77.0.1")
    for host in network.hosts:
        try:
            host.run("iptables", "-w", "-t", "nat", "-A", "OUTPUT", *rule)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no address translation here: {error.stderr.strip()}")
    yield "10.77.0.99:20480"
    for host in network.hosts:
        host.run("iptables", "-w", "-t", "nat", "-F")


def test_a_root_whose_address_is_forwarded_is_no_rival_of_its_own(network, forwarded):
    """It finds itself there, and says nothing."""
    assert outcomes(muster(network, forwarded)) == AGREE


@pytest.fixture
def translated(network) -> Iterator[None]:
    """Whatever the second host sends comes from an address at which it does not listen."""
    if shutil.which("iptables") is None:
        pytest.skip("needs iptables")
    rule = ("POSTROUTING", "-p", "tcp", "-o", "eth0", "-j", "SNAT", "--to-source", "10.77.0.42")
    second = network.hosts[1]
    try:
        second.run("iptables", "-w", "-t", "nat", "-A", *rule)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no address translation here: {error.stderr.strip()}")
    second.run("ip", "addr", "add", "10.77.0.42/24", "dev", "eth0")
    yield
    second.run("iptables", "-w", "-t", "nat", "-F")
    second.run("ip", "addr", "del", "10.77.0.42/24", "dev", "eth0")


@pytest.mark.usefixtures("translated")
def test_an_address_that_is_translated_is_a_warning(network):
    """A process is seen elsewhere than it says, and is one of us all the same."""
    root, *others = muster(network)
    assert root.findings == [("RM608", "3-5")]
    assert root.messages == [
        "device(s) 3-5 advertise 10.77.0.2 (routable), and are seen from 10.77.0.42"
    ]
    assert {each.verdict for each in (root, *others)} == {"agree"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("root", "interface", "hint", "trouble"),
    [
        ("10.77.0.9:20480", "", "10.77.0.9, and it listens on 10.77.0.1, ", "No route to host"),
        ("10.77.0.2:20480", "", "10.77.0.2, and it listens on 10.77.0.1, ", "Connection refused"),
        ("172.17.0.1:20480", "", "172.17.0.1, a bridge address, which", "Connection refused"),
        (ROOT, "docker0", "10.77.0.1, and it listens on 172.17.0.1 of trn1", "Connection refused"),
    ],
)
def test_a_root_that_is_not_where_it_is_said_to_be(network, root, interface, hint, trouble):
    """Both ends say what they know of it: where one listens, and what the others find there."""
    odd = {0: {"RANKMUSTER_INTERFACE": interface}}
    first, *others = muster(network, root, each=odd, deadline_s=SHORT_S)
    assert first.findings == [("RM601", "3-7"), ("RM608", "0-2")]
    assert first.messages[1].startswith(f"the others look for the root at {hint}")
    why = f"no answer from the root within {SHORT_S:g} s: {root}: {trouble}"
    assert [each.messages for each in others] == [[why]] * 2


def test_an_interface_that_is_none_is_told_to_all(network):
    """The process that was told a wrong one takes part, to say so."""
    said = muster(network, each={1: {"RANKMUSTER_INTERFACE": "eth7"}})
    assert outcomes(said) == [("undecided", [("RM608", "3-5")])] * 3
    for each in said:
        assert each.messages[0].startswith("process 1 on trn2: interface 'eth7' matches none of lo")
        assert each.took_s < SHORT_S


@pytest.mark.nightly
def test_a_bridge_that_every_host_has_is_named_with_who_found_nobody_there(network):
    """Whoever listens on it is told apart from where it is seen, and cannot be reached."""
    root, *others = muster(
        network, each={1: {"RANKMUSTER_INTERFACE": "docker0"}}, deadline_s=SHORT_S
    )
    assert outcomes([root]) == [("undecided", [("RM608", "3-5"), ("RM608", "3-5")])]
    assert root.messages[0].startswith("device(s) 3-5 advertise 172.17.0.1 (bridge), and are seen")
    assert root.messages[1].startswith("process 2 on trn3 cannot reach process 1 at 172.17.0.1:")
    assert [each.messages for each in others] == [root.messages[1:]] * 2


@pytest.mark.nightly
@pytest.mark.parametrize("names", [("trn1", "trn2", "trn3"), ("trn", "trn", "trn")])
def test_a_path_that_is_blocked_is_named_by_both_its_ends(network, names):
    """Two processes see the root and not each other, also where all hosts have one name."""
    third = network.hosts[2]
    nobody = ("10.77.0.2", "dev", "eth0", "lladdr", "02:00:00:00:00:99", "nud", "permanent")
    third.run("ip", "neigh", "replace", *nobody)
    said = muster(network, before=lambda n: socket.sethostname(names[n]), deadline_s=SHORT_S)
    third.run("ip", "neigh", "del", "10.77.0.2", "dev", "eth0")
    assert outcomes(said) == [("undecided", [("RM608", "6-7"), ("RM608", "3-5")])] * 3
    ways = [message.rpartition(":")[0].rpartition(":")[0] for message in said[0].messages]
    assert ways == [
        f"process 1 on {names[1]} cannot reach process 2 at 10.77.0.3",
        f"process 2 on {names[2]} cannot reach process 1 at 10.77.0.2",
    ]
    assert max(each.took_s for each in said) < SHORT_S + LATE_S


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("dark", "phase"), [(0, "read"), (0, "bootstrap"), (1, "census"), (1, "closing")]
)
def test_a_host_that_goes_dark_is_named_within_the_deadline(network, dark, phase):
    """Its cable is pulled, so that nobody hears of its end, and it of nobody's."""
    cable = f"p{dark + 1}"

    def pull(number: int, name: str) -> None:
        if (number, name) == (dark, phase):
            network.switch.run("ip", "link", "set", cable, "down")

    said = muster(network, on_phase=pull, deadline_s=SHORT_S)
    network.switch.run("ip", "link", "set", cable, "up")
    lit = [each for number, each in enumerate(said) if number != dark]
    assert {each.verdict for each in lit} == {"undecided"}
    # Of a root that never spoke nothing is known but that it holds device 0.
    named = {ranks for each in lit for _, ranks in each.findings}
    assert named in ({DEVICES[dark]}, {DEVICES[dark].partition("-")[0]})
    assert max(each.took_s for each in said) < SHORT_S + LATE_S
