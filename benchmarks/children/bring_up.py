"""How long N processes of this machine take to come up, imports done: `bring_up.py WHO N`.

Prints seconds from the moment all may start to the end of the last one. Forked after the imports,
but for MPI, which brings its own launcher: there all start at an agreed time.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from select import select
from time import monotonic, sleep
from types import FunctionType
from typing import Any

LEAD_S = 0.05  # from the last process's word that it is at the gate: it must be asleep there
AT_GATE_S = 60.0
STAY_S = 0.5  # once up: the end of a process is not part of its start, and costs as much
COMMUNICATORS = 256
# torch's store asks for the name of every client's address; with a slow name server it then waits
# for seconds, which says nothing of torch.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
Rank = Callable[[int, int], float | None]  # its own figure, or None: the time it ends


def ours(size: int, held: Any, figure: Callable[[Any], float | None] = lambda _: None) -> float:
    """A world of our own that musters *held* in every process."""
    from rankmuster.formats import json_program  # noqa: F401 - what the root may need
    from rankmuster.launch.local import LocalWorld, attach
    from rankmuster.session import join
    from rankmuster.transport.base import Deadline

    gate = Gate()

    def main(_: int, result: int) -> int:
        place = attach(os.environ)
        gate.wait()
        session = join(place, lambda: held, Deadline.after(60), reads=False)
        end = figure(session) or monotonic()
        os.write(result, f"{end!r}\n".encode())
        sleep(STAY_S)
        session.close()
        return 0

    with LocalWorld(main, [range(n, n + 1) for n in range(size)], size) as world:
        start = gate.open(size)
        ends = []
        while (got := world.family.next_result(start + 60)) is not None:
            ends.append(float(got[1]))
        world.family.wait()
    if len(ends) != size:
        raise SystemExit(f"{len(ends)} of {size} processes came up")
    return max(ends) if max(ends) < start else max(ends) - start


class Gate:
    """Where forked processes wait until all are there; what they did before is not measured."""

    def __init__(self) -> None:
        self._there, self._word = os.pipe()
        self._wait, self._go = os.pipe()

    def wait(self) -> None:
        """Be at the gate until it opens, in a forked process."""
        os.close(self._go)
        touch()
        os.write(self._word, b".")
        os.read(self._wait, 1)

    def open(self, size: int) -> float:
        """Let so many processes go once they are all there; when that was."""
        os.close(self._word)
        there = 0
        while there < size:
            if not select([self._there], [], [], AT_GATE_S)[0]:
                raise SystemExit(f"{there} of {size} processes came to the gate")
            there += len(os.read(self._there, size)) or size
        sleep(LEAD_S)
        start = monotonic()
        os.close(self._go)
        return start


def touch() -> None:
    """Write to every page of objects that a fork shares, as a process of its own would have.

    Of code only its count of users is written; it is no object that a collection knows. Where the
    launcher had frozen them they are frozen again: else the first collection here would
    walk through all of them, and be measured.
    """
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    for each in gc.get_objects():
        if type(each) is FunctionType:
            each.__code__  # noqa: B018 - to look at it is to count one more user, for a moment
    if frozen:
        gc.freeze()


def everybody(size: int) -> Any:
    """A program with one communicator, over all."""
    from rankmuster.testing.build import all_gather, program

    return program(all_gather(512, group=0, dimension=0), groups=[[list(range(size))]])


def rankmuster(size: int) -> float:
    """A world with its verdict."""
    return ours(size, everybody(size))


def unchecked(size: int) -> float:
    """The same messages, but every digest, ledger and check of the program left out."""
    from rankmuster import bringup, session
    from rankmuster.protocol.frames import NO_SIGNATURE

    bringup.communicator_digest = lambda *_: NO_SIGNATURE
    session.content_digest = lambda _: b"-" * 16
    session.ledger = lambda *_: 0
    session.verify = lambda *_: ()
    return ours(size, everybody(size))


def communicators(size: int) -> float:
    """256 communicators, formed and verified: the time of that phase in the slowest process."""
    from rankmuster.testing.build import all_gather, program

    lists = member_lists(size)
    ops = [all_gather(512, group=n, dimension=0) for n in range(len(lists))]
    held = program(*ops, groups=[[members] for members in lists])
    return ours(size, held, lambda session: session.report.timings["bootstrap"])


def member_lists(size: int) -> list[list[int]]:
    """Different subsets of two to four ranks, the same for all contestants."""
    draw = random.Random(7)
    lists: dict[tuple[int, ...], None] = {}
    while len(lists) < COMMUNICATORS:
        lists[tuple(sorted(draw.sample(range(size), draw.choice((2, 3, 4)))))] = None
    return [list(members) for members in lists]


def forked(size: int, rank: Rank) -> float:
    """*rank* in so many forked processes, from an open gate to the end of the last."""
    gate = Gate()
    read, write = os.pipe()
    children = []
    for number in range(size):
        pid = os.fork()
        if pid == 0:
            gate.wait()
            end = rank(number, size) or monotonic()
            os.write(write, f"{end!r}\n".encode())
            sleep(STAY_S)
            os._exit(0)
        children.append(pid)
    os.close(write)
    start = gate.open(size)
    said = b""
    while chunk := os.read(read, 1 << 16):
        said += chunk
    for pid in children:
        os.waitpid(pid, 0)
    ends = [float(line) for line in said.split()]
    if len(ends) != size:
        raise SystemExit(f"{len(ends)} of {size} processes came up")
    return max(ends) if max(ends) < start else max(ends) - start


def gloo(size: int) -> float:
    """By torch's gloo over a file, its quickest way here."""
    from torch import distributed

    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{Path(folder) / 'meeting'}"

        def rank(number: int, of: int) -> None:
            distributed.init_process_group("gloo", meeting, rank=number, world_size=of)

        return forked(size, rank)


