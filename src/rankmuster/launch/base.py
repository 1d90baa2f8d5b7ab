"""Where a process stands in its job, and the five questions by which a launcher is asked for it.

Variables are handed in. A launcher reads them and nothing else, unless it is asked to `share`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rankmuster.errors import MusterError
from rankmuster.finding import Finding
from rankmuster.launch.instance import this_core_size, this_instance
from rankmuster.status import Status
from rankmuster.transport.base import Deadline, Identity, Transport


class BrokenLaunch(MusterError):
    """What a launcher or the options say of this process is incomplete, or cannot be."""

    status = Status.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One process's place in the job, and what it needs to reach the others.

    `root_listens` says that the root listened before this process began, so that a refused
    connection is a root that died. `listener` is the root's listening socket; only the process of
    device 0 holds it, or `open_door`, which makes it. `lifeline` is a descriptor that reads
    end-of-file once the launcher is gone; `deaths` one from which the root reads who died: a
    process number and its devices on each line. Both are None where nobody tells. `transport`
    carries the bring-up where we open no connections of our own; `root` is then the number of a
    process, and there is no secret. `findings` are what this process's own sources disagree about,
    `notes` lines for people. `at_plan` is called once everybody has come.
    """

    launcher: str = ""
    process: int
    processes: int
    devices: tuple[int, ...]
    world_size: int
    root: str
    root_listens: bool = False
    job: bytes
    epoch: int
    secret: bytes
    listener: socket.socket | None = None
    open_door: Callable[[], socket.socket] | None = None
    interface: str = ""
    lifeline: int | None = None
    deaths: int | None = None
    transport: Transport | None = None
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    instance: str = field(default_factory=this_instance)
    core_size: int | None = field(default_factory=this_core_size)
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    at_plan: Callable[[], None] | None = None

    @property
    def identity(self) -> Identity:
        """What a connection of ours says of us."""
        return Identity(self.process, min(self.devices), len(self.devices))

    @property
    def is_root(self) -> bool:
        """Whether this process holds device 0, whose process leads the census."""
        return 0 in self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What the caller says of the place itself; it beats the environment and every launcher.

    `devices_each` counts the devices of each process (one number for all), `devices` names those of
    this one. `root` is host:port, on which the process of device 0 is to listen.
    """

    launcher: str = ""
    process: int | None = None
    processes: int | None = None
    devices: tuple[int, ...] = ()
    devices_each: tuple[int, ...] = ()
    world_size: int | None = None
    root: str = ""
    interface: str = ""
    secret_file: str = ""
    insecure: bool = False


NO_OPTIONS = LaunchOptions()


class Launcher:
    """A way to be started: five questions about a process, asked of its environment.

    The answers come from the variables that a subclass names; every one raises `BrokenLaunch` for
    a variable that is missing or no number. `JOB` name the job and `ATTEMPT` counts how often it
    was started again, so that the processes of an older attempt are told apart.
    """

    name: ClassVar[str]
    PROCESS: ClassVar[str]
    PROCESSES: ClassVar[str]
    LOCAL_PROCESS: ClassVar[str] = ""
    JOB: ClassVar[tuple[str, ...]] = ()
    ATTEMPT: ClassVar[str] = ""

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """Whether this launcher started us."""
        return cls.PROCESS in environ and cls.PROCESSES in environ

    @classmethod
    def process(cls, environ: Mapping[str, str]) -> int:
        """This process's number."""
        return number(environ, cls.PROCESS)

    @classmethod
    def processes(cls, environ: Mapping[str, str]) -> int:
        """How many processes the job has."""
        return number(environ, cls.PROCESSES)

    @classmethod
    def local_process(cls, environ: Mapping[str, str]) -> int | None:
        """This process's number on its host, where that is told."""
        return number(environ, cls.LOCAL_PROCESS) if cls.LOCAL_PROCESS in environ else None

    @classmethod
    def job(cls, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What is said alike to all processes of this job, and to no others on their hosts."""
        return tuple(environ.get(name, "") for name in cls.JOB)

    @classmethod
    def port(cls, environ: Mapping[str, str]) -> int:
        """Where the root is to listen if only `share` can tell its host; 0 for any port.

        A port of its own for each job also serves who still hears of the job's last program.
        """
        del environ
        return 0

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """The address of the process of device 0; "" where only `share` can tell."""
        raise NotImplementedError

    @classmethod
    def share(cls, environ: Mapping[str, str], root: str | None, deadline: Deadline) -> str:
        """Tell the others the address *root*, or with None hear it. Returns it.

        Only for launchers whose `root` is "".
        """
        raise NotImplementedError


def number(environ: Mapping[str, str], name: str) -> int:
    """The count or number in a variable. Raises `BrokenLaunch`."""
    text = environ.get(name)
    if text is None:
        raise BrokenLaunch(
            f"{name} is not set", fix="say it with an option, or start the job again"
        )
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BrokenLaunch(f"{name}={text!r} is no number")
    return int(text)
