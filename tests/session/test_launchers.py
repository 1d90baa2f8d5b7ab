"""What launchers' variables mean: tables of real ones, and processes started by hand with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from session_worlds import hand_started

from rankmuster import launch
from rankmuster.address import Reach, join_address
from rankmuster.errors import MusterError
from rankmuster.formats import json_program
from rankmuster.launch.base import BrokenLaunch, LaunchOptions
from rankmuster.launch.mpi import OpenMpi
from rankmuster.launch.ports import FIRST_PORT, PORTS, beside, derived_port
from rankmuster.launch.secret import BadSecret
from rankmuster.launch.slurm import first_host
from rankmuster.transport.base import Deadline
from rankmuster.transport.interfaces import interfaces

SLURM = {  # srun -N2 -n4, task 2
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "trn[07-08]",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "4",
}
COMPONENTS = {  # srun -w trn09 -n 2 : -w trn07,trn08 -n 2
    "SLURM_JOB_NODELIST_HET_GROUP_0": "trn09",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "trn[07-08]",
}
OPEN_MPI = {  # mpirun -n 4 on one host, Open MPI 4
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_MCA_ess_base_jobid": "1531576320",
}
ELSEWHERE = {  # mpirun -host a,b on neither of them
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://192.0.2.7:34911",
}
MPICH = {  # mpiexec -n 2 of MPICH 5
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
}
TORCHRUN = {  # torchrun --nproc-per-node 2
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "3",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
NEURON = {
    "NEURON_PJRT_PROCESS_INDEX": "1",
    "NEURON_PJRT_PROCESSES_NUM_DEVICES": "2,4,2",
    "NEURON_RT_ROOT_COMM_ID": "127.0.0.1:46820",
}
JAX = {
    "JAX_PROCESS_ID": "1",
    "JAX_NUM_PROCESSES": "2",
    "JAX_COORDINATOR_ADDRESS": "localhost:1234",
}
VARIABLES = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "::1",
    "MASTER_PORT": "29500",
}
SECRET = {"RANKMUSTER_SECRET": "correct horse battery staple"}


def place(environ: Mapping[str, str], **options):
    found = launch.place({**SECRET, **environ}, LaunchOptions(**options), Deadline.after(0.2))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "environ", "process", "processes", "devices", "size"),
    [
        ("slurm", SLURM, 2, 4, (2,), 4),
        ("openmpi", OPEN_MPI, 3, 4, (3,), 4),
        ("mpich", MPICH, 1, 2, (1,), 2),
        ("torchrun", TORCHRUN, 1, 2, (1,), 2),
        ("neuron", NEURON, 1, 3, (2, 3, 4, 5), 8),
        ("jax", JAX, 1, 2, (1,), 2),
        ("env", VARIABLES, 1, 2, (1,), 2),
    ],
)
def test_every_launcher_says_where_we_stand(name, environ, process, processes, devices, size):
    """Each is recognised by its own variables, which give number, count and devices."""
    found = place(environ)
    assert (found.launcher, found.process, found.processes) == (name, process, processes)
    assert (found.devices, found.world_size, found.findings) == (devices, size, ())


@pytest.mark.parametrize(
    ("environ", "host"),
    [
        (SLURM, "trn07"),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "1"}, "127.0.0.1"),
        ({**SLURM, **COMPONENTS, "SLURM_STEP_NODELIST": "trn[07-09]"}, "trn09"),
        ({**SLURM, **COMPONENTS}, "trn07"),  # a step of the second component alone
        (OPEN_MPI, "127.0.0.1"),
        (MPICH, "127.0.0.1"),
        (TORCHRUN, "127.0.0.1"),
        (NEURON, "127.0.0.1"),
        (JAX, "localhost"),
        (VARIABLES, "[::1]"),
    ],
)
def test_the_root_is_beside_the_jobs_own(environ, host):
    """The port is derived, alike everywhere, and never one that the job's runtime wants."""
    root, _, port = place(environ).root.rpartition(":")
    assert root == host
    assert FIRST_PORT <= int(port) <= FIRST_PORT + PORTS
    assert port not in {"29500", "1234", "46820"}


