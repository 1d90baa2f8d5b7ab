"""The launcher of `up -n`: N processes on this machine that find each other over loopback.

A child finds its place in RANKMUSTER_ variables; what must not be read by others (the secret) and
what cannot be written down (the root's listening socket) comes as inherited descriptors. The same
way leads from a muster to the command that follows it, so that the command may muster again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from rankmuster.errors import DeadlineExceeded
from rankmuster.launch.base import BrokenLaunch, Launcher, Place
from rankmuster.launch.fork import Child, Family
from rankmuster.launch.names import (
    DEATHS_FD,
    DEVICES,
    EPOCH,
    JOB,
    LAUNCHER,
    LIFELINE_FD,
    LISTENER_FD,
    PROCESS,
    PROCESSES,
    ROOT,
    SECRET_FD,
    WORLD_SIZE,
)
from rankmuster.launch.secret import SECRET_BYTES, piped_secret
from rankmuster.ranks import fold, unfold
from rankmuster.transport.doors import BACKLOG


class LocalLauncher(Launcher):
    """`rankmuster up -n N`, and `spawn`."""

    name: ClassVar[str] = "local"
    PROCESS, PROCESSES, LOCAL_PROCESS = PROCESS, PROCESSES, PROCESS

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """Whether our parent was one of ours."""
        return environ.get(LAUNCHER) == cls.name

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """Where process 0 listens."""
        return environ[ROOT]


@dataclass(slots=True)
class _Held:
    """What this process inherited for one job, kept for its second and third muster."""

    secret: bytes
    listener: socket.socket | None
    next_epoch: int


def attach(environ: Mapping[str, str]) -> Place:
    """This process's place for its next muster: the secret is read once, the epoch counts up.

    A muster closes what its place holds: the listening socket is a duplicate of the inherited one.
    Raises `BrokenLaunch`.
    """
    try:
        return _place(environ)
    except (KeyError, ValueError) as error:
        ours = {name: value for name, value in environ.items() if name.startswith("RANKMUSTER_")}
        raise BrokenLaunch(
            f"the variables of a local launch are not as it left them: {error} in {ours}",
            fix="remove them all, or start the job again",
        ) from error


def _place(environ: Mapping[str, str]) -> Place:
    held = _held(environ)
    held.next_epoch += 1
    return Place(
        launcher=LocalLauncher.name,
        process=LocalLauncher.process(environ),
        processes=LocalLauncher.processes(environ),
        devices=unfold(environ[DEVICES]),
        world_size=int(environ[WORLD_SIZE]),
        root=LocalLauncher.root(environ),
        root_listens=True,
        job=bytes.fromhex(environ[JOB]),
        epoch=held.next_epoch - 1,
        secret=held.secret,
        listener=held.listener and held.listener.dup(),
        lifeline=_descriptor(environ, LIFELINE_FD),
        deaths=_descriptor(environ, DEATHS_FD),
    )


def _held(environ: Mapping[str, str]) -> _Held:
    return _inherited(
        environ[JOB], environ[SECRET_FD], environ.get(LISTENER_FD), int(environ[EPOCH])
    )


@functools.cache
def _inherited(job: str, secret_fd: str, listener_fd: str | None, epoch: int) -> _Held:
    del job  # part of the key: descriptors are numbered anew in every launch
    secret = piped_secret(int(secret_fd))
    if secret is None:
        raise BrokenLaunch(
            f"the secret of this launch cannot be read from descriptor {secret_fd}",
            fix="muster in the process that was launched, not in one that it starts",
        )
    listener = socket.socket(fileno=int(listener_fd)) if listener_fd else None
    return _Held(secret, listener, epoch)


def _descriptor(environ: Mapping[str, str], name: str) -> int | None:
    return int(environ[name]) if name in environ else None


class LocalWorld:
    """The parent's side: N forked processes, the root's listening socket, and the pipes between.

    A context manager; leaving it ends and reaps every process and closes everything. *main* runs
    in each child with its number and a descriptor for its result, and returns the exit code.
    `devices` says which devices each process holds.
    """

    def __init__(self, main: Child, devices: Sequence[Sequence[int]], world_size: int) -> None:
        self._main = main
        self._devices = devices
        self._world_size = world_size
        self._job = secrets.token_hex(16)
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._lifeline = self._deaths = self._secret = (-1, -1)
        self.family = Family(len(devices), self._child)
        self.root = ""
        """Where process 0 listens."""

    def __enter__(self) -> Self:
        count = len(self._devices)
        try:
            self._listener.bind(("127.0.0.1", 0))
            self._listener.listen(BACKLOG)
            self.root = f"127.0.0.1:{self._listener.getsockname()[1]}"
            self._lifeline, self._deaths, self._secret = os.pipe(), os.pipe(), os.pipe()
            # One read of each child; N * 32 bytes are within a pipe's 64 KiB up to 2048 of them.
            os.write(self._secret[1], secrets.token_bytes(SECRET_BYTES) * count)
            self.family.__enter__()
        except BaseException:
            self.__exit__()
            raise
        # The children hold these now. Were we to keep the listening socket, processes could queue
        # up at a root that has died.
        self._listener.close()
        self._lifeline = self._drop(self._lifeline, 0)
        self._deaths = self._drop(self._deaths, 0)
        self._secret = self._drop(self._secret, 0, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self.family.__exit__()
        self._close()

    def tell_death(self, number: int) -> None:
        """Tell the root that a process is gone: it may have died before it ever connected."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._deaths[1], f"{number} {fold(self._devices[number])}\n".encode())

    def _child(self, number: int, result: int) -> int:
        for descriptor in (self._lifeline[1], self._deaths[1], self._secret[1]):
            os.close(descriptor)
        os.environ |= {
            LAUNCHER: LocalLauncher.name,
            ROOT: self.root,
            PROCESS: str(number),
            PROCESSES: str(len(self._devices)),
            WORLD_SIZE: str(self._world_size),
            DEVICES: fold(self._devices[number]),
            JOB: self._job,
            EPOCH: "0",
            SECRET_FD: str(self._secret[0]),
            LIFELINE_FD: str(self._lifeline[0]),
        }
        if 0 in self._devices[number]:
            os.environ |= {
                LISTENER_FD: str(self._listener.detach()),
                DEATHS_FD: str(self._deaths[0]),
            }
        else:
            self._listener.close()
            os.close(self._deaths[0])
        return self._main(number, result)

    def _close(self) -> None:
        self._listener.close()
        self._lifeline = self._drop(self._lifeline, 0, 1)
        self._deaths = self._drop(self._deaths, 0, 1)
        self._secret = self._drop(self._secret, 0, 1)

    @staticmethod
    def _drop(pipe: tuple[int, int], *ends: int) -> tuple[int, int]:
        """The pipe without those ends, which are closed; -1 stands for a closed one."""
        for end in ends:
            if pipe[end] >= 0:
                os.close(pipe[end])
        return (-1 if 0 in ends else pipe[0], -1 if 1 in ends else pipe[1])


