"""Ctrl-C while modules are imported: nothing is held yet, and the process ends at once.

An exception would be lost wherever the import machinery runs a callback: Python prints that it was
ignored, and goes on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rankmuster.cli import INTERRUPTED


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let SIGINT end the process, with its exit code, wherever inside the block it comes.

    Not where somebody else has decided about SIGINT, as `nohup` does.
    """
    usual = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