@pytest.mark.parametrize(
    ("environ", "other"),
    [
        (SLURM, {"SLURM_STEP_ID": "1"}),
        (OPEN_MPI, {"OMPI_MCA_ess_base_jobid": "1531576321"}),
        (TORCHRUN, {"MASTER_PORT": "29501"}),
        (NEURON, {"NEURON_RT_ROOT_COMM_ID": "127.0.0.1:46821"}),
        (JAX, {"JAX_COORDINATOR_ADDRESS": "localhost:1235"}),
        (VARIABLES, {"MASTER_PORT": "29501"}),
        (MPICH, {"PMI_PORT": "127.0.0.1:40001"}),
    ],
)
def test_two_jobs_at_once_do_not_meet(environ, other):
    """They have roots of their own, and would turn each other away all the same."""
    one, two = place(environ), place(environ | other)
    assert one.root != two.root
    assert one.job != two.job


def test_a_process_may_call_the_jobs_root_by_another_name():
    """An operator gives process 0 "localhost", and the others its name."""
    one, two = place(JAX), place({**JAX, "JAX_COORDINATOR_ADDRESS": "trn1:1234"})
    assert one.job == two.job
    assert one.root.rpartition(":")[2] == two.root.rpartition(":")[2]


def test_a_derived_port_steps_aside():
    """Even where the job's own port is the one that would be derived."""
    own = derived_port("x")
    assert derived_port("x", own) == own + 1
    assert beside("[fd00::1]:46820").startswith("[fd00::1]:")


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("trn-7", "trn-7"),
        ("trn-[0012-0016,0020]", "trn-0012"),
        ("trn[3,5-9],gpu[1-2]", "trn3"),
        ("gpu7,trn[1-2]", "gpu7"),
        ("rack[0-1]node[08-15]-ib", "rack0node08-ib"),
    ],
)
def test_the_first_host_of_a_node_list(nodes, host):
    """All shapes that Slurm writes."""
    assert first_host(nodes) == host


@pytest.mark.parametrize("nodes", ["", ",", "[1-2", "trn[x]"])
def test_a_node_list_that_is_none(nodes):
    """What cannot be read is quoted."""
    with pytest.raises(BrokenLaunch, match="names no host"):
        first_host(nodes if nodes != "trn[x]" else "[x]")


@pytest.mark.parametrize(
    ("uri", "host"),
    [
        ("1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911", "10.96.0.1"),
        (
            "1.0;tcp6://[fe80::b9b:ac5d:9cf0:b858,2620:10d:c083::3000:2]:43370",
            "2620:10d:c083::3000:2",
        ),
        ("1.0;tcp://172.17.0.1,10.0.0.9:34911", "10.0.0.9"),
    ],
)
def test_open_mpi_names_its_own_host(uri, host):
    """Of several addresses the first is taken that other hosts can reach."""
    environ = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_MCA_orte_hnp_uri": uri}
    assert OpenMpi.root(environ).rpartition(":")[0].strip("[]") == host