def spawn(
    target: Callable[[], bytes], processes: int, *, devices_each: int = 1, deadline_s: float = 60.0
) -> list[tuple[int, bytes]]:
    """Run *target* in so many processes of one local world; each one's exit code and result.

    In each of them `muster` finds its place. Raises `DeadlineExceeded`, and ends them, when they
    take longer than *deadline_s*.
    """

    def main(_number: int, result: int) -> int:
        returned = target()
        while returned:
            returned = returned[os.write(result, returned) :]
        return 0

    size = processes * devices_each
    devices = [range(first, first + devices_each) for first in range(0, size, devices_each)]
    results = dict.fromkeys(range(processes), b"")
    until = time.monotonic() + deadline_s
    with LocalWorld(main, devices, size) as world:
        while got := world.family.next_result(until):
            number, results[number] = got
            if not got[1]:
                world.tell_death(number)
        running = [n for n in results if world.family.exited(n, until - time.monotonic()) is None]
        if running:
            raise DeadlineExceeded(
                f"processes {fold(running)} of {processes} still ran after {deadline_s:g} s"
            )
        return list(zip(world.family.wait(), results.values(), strict=True))


def listener_for_command(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a command that we become finds the root's socket, where we hold it."""
    held = _held(environ)
    if held.listener is None:
        return {}
    held.listener.set_inheritable(True)
    return {LISTENER_FD: environ[LISTENER_FD]}