def new_group(size: int) -> float:
    """By torch's new_group, once for each of the same member lists."""
    from torch import distributed

    lists = member_lists(size)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{Path(folder) / 'meeting'}"

        def rank(number: int, of: int) -> float:
            distributed.init_process_group("gloo", meeting, rank=number, world_size=of)
            distributed.barrier()
            start = monotonic()
            for members in lists:
                distributed.new_group(members)
            return monotonic() - start

        return forked(size, rank)


def store(size: int) -> float:
    """By torch's TCPStore, served before the start, and one barrier on it: no group, no verdict."""
    from torch.distributed import TCPStore

    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def rank(_: int, of: int) -> None:
        met = TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False)
        if met.add("arrived", 1) == of:
            met.set("all", "")
        met.wait(["all"])

    return forked(size, rank)


def jax(size: int) -> float:
    """The coordination service that jax programs start with."""
    from jax import distributed

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"

    def rank(number: int, of: int) -> None:
        distributed.initialize(address, of, number)

    return forked(size, rank)


def mpi(size: int, part: str = "") -> float:
    """By MPICH's Init and a barrier; or Create_group for each of the member lists."""
    import mpi4py  # noqa: F401 - to be missed here, and not in each of many

    launcher = Path(sys.prefix) / "bin" / "mpiexec"
    start = monotonic() + 2.0 + 0.1 * size
    command = [str(launcher), "-n", str(size), sys.executable, __file__, "mpi-rank", str(size)]
    done = subprocess.run(
        [*command, repr(start), part], check=True, capture_output=True, text=True, timeout=300
    )
    ends = [float(line) for line in done.stdout.split()]
    return max(ends) if part else max(ends) - start


def mpi_groups(size: int) -> float:
    """By MPI's Create_group, once for each of the same member lists."""
    return mpi(size, "groups")


def mpi_rank(size: int, start: float, part: str) -> None:
    """One process under mpiexec."""
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    sleep(max(0.0, start - monotonic()))
    MPI.Init()
    world = MPI.COMM_WORLD
    world.Barrier()
    end = monotonic()
    if part:
        start = monotonic()
        for number, members in enumerate(member_lists(size)):
            if world.rank in members:
                world.Create_group(world.group.Incl(members), number)
        end = monotonic() - start
    sys.stdout.write(f"{end!r}\n")
    sys.stdout.flush()
    world.Barrier()
    MPI.Finalize()


CONTESTANTS = {
    each.__name__: each
    for each in (rankmuster, unchecked, communicators, gloo, new_group, store, jax, mpi, mpi_groups)
}

if __name__ == "__main__":
    if sys.argv[1] == "mpi-rank":
        mpi_rank(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
    else:
        print(CONTESTANTS[sys.argv[1]](int(sys.argv[2])))