def test_the_innermost_launcher_answers():
    """Torchrun inside a Slurm job counts for itself; so does mpirun."""
    assert launch.detect({**SLURM, **TORCHRUN}).name == "torchrun"
    assert launch.detect({**SLURM, **OPEN_MPI}).name == "openmpi"
    assert launch.detect({**SLURM, "PMI_RANK": "2", "PMI_SIZE": "4"}).name == "slurm"
    assert launch.detect({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None


def test_what_is_said_beats_what_is_found():
    """An option beats a RANKMUSTER_ variable, which beats the launcher."""
    environ = {**SLURM, "RANKMUSTER_PROCESS": "1", "RANKMUSTER_ROOT": "10.0.0.1:5000"}
    assert (place(environ).process, place(environ).root) == (1, "10.0.0.1:5000")
    said = place(environ, process=3, root="[fd00::1]:6000", devices=(0, 2), world_size=8)
    assert (said.process, said.root, said.devices, said.world_size, said.is_root) == (
        *(3, "[fd00::1]:6000", (0, 2), 8),
        True,
    )


def test_an_unknown_launcher_is_answered_by_the_nearest():
    """A typo is an error, never a log line."""
    with pytest.raises(BrokenLaunch, match="no launcher 'slrum'; did you mean 'slurm'"):
        place(SLURM, launcher="slrum")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # RANK=$SLURM_LOCALID (a local rank taken for a rank)
        ({"RANK": "0"}, "the process number: SLURM_PROCID says 2, RANK says 0"),
        (
            {"WORLD_SIZE": "8", "JAX_NUM_PROCESSES": "8"},
            "the number of processes: SLURM_STEP_NUM_TASKS says 4, "  # noqa: ISC004 - one message
            "JAX_NUM_PROCESSES says 8, WORLD_SIZE says 8",
        ),
        (
            {"NEURON_PJRT_PROCESSES_NUM_DEVICES": "2,2,2"},
            "the number of processes: SLURM_STEP_NUM_TASKS says 4, "  # noqa: ISC004 - one message
            "NEURON_PJRT_PROCESSES_NUM_DEVICES says 3",
        ),
    ],
)
def test_sources_that_contradict_each_other_are_named(changes, message):
    """RM006 quotes every source; the process takes part all the same, so that all hear of it."""
    found = place({**SLURM, **changes})
    assert [(each.code, each.message, each.ranks) for each in found.findings] == [
        ("RM006", message, found.devices)
    ]


