"""`rankmuster up` as people run it: exit codes, one report, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = (sys.executable, "-m", "rankmuster", "up", "-q")


def write(folder: Path, name: str, *, elements: int = 512, size: int = 4) -> str:
    path = folder / name
    everybody = list(range(size))
    path.write_text(
        json.dumps(
            {
                "format": "rankmuster.program/1",
                "world_size": size,
                "replica_groups": [[everybody]],
                "ops": [
                    {
                        "kind": "all_gather",
                        "group": 0,
                        "elements": elements,
                        "dtype": "f32",
                        "dimension": 0,
                        "source": "train.py:7",
                    }
                ],
            }
        )
    )
    return str(path)


def up(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*RUN, *arguments], capture_output=True, text=True, timeout=20, check=False, **more
    )
    assert "Traceback" not in done.stderr
    return done


def test_one_program_for_all_agrees(tmp_path):
    """The parent prints one report and leaves with its exit code."""
    done = up("-n", "4", "--format", "json", "--program", write(tmp_path, "p.json"))
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["basis"]) == (0, "agree", "compared")
    assert list(report["timings"]) == [
        *("read", "census", "bootstrap", "barrier", "closing", "total")
    ]


def test_the_odd_program_is_named_in_text(tmp_path):
    """One process with another program is named with op, field, values and source line."""
    for number in range(4):
        write(tmp_path, f"{number}.json", elements=256 if number == 2 else 512)
    done = up("-n", "4", "--program", str(tmp_path / "{rank}.json"))
    assert done.returncode == 1
    assert done.stdout.startswith("differ: ")
    for word in ("RM302", "device 2", "256", "512", "train.py:7"):
        assert word in done.stdout


def test_a_program_from_standard_input(tmp_path):
    """The parent reads it once for all processes."""
    text = Path(write(tmp_path, "p.json")).read_text()
    done = up("-n", "2", "--world", "4", "--program", "-", input=text)
    assert (done.returncode, done.stdout[:7]) == (0, "agree: ")


def test_a_program_from_a_pipe(tmp_path):
    """So it is with `--program <(make_program)`: what one process reads is gone for the others."""
    text = Path(write(tmp_path, "p.json")).read_bytes()
    read_end, write_end = os.pipe()
    os.write(write_end, text)
    os.close(write_end)
    done = up("-n", "4", "--program", f"/dev/fd/{read_end}", pass_fds=[read_end])
    os.close(read_end)
    assert (done.returncode, done.stdout[:7]) == (0, "agree: ")


def by_hand(tmp_path: Path, program: str, *more: str) -> list[tuple[int, str, str]]:
    """Exit code and both streams of two processes, each told all on its command line."""
    secret = tmp_path / "secret"
    secret.write_text("a" * 32)
    secret.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        root = f"127.0.0.1:{free.getsockname()[1]}"
    alike = ("--root", root, "--secret-file", str(secret), "--program", program)
    started = [
        subprocess.Popen(
            [*RUN, "--process", number, "--processes", "2", "--deadline", "15", *alike, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in "01"
    ]
    said = [process.communicate(timeout=20) for process in started]
    return [(each.returncode, *streams) for each, streams in zip(started, said, strict=True)]


def test_processes_started_by_hand(tmp_path):
    """Number, count, root and secret on the command line are all that a process needs."""
    root, other = by_hand(tmp_path, write(tmp_path, "p.json", size=2))
    assert (root[0], other) == (0, (0, "", ""))
    assert root[1].startswith("agree: 2 programs for 2 devices")


def test_a_quiet_process_still_says_why_it_ends(tmp_path):
    """Beside the root, whose report it is, each that fails has one line for its own log."""
    for number in range(2):
        write(tmp_path, f"{number}.json", size=2, elements=2 + number)
    root, other = by_hand(tmp_path, str(tmp_path / "{rank}.json"))
    assert (root[0], root[1].startswith("differ: "), root[2]) == (1, True, "")
    assert other[:2] == (1, "")
    assert re.fullmatch(r"rankmuster: differ: group 0: device 0 posts .* \(.*\)\n", other[2])


def test_a_quiet_command_that_cannot_run_is_told(tmp_path):
    """The exit code alone would not say that it was found, and no program."""
    command = tmp_path / "command"
    command.write_bytes(b"\x7fELF?")
    command.chmod(0o755)
    done = by_hand(tmp_path, write(tmp_path, "p.json", size=2), "--", str(command))
    line = f"rankmuster: cannot run '{command}': Exec format error\n"
    assert [(code, err.endswith(line)) for code, _, err in done] == [(126, True)] * 2


def test_one_file_of_many_is_asked_about(tmp_path):
    """Whoever forgot {rank} in the pattern brings one process's program to all."""
    program = write(tmp_path, "rank0.json")
    run = (*RUN[:-1], "-n", "4", "--program", program)
    done = subprocess.run(run, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout[:6]) == (0, "agree:")
    line = f"rankmuster: {program} is taken as every process's program; its name looks like"
    assert done.stderr.startswith(f"{line} process 0's\n")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["-n", "0"], 2, "-n"),
        (["-n", "1000000"], 2, "-n"),
        (["-n", "8", "--world", "4"], 2, "not a world of 4"),
        (["-n", "3", "--world", "4"], 2, "not a world of 4"),
        (["-n", "4", "--devices-per-process", "1,2"], 2, "names 2 processes"),
        (["-n", "4", "--deadline", "0"], 2, "--deadline"),
        (["-n", "4", "--deadline", "nan"], 2, "--deadline"),
        (["-n", "4", "--", "no-such-command"], 2, "no-such-command"),
        (["-n", "4", "--engine", "mpi"], 2, "--engine is for a launcher"),
        (["-n", "4", "--process", "0"], 2, "--process is for a launcher"),
        (["-n", "4", "--processes", "4"], 2, "--processes is for a launcher"),
        ([], 2, "say -n N"),
        (["-n", "8"], 1, "RM003"),
        (["-n", "2"], 1, "RM002"),
    ],
)
def test_wrong_counts_are_told_plainly(tmp_path, arguments, code, word):
    """What does not fit is said, with the exit code that belongs to it."""
    done = up("--program", write(tmp_path, "p.json"), *arguments)
    assert (done.returncode, word in done.stdout + done.stderr) == (code, True), done


