"""`up` and sessions run over the store that torchrun's agent keeps."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from launched import AGREE, UP, launch, write

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch"),
]
JSON = ("--format", "json", "-q")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4")


def torchrun(*arguments: str):
    return launch(*TORCHRUN, "-m", *arguments)


def test_the_odd_program_is_named(tmp_path):
    """The report is that of every other way to come up, and each process says why it ends."""
    done = torchrun("rankmuster", "up", "--format", "json", "--program", write(tmp_path, odd=2))
    assert (done.code, done.findings) == (1, [("RM302", "2")])
    assert done.err.count("differ: group 0: device 2 posts all_gather of 256 f32") == 3


def test_the_command_trains_over_gloo(tmp_path):
    """What each process becomes finds the job's own root port free, and torch as it expects it."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor([float(dist.get_rank())])\n"
        "dist.all_reduce(total)\n"
        "print(int(total), flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    command = ("-q", "--program", write(tmp_path), "--", sys.executable, str(script))
    done = torchrun("rankmuster", "up", *command)
    assert (done.code, done.out.count("6")) == (0, 4), done
    assert AGREE in done.err


def test_a_session_beside_a_process_group(tmp_path):
    """Inside a job that uses gloo, a muster after another, and groups that exchange bytes."""
    script = tmp_path / "musters.py"
    script.write_text(
        "import sys, torch.distributed as dist, rankmuster as rm\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(3):\n"
        "    with rm.muster(sys.argv[1]) as session:\n"
        "        group = session.communicator(0)\n"
        "        group.barrier()\n"
        "        print(b''.join(group.all_gather(b'%d' % dist.get_rank())).decode(), flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    program = write(tmp_path).replace("{rank}", "0")
    done = launch(*TORCHRUN, str(script), program)
    assert (done.code, done.out.count("0123")) == (0, 12), done


def test_a_command_may_muster_again(tmp_path):
    """Without a word about launchers, and over other keys than the first; it prints one report."""
    program = write(tmp_path)
    done = torchrun(
        *("rankmuster", "up", "-q", "--program", program),
        *("--", *UP, *JSON, "--program", program),
    )
    assert (done.code, done.report["verdict"]) == (0, "agree"), done
