"""A second process that ends this one at a deadline, for calls that nothing inside can interrupt.

Only for libraries that wait without end while they hold Python's lock.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from typing import NoReturn

from rankmuster.transport.base import Deadline


@contextlib.contextmanager
def watchdog(deadline: Deadline, message: str) -> Iterator[None]:
    """Inside the block, end this process by SIGKILL at *deadline*, with *message* on stderr."""
    read_end, write_end = os.pipe()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(write_end)
        _watch(me, read_end, deadline, message)
    os.close(read_end)
    try:
        yield
    finally:
        os.close(write_end)
        os.waitpid(pid, 0)


def _watch(watched: int, pipe: int, deadline: Deadline, message: str) -> NoReturn:
    """Wait until the block is left, or the process is gone: then *pipe* reads its end."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the one we watch decides
        ready, _, _ = select.select([pipe], [], [], deadline.remaining())
        if not ready and os.getppid() == watched:
            os.write(2, f"rankmuster: {message}\n".encode())
            os.kill(watched, signal.SIGKILL)
    finally:
        os._exit(0)
