"""The same session over other carriers: which one is taken, and whole worlds of threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from rankmuster.errors import MissingPackage
from rankmuster.launch import engines
from rankmuster.launch.base import BrokenLaunch, LaunchOptions
from rankmuster.launch.place import carried
from rankmuster.launch.slurm import Slurm
from rankmuster.program import Program
from rankmuster.report import Disagreement, Report
from rankmuster.session import muster
from rankmuster.testing.build import all_gather, program
from rankmuster.transport.base import Deadline
from rankmuster.transport.loopback import Loopback

MPIEXEC = {"PMI_RANK": "1", "PMI_SIZE": "4"}
TORCHRUN = {
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "1234",
    "RANK": "1",
    "WORLD_SIZE": "4",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


@pytest.fixture
def installed(monkeypatch):
    """Both libraries seem to be installed."""
    monkeypatch.setattr(engines, "find_spec", lambda name: name)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "environ", "options", "chosen"),
    [
        ("auto", {}, {}, "tcp"),
        ("auto", MPIEXEC, {}, "mpi"),
        ("auto", {"PMIX_RANK": "0"}, {}, "mpi"),
        ("auto", TORCHRUN, {}, "torch"),
        ("auto", TORCHRUN | MPIEXEC, {}, "torch"),
        ("auto", MPIEXEC | {"RANKMUSTER_LAUNCHER": "local"}, {}, "tcp"),
        ("auto", MPIEXEC | {"RANKMUSTER_ENGINE": "tcp"}, {}, "tcp"),
        ("mpi", {"RANKMUSTER_ENGINE": "tcp"}, {}, "mpi"),
        ("auto", MPIEXEC, {"root": "trn-1:4321"}, "tcp"),
        ("auto", MPIEXEC, {"secret_file": "job.key"}, "tcp"),
        ("mpi", {}, {"root": "trn-1:4321"}, "mpi"),
    ],
)
def test_an_argument_beats_the_environment_beats_detection(name, environ, options, chosen):
    """Which engine carries the messages, and never a guess where somebody said it."""
    assert engines.choose(name, environ, LaunchOptions(**options)) == chosen


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        (MPIEXEC | {"MPI_LOCALRANKID": "1"}, "mpi"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "tcp"),
        (TORCHRUN, "torch"),
    ],
)
def test_before_a_command_only_what_can_be_used_twice(environ, chosen):
    """The command may use MPI itself, which Open MPI does not bear."""
    assert engines.choose("auto", environ, followed=True) == chosen


def test_what_is_not_installed_is_not_detected(monkeypatch):
    """A launcher without mpi4py is one like any other."""
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    assert engines.choose("auto", MPIEXEC | TORCHRUN) == "tcp"


def test_an_unknown_engine_is_answered_by_the_nearest():
    """Also where it comes from the environment."""
    with pytest.raises(BrokenLaunch, match="no engine 'torhc'; did you mean 'torch'"):
        engines.choose("auto", {"RANKMUSTER_ENGINE": "torhc"})


@pytest.mark.parametrize(
    ("engine", "module"), [("mpi", "mpi4py.MPI"), ("torch", "torch.distributed")]
)
def test_a_missing_library_is_told_when_it_is_asked_for(engine, module, monkeypatch):
    """The message holds the line that installs it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackage, match=rf"pip install 'rankmuster\[{engine}\]'"):
        engines.connect(engine, TORCHRUN, Deadline.after(5))


@pytest.mark.parametrize(
    ("options", "environ", "devices", "size"),
    [
        ({}, {}, (1,), 4),
        ({"devices_each": (2,)}, {}, (2, 3), 8),
        ({"world_size": 8}, {}, (2, 3), 8),
        ({}, {"NEURON_PJRT_PROCESSES_NUM_DEVICES": "1,3,1,1"}, (1, 2, 3), 6),
        ({}, {"RANKMUSTER_DEVICES": "6-7", "RANKMUSTER_WORLD_SIZE": "8"}, (6, 7), 8),
    ],
)
def test_a_place_over_an_engine(options, environ, devices, size):
    """The transport says which process we are, and what says the devices is as everywhere."""
    place = carried(Loopback(4).transport(1), environ, LaunchOptions(**options))
    assert (place.devices, place.world_size, place.root, place.findings) == (devices, size, "0", ())


