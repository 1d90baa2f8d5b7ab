"""MPI keeps the contract of all transports, and `up` runs over it under mpiexec."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launched import AGREE, BIN, UP, launch, write

from rankmuster.testing import contract

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(
        not (importlib.util.find_spec("mpi4py") and (BIN / "mpiexec").exists()),
        reason="needs mpi4py, and the mpich of PyPI",
    ),
]
HERE = Path(__file__).parent
JSON = ("--format", "json", "-q")


def mpiexec(*command: str, n: int = 4, **more: str):
    return launch(str(BIN / "mpiexec"), "-n", str(n), *command, **more)


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def test_mpi_keeps_the_contract():
    """Every check of the shipped contract holds between two processes."""
    done = mpiexec(sys.executable, str(HERE / "mpi_contract.py"), n=2)
    assert (done.code, done.out.split()) == (0, [check.__name__ for check in contract.CHECKS]), done


def test_one_report_of_a_world_that_agrees(tmp_path):
    """Without a word about launchers, processes of mpiexec find each other over MPI."""
    done = mpiexec(*UP, *JSON, "--program", write(tmp_path))
    assert (done.code, done.report["verdict"], done.report["basis"]) == (0, "agree", "compared")


def test_two_runs_at_once_come_up_side_by_side_over_tcp(tmp_path):
    """All that mpiexec sets is alike in both: it is its proxies that are told apart."""
    program = write(tmp_path)

    def run(_: int):
        how = ("--engine", "tcp", "--deadline", "20", "--format", "json")
        return mpiexec(*UP, *how, "--program", program)

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(run, range(2)))
    assert [(done.code, done.report["verdict"]) for done in runs] == [(0, "agree")] * 2, runs
    listens = {done.err.partition(" as mpich")[0] for done in runs}
    assert len(listens) == 2


def test_the_odd_program_is_named(tmp_path):
    """The report is that of every other way to come up, and each process says why it ends."""
    done = mpiexec(*UP, "--format", "json", "--program", write(tmp_path, odd=2))
    assert (done.code, done.findings) == (1, [("RM302", "2")])
    assert done.err.count("differ: group 0: device 2 posts all_gather of 256 f32") == 3


def test_processes_may_hold_several_devices(tmp_path):
    """--devices-per-process is all that has to be said."""
    program = write(tmp_path).replace("{rank}", "0")
    done = mpiexec(*UP, *JSON, "--devices-per-process", "2", "--program", program, n=2)
    assert [row["ranks"] for row in done.report["programs"]] == ["0-1", "2-3"]


def test_no_process_listens_or_needs_a_secret(tmp_path):
    """While a session is open over MPI, no process has a socket that it had not before."""
    script = (
        "import os, rankmuster as rm\n"
        "from mpi4py import MPI\n"
        "def sockets():\n"
        "    folder = '/proc/self/fd/'\n"
        "    links = [os.readlink(folder + fd) for fd in os.listdir(folder)[:-1]]\n"
        "    return sum(link.startswith('socket:') for link in links)\n"
        "MPI.COMM_WORLD.allgather(0)\n"  # it opens sockets of its own when it is first used
        "before = sockets()\n"
        "with rm.muster(os.environ['PROGRAM']) as session:\n"
        "    print(f'{session.report.verdict} {sockets() - before}', flush=True)\n"
    )
    done = mpiexec(*python(script), PROGRAM=write(tmp_path).replace("{rank}", "0"))
    assert (done.code, done.out.count("agree 0")) == (0, 4), done


def test_a_command_follows(tmp_path):
    """It has the usual variables, takes its own time to end, and need not know of MPI."""
    command = ("sh", "-c", "sleep 0.$RANK; echo $RANK $LOCAL_RANK $WORLD_SIZE $RANKMUSTER_DEVICES")
    done = mpiexec(*UP, "-q", "--program", write(tmp_path), "--", *command)
    assert done.code == 0
    assert all(f"{n} {n} 4 {n}" in done.out for n in range(4)), done
    assert done.err.strip() == AGREE


def test_a_command_may_use_mpi_and_muster_again(tmp_path):
    """The next program starts MPI anew, as if nothing had been before it."""
    program = write(tmp_path)
    done = mpiexec(*UP, "-q", "--program", program, "--", *UP, *JSON, "--program", program)
    assert (done.code, done.report["verdict"], done.err.strip()) == (0, "agree", AGREE)


def test_the_commands_exit_code_is_passed_on(tmp_path):
    """What mpiexec makes of it is mpiexec's."""
    done = mpiexec(*UP, "-q", "--program", write(tmp_path), "--", "sh", "-c", "exit 3")
    assert done.code == 3


