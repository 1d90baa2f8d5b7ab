"""What a process keeps for its next musters in one job: the secret, the epoch, the root's door."""

from __future__ import annotations

import functools
import socket
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rankmuster.address import split_address
from rankmuster.launch.secret import KeyFile
from rankmuster.transport.doors import open_door


@dataclass(slots=True)
class Held:
    """What this process keeps for its second and third muster in one job."""

    secret: bytes = b""
    next_epoch: int = 0
    root: str = ""
    key: KeyFile | None = None
    fresh: socket.socket | None = None
    """The root's door, opened before a muster took it."""
    door: Callable[[], socket.socket | None] = lambda: None
    """That of the last muster, as long as it is open."""

    def take_epoch(self) -> int:
        """The number of the next muster."""
        self.next_epoch += 1
        return self.next_epoch - 1

    def open(self, interface: str) -> socket.socket:
        """The root's listening socket for one muster, which closes it.

        A muster inside another has the same address, so it shares the other's.
        """
        open_one = self.door()
        if self.fresh is None and open_one is not None and open_one.fileno() >= 0:
            return open_one.dup()
        taken, self.fresh = self.fresh, None
        taken = taken or open_door(*split_address(self.root), interface)
        self.door = weakref.ref(taken)
        return taken


class Job(NamedTuple):
    """What finds a `Held` again."""

    launcher: str
    name: bytes
    process: int
    root: str = ""


@functools.cache
def held_for(job: Job) -> Held:
    """What is kept for *job*; empty at first."""
    del job
    return Held()