@pytest.mark.parametrize("text", ["", "junk", '{"format": "rankmuster.program/1", "ops": ['])
def test_a_program_that_is_none_is_named(tmp_path, text):
    """One process's broken file is a finding with its device, and exit code 2."""
    for number in range(4):
        write(tmp_path, f"{number}.json")
    (tmp_path / "2.json").write_text(text)
    done = up("-n", "4", "--format", "json", "--program", str(tmp_path / "{rank}.json"))
    (found,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, found["code"], found["ranks"]) == (2, "RM701", "2")


def test_each_process_becomes_the_command(tmp_path):
    """After go the command runs with the usual variables, and without the secret."""
    program, report = write(tmp_path, "p.json"), tmp_path / "report.txt"
    script = (
        "import os, sys; e = os.environ; names = 'RANK', 'LOCAL_RANK', 'WORLD_SIZE';"
        "line = ' '.join(e[name] for name in (*names, 'RANKMUSTER_DEVICES'));"
        "os.write(1, (line + '\\n').encode());"  # at once: both write to one pipe
        "sys.exit(any('SECRET' in k and len(v) > 4 for k, v in e.items()))"
    )
    done = up(
        *("-n", "2", "--world", "4", "--program", program, "--report", str(report)),
        *("--", sys.executable, "-c", script),
    )
    assert done.returncode == 0
    assert sorted(done.stdout.split("\n")) == ["", "0 0 2 0-1", "1 1 2 2-3"]
    assert report.read_text().startswith("agree: ")


def test_the_commands_exit_code_is_passed_on(tmp_path):
    """The first process that fails decides."""
    program = write(tmp_path, "p.json")
    done = up("-n", "4", "--program", program, "--", "sh", "-c", "exit $((RANK * 3))")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("agree: ")


def test_no_command_starts_without_go(tmp_path):
    """Where programs differ, nothing runs."""
    for number in range(4):
        write(tmp_path, f"{number}.json", elements=256 if number == 2 else 512)
    program = str(tmp_path / "{rank}.json")
    done = up("-n", "4", "--program", program, "--", "sh", "-c", "echo started")
    assert (done.returncode, "started" in done.stdout) == (1, False)


def test_a_command_may_muster_again(tmp_path):
    """What we become finds its world in its turn, as any launched process does."""
    program = write(tmp_path, "p.json")
    again = (*RUN, "--format", "json", "--program", program)
    done = up("-n", "2", "--world", "4", "--program", program, "--", *again)
    assert done.returncode == 0
    assert json.loads(done.stdout)["world"]["source"] == "launcher"


def waiting_world(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A world that waits for process 1, which waits for the writer of a pipe."""
    for number in (0, 2, 3):
        write(folder, f"{number}.json")
    os.mkfifo(folder / "1.json")
    return start("-n", "4", "--program", str(folder / "{rank}.json"), *more)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_children(parent: subprocess.Popen[str], count: int) -> list[int]:
    until = time.monotonic() + 10
    while len(children(parent.pid)) < count and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    return children(parent.pid)


def all_gone(pids: list[int], within_s: float) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not any(is_running(pid) for pid in pids):
            return True
        time.sleep(0.01)
    return False


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")


@needs_proc
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
@pytest.mark.parametrize("running", ["muster", "command"])
def test_children_end_with_their_parent(tmp_path, number, code, running):
    """Ctrl-C, a signal, or the parent's own death: no process is left, at any time."""
    if running == "muster":
        parent = waiting_world(tmp_path)
    else:
        parent = start("-n", "4", "--program", write(tmp_path, "p.json"), "--", "sleep", "60")
    with parent:
        pids = wait_for_children(parent, 4)
        assert len(pids) == 4
        sent = time.monotonic()
        parent.send_signal(number)
        out, err = parent.communicate(timeout=10)
        assert parent.returncode == code
        assert all_gone(pids, 2.0)
        assert time.monotonic() - sent < 2.0
        assert "Traceback" not in out + err


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_command_started_ends_with_it(tmp_path, number):
    """A signal to the parent alone ends the commands, and the processes below them."""
    below = "echo $$ >> pids; sleep 60 & echo $! >> pids; wait"
    program = write(tmp_path, "p.json")
    command = [*RUN, "-n", "4", "--program", program, "--", "sh", "-c", below]
    noted = tmp_path / "pids"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path) as parent:
        until = time.monotonic() + 10
        while not noted.exists() or len(noted.read_text().split()) < 8:
            assert time.monotonic() < until
            time.sleep(0.02)
        parent.send_signal(number)
        assert parent.wait(10) == 128 + number
    assert all_gone(list(map(int, noted.read_text().split())), 2.0)


