"""`up` under a real `srun`: a Slurm of one node, started for these tests and ended with them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launched import AGREE, UP, Done, launch, write

TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
SBIN = "/usr/sbin"  # where the daemons are, and not every user looks
MISSING = [tool for tool in TOOLS if not shutil.which(tool, path=f"{os.environ['PATH']}:{SBIN}")]

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd starts tasks as root only"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs slurm-wlm and munge: no {MISSING}"),
]
needs_mpi = pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="needs mpi4py")
START_S = 10.0
CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.fixture(scope="module")
def srun(tmp_path_factory) -> Iterator[Callable[..., Done]]:
    """Run a command as so many tasks; the daemons' files are in a folder of their own."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    conf, key = folder / "slurm.conf", folder / "munge.key"
    conf.write_text(CONF.format(host=socket.gethostname(), folder=folder, ports=free_ports(2)))
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    paths = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = [f"--{name}={folder}/munge.{end}" for name, end in paths.items()]
    daemons = (
        ["munged", "--foreground", "--force", f"--key-file={key}", *munge],
        ["slurmctld", "-D", "-f", str(conf)],
        ["slurmd", "-D", "-f", str(conf)],
    )
    running = [start(*daemon) for daemon in daemons]
    try:
        wait_for_node(conf, running)

        def run(*command: str, n: int = 4, mpi: str = "none", **more: str) -> Done:
            where = {"SLURM_CONF": str(conf), "XDG_STATE_HOME": str(folder)}
            return launch("srun", f"-n{n}", f"--mpi={mpi}", *command, **where, **more)

        yield run
    finally:
        for daemon in reversed(running):
            daemon.terminate()
            daemon.wait(10)


def start(*command: str) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    path = f"{os.environ['PATH']}:{SBIN}"
    return subprocess.Popen(command, env={**os.environ, "PATH": path}, **quiet)


def free_ports(count: int) -> list[int]:
    found = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


def wait_for_node(conf: Path, daemons: list[subprocess.Popen[bytes]]) -> None:
    """Until the node takes tasks. Skips where a daemon does not run here."""
    environ = {**os.environ, "SLURM_CONF": str(conf)}
    until = time.monotonic() + START_S
    while time.monotonic() < until and all(daemon.poll() is None for daemon in daemons):
        said = subprocess.run(
            ["sinfo", "-h", "-o%t"], env=environ, capture_output=True, check=False
        )
        if said.stdout.strip() == b"idle":
            return
        time.sleep(0.2)
    logs = [log.read_text()[-500:] for log in sorted(conf.parent.glob("*.log"))]
    pytest.skip(f"no Slurm can run here: {logs}")


def test_tasks_find_each_other_and_leave_no_key(srun, tmp_path):
    """Over TCP, with a secret that task 0 leaves for the others and removes."""
    command = ("sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE; ls $XDG_STATE_HOME/rankmuster")
    done = srun(*UP, "-q", "--engine", "tcp", "--program", write(tmp_path), "--", *command)
    assert (done.code, sorted(done.out.split("\n"))) == (0, ["", *(f"{n} {n} 4" for n in range(4))])
    assert AGREE in done.err


def test_two_jobs_at_once_come_up_side_by_side(srun, tmp_path):
    """On one node, each with its own root and key."""
    how = (*UP, "--format", "json", "-q", "--engine", "tcp", "--program", write(tmp_path))
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: srun(*how), range(2)))
    assert [(done.code, done.report["verdict"]) for done in runs] == [(0, "agree")] * 2, runs


@needs_mpi
def test_pmi2_leads_to_mpi(srun, tmp_path):
    """Where srun offers it, nobody has to say --engine, nor a secret."""
    done = srun(*UP, "--format", "json", "--program", write(tmp_path), mpi="pmi2")
    assert (done.code, done.report["verdict"]) == (0, "agree"), done
    assert "listens" not in done.err


@needs_mpi
def test_an_mpi_that_srun_did_not_start_is_refused(srun, tmp_path):
    """Each task would be a world of its own, and four worlds of one agree."""
    done = srun(*UP, "--engine", "mpi", "--program", write(tmp_path))
    assert done.code == 2
    assert done.err.count("the MPI size says 1, SLURM_STEP_NUM_TASKS says 4") == 4, done
