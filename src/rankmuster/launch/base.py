"""Where a process stands in its job, and the five questions by which a launcher is asked for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from rankmuster.transport.base import Identity, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One process's place in the job, and what it needs to reach the others.

    `root_listens` says that the root listened before this process began, so that a refused
    connection is a root that died. `listener` is the root's listening socket; only the process of
    device 0 holds it. `lifeline` is a descriptor that reads end-of-file once the launcher is gone;
    `deaths` one from which the root reads who died: a process number and its devices on each line.
    Both are None where nobody tells. `transport` carries the bring-up where we open no connections
    of our own; `root` is then the number of a process, and there is no secret.
    """

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
    lifeline: int | None = None
    deaths: int | None = None
    transport: Transport | None = None
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    @property
    def identity(self) -> Identity:
        """What a connection of ours says of us."""
        return Identity(self.process, min(self.devices), len(self.devices))

    @property
    def is_root(self) -> bool:
        """Whether this process holds device 0, whose process leads the census."""
        return 0 in self.devices


class Launcher(Protocol):
    """A way to be started. Asked in the order of `LAUNCHERS`; the first that is present answers."""

    name: ClassVar[str]

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """Whether this launcher started us."""

    @classmethod
    def process(cls, environ: Mapping[str, str]) -> int:
        """This process's number."""

    @classmethod
    def processes(cls, environ: Mapping[str, str]) -> int:
        """How many processes the job has."""

    @classmethod
    def local_process(cls, environ: Mapping[str, str]) -> int:
        """This process's number on its host."""

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """The address of the process of device 0."""