@needs_proc
def test_a_killed_root_is_reported_by_the_parent(tmp_path):
    """Process 0 leads and may die: then the parent says so."""
    with waiting_world(tmp_path, "--format", "json") as parent:
        pids = wait_for_children(parent, 4)
        os.kill(pids[0], signal.SIGKILL)
        out, _ = parent.communicate(timeout=10)
        report = json.loads(out)
        found = [(each["code"], each["ranks"]) for each in report["findings"]]
        assert (parent.returncode, report["verdict"], found) == (1, "undecided", [("RM602", "0")])
        assert all_gone(pids, 2.0)


@needs_proc
def test_a_process_that_never_reads_is_named_at_the_deadline(tmp_path):
    """Reading and never having come are different answers."""
    with waiting_world(tmp_path, "--format", "json", "--deadline", "1") as parent:
        pids = wait_for_children(parent, 4)
        out, _ = parent.communicate(timeout=10)
        report = json.loads(out)
        found = [(each["code"], each["ranks"]) for each in report["findings"]]
        assert (parent.returncode, report["verdict"], found) == (1, "undecided", [("RM603", "1")])
        assert report["world"]["absent"] == "1"
        assert all_gone(pids, 2.0)


@needs_proc
def test_a_signal_asks_any_process_for_whom_it_waits(tmp_path):
    """SIGUSR1 prints who is missing: at the root of the world, elsewhere of the process."""
    asked = {
        0: "process 0 of 4, census: waiting for device 1 (reading the program); ",
        1: "process 1 of 4, read: waiting for the root at 127.0.0.1:",
        3: "process 3 of 4, census: waiting for the root at 127.0.0.1:",
    }
    with waiting_world(tmp_path) as parent:
        pids = wait_for_children(parent, 4)
        os.set_blocking(parent.stderr.fileno(), False)
        said, until = "", time.monotonic() + 20
        while any(line not in said for line in asked.values()) and time.monotonic() < until:
            for number in asked:
                if catches(pids[number], signal.SIGUSR1):
                    os.kill(pids[number], signal.SIGUSR1)
            time.sleep(0.05)
            said += parent.stderr.read() or ""
        parent.send_signal(signal.SIGINT)
        parent.wait(10)
    assert [line for line in asked.values() if line not in said] == []


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_a_file_of_another_process_is_refused(tmp_path):
    """The rank in a file is its process: whoever else reads it says so (RM006), and nobody goes."""
    path = Path(write(tmp_path, "p.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rank": 1}))
    done = up("-n", "2", "--devices-per-process", "2", "--format", "json", "--program", str(path))
    report = json.loads(done.stdout)
    told = [(found["code"], found["ranks"]) for found in report["findings"]]
    assert (done.returncode, report["verdict"], told) == (1, "invalid", [("RM006", "0-1")])


def test_ranks_are_processes_as_check_has_them(tmp_path):
    """Two files with ranks 0 and 1 for two processes of two devices each agree."""
    for rank in range(2):
        path = Path(write(tmp_path, f"{rank}.json"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rank": rank}))
    done = up("-n", "2", "--devices-per-process", "2", "--program", str(tmp_path / "{rank}.json"))
    assert done.returncode == 0


def test_a_gap_in_the_files_is_an_absence_as_check_has_it(tmp_path):
    """Nothing is started for a world of which a program is missing; the report names whose."""
    for rank in (0, 1, 3):
        write(tmp_path, f"{rank}.json")
    pattern = str(tmp_path / "{rank}.json")
    done = up("-n", "4", "--format", "json", "--program", pattern)
    checked = subprocess.run(
        [*RUN[:3], "check", "--format", "json", pattern], capture_output=True, check=False
    )
    ours, theirs = json.loads(done.stdout), json.loads(checked.stdout)
    assert (done.returncode, ours["verdict"]) == (checked.returncode, theirs["verdict"])
    assert ours["findings"] == theirs["findings"]
    assert ours["world"]["absent"] == "2"
