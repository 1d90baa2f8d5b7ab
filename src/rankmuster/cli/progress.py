"""A progress bar on standard error for whatever takes more than a second."""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from rankmuster.cli.output import Output, use_color

PATIENCE_S = 1.0


class Progress(AbstractContextManager["Progress"]):
    """Shows *what* is going on, once it has gone on for a second and somebody watches."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._steps = (0, 0)
        self._bar: Any = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not Output.current().quiet:
            self._timer = threading.Timer(PATIENCE_S, self._show)
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """Say how far it is."""
        with self._lock:
            self._steps = (done, total)
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        console = Console(stderr=True, no_color=not use_color(sys.stderr))
        with self._lock:
            done, total = self._steps
            bar = Bar(console=console, transient=True)
            bar.add_task(self.what, completed=done, total=total if total > 1 else None)
            bar.start()
            self._bar = bar