def test_a_missing_file_is_told_by_all(tmp_path):
    """A process without a program takes part, so that the others do not wait for it."""
    program = write(tmp_path)
    (tmp_path / "2.json").unlink()
    done = mpiexec(*UP, *JSON, "--program", program)
    assert (done.code, done.findings) == (2, [("RM701", "2")])


def test_who_never_comes_to_mpi_is_not_waited_for(tmp_path):
    """MPI_Init waits without end for every process; ours ends at its deadline all the same."""
    program = write(tmp_path)
    late = f'[ "$PMI_RANK" = 2 ] && sleep 60; exec "$@" --deadline 2 --program "{program}"'
    start = time.monotonic()
    done = mpiexec("sh", "-c", late, "sh", *UP)
    assert time.monotonic() - start < 8
    assert "the deadline of 2 s passed in MPI_Init" in done.err
    assert done.code != 0


def test_who_never_musters_is_named(tmp_path):
    """A process that started MPI and goes elsewhere is named in time, by the others."""
    script = (
        "import os, time, rankmuster as rm\n"
        "from mpi4py import MPI\n"
        "rank = MPI.COMM_WORLD.rank\n"
        "if rank == 2: time.sleep(60)\n"
        "try: rm.muster(os.environ['PROGRAM'], deadline_s=3)\n"
        "except rm.Disagreement as no:\n"
        "    print([(f.code, f.ranks) for f in no.report.findings], flush=True)\n"
        "time.sleep(0.5)\n"
        "if rank == 0: MPI.COMM_WORLD.Abort(5)\n"
        "time.sleep(60)\n"
    )
    start = time.monotonic()
    done = mpiexec(*python(script), PROGRAM=write(tmp_path).replace("{rank}", "0"))
    assert time.monotonic() - start < 8
    assert done.out.count("[('RM601', (2,))]") == 3, done


def test_who_reads_without_end_is_named(tmp_path):
    """A process that hangs in its file is named, and the job is ended for its sake."""
    program = write(tmp_path)
    (tmp_path / "2.json").unlink()
    os.mkfifo(tmp_path / "2.json")
    start = time.monotonic()
    done = mpiexec(*UP, *JSON, "--deadline", "2", "--program", program)
    assert time.monotonic() - start < 8
    assert (done.code, done.findings) == (1, [("RM603", "2")]), done


def test_musters_in_a_row(tmp_path):
    """Two hundred bring-ups in one process leave no file, no thread and no communicator behind."""
    script = (
        "import os, threading, rankmuster as rm\n"
        "program = rm.read(os.environ['PROGRAM'])\n"
        "def once():\n"
        "    with rm.muster(program) as session: session.communicator(0).barrier()\n"
        "    return len(os.listdir('/proc/self/fd')), threading.active_count()\n"
        "first = [once() for _ in range(10)][-1]\n"
        "last = [once() for _ in range(190)][-1]\n"
        "print(first == last)\n"
    )
    done = mpiexec(*python(script), PROGRAM=write(tmp_path).replace("{rank}", "0"))
    assert (done.code, done.out.count("True")) == (0, 4), done