@pytest.mark.parametrize(
    ("environ", "options", "message"),
    [
        ({**SLURM, "SLURM_PROCID": "x"}, {}, "SLURM_PROCID='x' is no number"),
        ({**SLURM, "SLURM_PROCID": "4"}, {}, "process 4 of 4"),
        ({}, {"process": 1}, "--processes is not given"),
        ({}, {"process": 1, "processes": 2}, "nobody says where the root is"),
        ({}, {"process": 1, "processes": 2, "root": "10.0.0.1"}, "is not an address"),
        (SLURM, {"world_size": 6}, "a world of 6 devices does not divide among 4"),
        (SLURM, {"devices_each": (1, 2)}, "names 2 processes, and there are 4"),
        ({**JAX, "JAX_COORDINATOR_ADDRESS": ""}, {}, "JAX_COORDINATOR_ADDRESS is not set"),
        ({**NEURON, "NEURON_PJRT_PROCESSES_NUM_DEVICES": "2,"}, {}, "is no list of counts"),
        ({**MPICH, "MPI_LOCALNRANKS": "1"}, {}, "does not say on which host"),
        ({**SLURM, "RANKMUSTER_DEVICES": "3-1"}, {}, "RANKMUSTER_DEVICES='3-1'"),
        ({**SLURM, "SLURM_DISTRIBUTION": "arbitrary"}, {}, "does not say on which node task 0"),
        (
            {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0", **ELSEWHERE},
            {},
            "rank 0 does not run on 192.0.2.7, where mpirun does; say --root",
        ),
        (
            {**SLURM, "SLURM_PROCID": "0", "SLURMD_NODENAME": "trn08"},
            {},
            "task 0 runs on trn08, not on trn07, the first node; say --root",
        ),
    ],
)
def test_answers_that_cannot_be_are_quoted(environ, options, message):
    """A wrong variable or option ends in one line, never in a traceback."""
    with pytest.raises(MusterError, match=message):
        place(environ, **options)


def test_the_secret_comes_from_the_surest_source(tmp_path):
    """A file that is said beats one in the environment, which beats the text itself."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 32)
        (tmp_path / name).chmod(0o600)
    environ = {**JAX, "RANKMUSTER_SECRET_FILE": str(tmp_path / "a")}

    def secret(environ, **options) -> bytes:
        # each with a root of its own: what a process found for one job it keeps
        root = f"127.0.0.1:{len(seen) + 5000}"
        seen.append(place(environ, root=root, **options).secret)
        return seen[-1]

    seen: list[bytes] = []
    by_file = secret(environ, secret_file=str(tmp_path / "b"))
    by_variable, by_text = secret(environ), secret(JAX)
    assert len({by_file, by_variable, by_text}) == 3
    assert secret({**environ, "RANKMUSTER_SECRET_FILE": str(tmp_path / "b")}) == by_file


@pytest.mark.parametrize(
    ("mode", "text", "message"),
    [
        (0o640, "x" * 32, "has mode 0640: others may use it; chmod 600"),
        (0o600, "short", "has 5 bytes, fewer than 16"),
        (None, "", "No such file"),
    ],
)
def test_a_secret_that_is_none(tmp_path, mode, text, message):
    """What others can read, or guess, is refused with what to do."""
    path = tmp_path / "secret"
    if mode is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(BadSecret, match=message):
        place(JAX, root="127.0.0.1:4999", secret_file=str(path))


def test_without_a_secret_only_the_loopback_will_do():
    """The error gives the line that makes a secret; --insecure goes on."""
    far = LaunchOptions(root="10.0.0.1:5001")
    with pytest.raises(BadSecret, match=r"umask 077; openssl rand -hex 32 > ~/.muster"):
        launch.place(JAX, far)
    assert launch.place(JAX, replace(far, insecure=True)) is not None
    assert launch.place(JAX, replace(far, root="127.0.0.1:5001")) is not None


def test_under_slurm_device_0_makes_a_key_that_the_others_find(tmp_path):
    """It is for us alone, and its name is the attempt's; who finds none says so."""
    environ = {**SLURM, "XDG_STATE_HOME": str(tmp_path), "SLURM_JOB_ID": "4712"}
    with pytest.raises(BadSecret, match=r"left no key in .*slurm-0-4712-0-0.key within 0.2 s"):
        launch.place(environ, deadline=Deadline.after(0.2))
    root = launch.place({**environ, "SLURM_PROCID": "0"}, deadline=Deadline.after(0.2))
    other = launch.place(environ, deadline=Deadline.after(0.2))
    assert root.secret == other.secret
    (key,) = (tmp_path / "rankmuster").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    root.at_plan()
    assert not key.exists()


def test_a_cancelled_job_leaves_no_key(tmp_path):
    """Slurm ends its tasks with SIGTERM, perhaps before everybody has come."""
    (tmp_path / "p.json").write_text(PROGRAM)
    task = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": "4713"}
    task |= {"XDG_STATE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "rankmuster", "up", "--program", str(tmp_path / "p.json")]
    with subprocess.Popen(command, env=task, stderr=subprocess.PIPE) as root:
        assert root.stderr is not None
        root.stderr.readline()  # where the root listens
        assert list(tmp_path.rglob("*.key"))
        root.terminate()
    assert root.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.rglob("*.key"))


def test_an_older_attempt_has_a_lower_epoch():
    """Restarts count first, then the musters of one attempt."""
    environ = {**TORCHRUN, "TORCHELASTIC_RUN_ID": "another"}
    first, again = place(environ), place(environ)
    assert (first.epoch, again.epoch) == (3 << 16, (3 << 16) + 1)


PROGRAM = """{"format": "rankmuster.program/1", "world_size": 4,
    "replica_groups": [[[0, 1, 2, 3]]],
    "ops": [{"kind": "all_gather", "group": 0, "elements": 4, "dtype": "f32", "dimension": 0}]}"""


def program():
    return json_program.read(PROGRAM.encode(), where="test", world=None)


@pytest.mark.parametrize("name", ["slurm", "openmpi", "variables", "by hand"])
def test_processes_started_by_hand_come_up(tmp_path, name):
    """Nobody forked them from one parent: each finds the others by its launcher's variables."""
    unique = str(20000 + os.getpid())

    def environ(number: int) -> dict[str, str]:
        here = {"XDG_STATE_HOME": str(tmp_path)}
        if name == "slurm":
            here |= {**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": unique}
            return here | {"SLURM_PROCID": str(number)}
        if name == "openmpi":
            return here | OPEN_MPI | {"OMPI_COMM_WORLD_RANK": str(number), "PMIX_NAMESPACE": unique}
        if name == "variables":
            rank = {"RANK": str(number), "WORLD_SIZE": "4", "MASTER_PORT": unique}
            return here | {**rank, "MASTER_ADDR": "127.0.0.1"}
        ours = {"RANKMUSTER_PROCESS": str(number), "RANKMUSTER_PROCESSES": "4"}
        return here | ours | {"RANKMUSTER_ROOT": f"127.0.0.1:{derived_port(unique)}"}

    outcomes = hand_started([environ(number) for number in range(4)], program)
    assert outcomes == [("agree", [], 0)] * 4
    assert not list(tmp_path.rglob("*.key"))


def test_one_process_that_holds_all_devices_needs_no_address():
    """Nobody has to reach it, so its root may have any name."""
    alone = {"RANKMUSTER_PROCESS": "0", "RANKMUSTER_PROCESSES": "1", "RANKMUSTER_DEVICES": "0-3"}
    alone["RANKMUSTER_ROOT"] = f"localhost:{derived_port(str(os.getpid()))}"
    assert hand_started([alone], program) == [("agree", [], 0)]


def test_everybody_hears_whose_sources_contradict_each_other(tmp_path):
    """One process with RANK from its local rank: RM006 names it, to all."""

    def environ(number: int) -> dict[str, str]:
        slurm = {**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": f"7{os.getpid()}"}
        rank = {"RANK": "0" if number == 3 else str(number), "XDG_STATE_HOME": str(tmp_path)}
        return {**slurm, **rank, "SLURM_PROCID": str(number)}

    outcomes = hand_started([environ(number) for number in range(4)], program)
    assert {(each[0], *each[1]) for each in outcomes} == {("invalid", ("RM006", "3"))}


def test_a_launched_process_becomes_the_command(tmp_path):
    """Usual variables, no secret, the exit code passed on; and it may muster again."""
    (tmp_path / "p.json").write_text(PROGRAM.replace('"world_size": 4', '"world_size": 2'))
    text = (tmp_path / "p.json").read_text().replace("[0, 1, 2, 3]", "[0, 1]")
    (tmp_path / "p.json").write_text(text)
    run = [sys.executable, "-m", "rankmuster", "up", "-q", "--engine", "tcp", "--deadline", "8"]
    run += ["--program", str(tmp_path / "p.json")]
    again = (
        "import os, subprocess, sys; e = os.environ;"
        "assert 'RANKMUSTER_SECRET' not in e, 'secret';"
        "print(e['RANK'], e['WORLD_SIZE'], e['LOCAL_RANK'], flush=True);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-c", again, *run, "--", "sh", "-c", "exit $((3 + RANK))"]
    slurm = {**SLURM, **SECRET, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1"}
    slurm |= {"SLURM_JOB_ID": f"8{os.getpid()}", "PATH": os.environ["PATH"]}
    started = [
        subprocess.Popen(
            [*run, "--", *command],
            env={**slurm, "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    said = [process.communicate(timeout=20) for process in started]
    assert [out for out, _ in said] == ["0 2 0\n", "1 2 1\n"], said
    assert [process.returncode for process in started] == [3, 4], said


def test_nothing_ever_asks_for_the_name_of_an_address():
    """A reverse look-up takes as long as the slowest name server likes."""
    reverse = ("gethostbyaddr", "getnameinfo", "getfqdn")
    source = Path(launch.__file__).parents[1]
    found = [
        (path.name, name)
        for path in source.rglob("*.py")
        for name in reverse
        if name in path.read_text()
    ]
    assert found == []


ROUTABLE = [each for each in interfaces() if each.reach is Reach.ROUTABLE]


@pytest.mark.skipif(not ROUTABLE, reason="this host has the loopback only")
@pytest.mark.parametrize("family", ["IPv4", "IPv6", "by interface"])
def test_processes_meet_on_an_address_that_others_can_reach(family):
    """With a secret the root and its peers listen beyond the loopback, on what --interface says."""
    fitting = [each for each in ROUTABLE if (":" in each.address) == (family == "IPv6")]
    if not fitting:
        pytest.skip(f"no routable {family} address")
    root = join_address((fitting[0].address, derived_port(f"{family} {os.getpid()}")))
    said = LaunchOptions(root=root, processes=4)
    if family == "by interface":
        said = replace(said, interface=fitting[0].name)
    environs = [{**SECRET, "RANKMUSTER_PROCESS": str(number)} for number in range(4)]
    assert hand_started(environs, program, options=said) == [("agree", [], 0)] * 4