def test_device_0_belongs_to_process_0():
    """Process 0 leads where nobody has an address."""
    with pytest.raises(BrokenLaunch, match="says 1, and we are to hold devices 0-1; give dev"):
        carried(Loopback(4).transport(1), {}, LaunchOptions(devices=(0, 1)))


def test_a_library_that_the_launcher_does_not_know_is_refused():
    """Each task of srun without --mpi is an MPI of its own, and would be a world that agrees."""
    task = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}
    message = "says 1, SLURM_STEP_NUM_TASKS says 4: slurm and this library do not know each other"
    with pytest.raises(BrokenLaunch, match=message):
        carried(Loopback(1).transport(0), task, launcher=Slurm)


def test_a_contradiction_is_brought_along():
    """Process numbers of two sources that differ become a finding of this process."""
    place = carried(Loopback(4).transport(1), {"JAX_PROCESS_ID": "2"})
    assert [(found.code, found.ranks) for found in place.findings] == [("RM006", (1,))]


def muster_threads(world: Loopback, programs: Sequence[Program | str]) -> list[Report | bytes]:
    """One thread for each program: a gathered text where all agree, else the report."""

    def rank(process: int) -> Report | bytes:
        try:
            with muster(
                programs[process], engine=world.transport(process), deadline_s=5, environ={}
            ) as session:
                group = session.communicator(0)
                group.barrier(deadline_s=5)
                return b"".join(group.all_gather(b"%d" % process, deadline_s=5))
        except Disagreement as no:
            return no.report

    with ThreadPoolExecutor(len(programs)) as pool:
        return list(pool.map(rank, range(len(programs))))


def step(elements: int = 8) -> Program:
    return program(all_gather(elements, dimension=0), groups=[[range(8)]])


def test_a_world_of_threads():
    """Eight threads of one process come up over mailboxes, again and again."""
    world = Loopback(8)
    for _ in range(3):
        assert muster_threads(world, [step()] * 8) == [b"01234567"] * 8


def test_a_world_of_threads_that_differs():
    """Every one of them hears who differs."""
    reports = muster_threads(Loopback(8), [step(9 if n == 3 else 8) for n in range(8)])
    found = [[(f.code, f.ranks) for f in report.findings] for report in reports]
    assert found == [[("RM302", (3,))]] * 8


def test_a_world_of_threads_in_which_a_file_is_missing():
    """Nobody has an address there, and so none that could be wrong."""
    reports = muster_threads(Loopback(2), ["no-such-file.json", program(groups=[[range(2)]])])
    assert [[f.code for f in report.findings] for report in reports] == [["RM701", "RM312"]] * 2


WATCHED = """
import time
from rankmuster.transport.base import Deadline
from rankmuster.transport.watchdog import watchdog
with watchdog(Deadline.after(60), "never"):
    pass
with watchdog(Deadline.after(0.2), "it is late"):
    time.sleep(60)
"""
BELOW = """
import os, sys
from rankmuster.launch.below import run_below
sys.exit(run_below(sys.argv[1:], os.environ))
"""


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    )


def test_a_watchdog_ends_what_cannot_be_interrupted():
    """Past its deadline the process is killed, with a line that says why."""
    with python(WATCHED) as process:
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (-signal.SIGKILL, "rankmuster: it is late\n")


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -TERM $$", 143)])
def test_a_command_below_passes_its_code_on(command, code):
    """As a shell counts it."""
    with python(BELOW, "sh", "-c", command) as process:
        process.communicate(timeout=20)
    assert process.returncode == code


def test_a_command_below_gets_our_signals():
    """Who signals us means it."""
    script = "trap 'echo heard; exit 5' USR1; echo ready; while :; do sleep 0.01; done"
    with python(BELOW, "sh", "-c", script) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=20)
    assert (out, process.returncode) == ("heard\n", 5)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it there")
def test_a_command_below_dies_with_us():
    """Nothing is left of a process that was killed: nobody holds its output open."""
    with python(BELOW, "sh", "-c", "echo ready; exec sleep 60") as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.communicate(timeout=5) == ("", "")
