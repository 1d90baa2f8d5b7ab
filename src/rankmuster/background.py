"""What a process does beside its bring-up: long work in a thread, a word for who asks by signal.

A thread cannot be stopped: who no longer wants its result leaves it behind, and it ends with the
process at the latest.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from rankmuster import streams

T = TypeVar("T")
QUICK_S = 0.02  # what most work takes at most: until then nobody else need be heard


class Background(Generic[T]):
    """*work*, under way. One that is quick is done when this returns."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []  # one, or none where it raised
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rankmuster work", daemon=True)
        self._thread.start()
        self._thread.join(QUICK_S)

    @property
    def done(self) -> bool:
        """Whether it returned or raised."""
        return not self._thread.is_alive()

    def result(self) -> T:
        """What the work returned; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is wanted
            self._error = error


@contextlib.contextmanager
def told_on_signal(status: Callable[[], str]) -> Iterator[None]:
    """Inside the block SIGUSR1 prints *status* on standard error; only the main thread can do it.

    A handler that the program has set for itself stays.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
    ):
        yield
        return

    def tell(_number: int, _frame: object) -> None:
        line = f"rankmuster: {status()}"
        streams.tell(lambda: print(line, file=sys.stderr, flush=True))  # noqa: T201 - who asked hears

    signal.signal(signal.SIGUSR1, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
