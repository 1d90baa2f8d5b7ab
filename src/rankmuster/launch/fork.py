"""N processes of this machine that live and die with the one that started them.

Knows nothing of musters: a child is a function that gets its number and a pipe to write its result
to. Children are forked, so that imports are paid for once.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, Self

from rankmuster.errors import MusterError
from rankmuster.status import Status

GRACE_S = 2.0  # between asking a child to end and ending it
PR_SET_PDEATHSIG = 1  # linux/prctl.h
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Child = Callable[[int, int], int]
"""Gets its number and a descriptor for its result; returns its exit code."""


class CannotFork(MusterError):
    """The machine does not allow another process or descriptor."""

    status = Status.RESOURCE


class Stopped(BaseException):
    """A signal asked us to end (SIGTERM, SIGHUP); Ctrl-C stays a KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


@dataclass(slots=True)
class _Process:
    number: int
    pid: int
    pipe: int  # where we read its result; -1 once it is closed
    result: bytearray = field(default_factory=bytearray)
    code: int | None = None


class Family:
    """The forked processes, from start to reaped. A context manager: leaving it ends them all."""

    def __init__(self, count: int, child: Child) -> None:
        self._child = child
        self._count = count
        self._processes: list[_Process] = []
        self._talking = selectors.PollSelector()  # the one that a fork does not share or break
        self._parent = os.getpid()

    def __enter__(self) -> Self:
        """Start them. Raises `CannotFork`; `__exit__` has to be called all the same."""
        # A signal between fork and bookkeeping would orphan a child, or run our handlers in one.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        at_start = die_with_parent()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # a collection in a child would touch, and so copy, every page that we share
        try:
            for number in range(self._count):
                self._fork(number, held, at_start)
        except OSError as error:
            raise CannotFork(
                f"could start only {len(self._processes)} of {self._count} processes: {error}",
                fix="start fewer with -n, or raise the limits (ulimit -u, ulimit -n)",
            ) from error
        finally:
            gc.unfreeze()
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def next_result(self, until: float | None = None) -> tuple[int, bytes] | None:
        """The number and the result of the next child that closes its pipe, by ending or by exec.

        None once all have, and at *until* on the monotonic clock.
        """
        while self._talking.get_map():
            left = None if until is None else until - time.monotonic()
            ready = self._talking.select(left)
            if not ready and until is not None and time.monotonic() >= until:
                return None
            for key, _ in ready:
                process: _Process = key.data
                chunk = os.read(process.pipe, 1 << 16)
                process.result += chunk
                if not chunk:
                    self._close_pipe(process)
                    return process.number, bytes(process.result)
        return None

    def wait(self) -> list[int]:
        """Wait for all; their exit codes by number, 128 + N for one that signal N ended."""
        for process in self._processes:
            if process.code is None:
                _, status = os.waitpid(process.pid, 0)
                process.code = _exit_code(status)
        return [process.code for process in self._processes if process.code is not None]

    def exited(self, number: int, wait_s: float = 0.0) -> int | None:
        """The exit code of one child if it ended within *wait_s*, else None."""
        process = self._processes[number]
        until = time.monotonic() + wait_s
        while process.code is None:
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                process.code = _exit_code(status)
            elif time.monotonic() >= until:
                break
            else:
                time.sleep(0.001)
        return process.code

    def pid(self, number: int) -> int:
        """The process id of one child."""
        return self._processes[number].pid

    def kill(self, number: int, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal to one child that has not been reaped."""
        if self.exited(number) is None:
            os.kill(self._processes[number].pid, signal_number)

    def end(self, grace_s: float = GRACE_S) -> None:
        """End every child and what it started, gently and then not, and reap it.

        No child outlives this call, nor does anything that stayed in a child's process group.
        """
        for process in self._processes:
            self._close_pipe(process)
            _signal_group(process.pid, signal.SIGTERM)
        until = time.monotonic() + grace_s
        try:
            for process in self._processes:
                self.exited(process.number, until - time.monotonic())
        finally:  # also when Ctrl-C is pressed again
            for process in self._processes:
                _signal_group(process.pid, signal.SIGKILL)
            self.wait()

    def _fork(self, number: int, held: Iterable[int], at_start: Callable[[], None]) -> None:
        read_end, write_end = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(read_end)
            os.close(write_end)
            raise
        if pid == 0:
            self._become(number, write_end, read_end, held, at_start)
        os.close(write_end)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it was faster
            os.setpgid(pid, pid)
        process = _Process(number, pid, read_end)
        self._processes.append(process)
        self._talking.register(read_end, selectors.EVENT_READ, process)

    def _become(
        self,
        number: int,
        write_end: int,
        read_end: int,
        held: Iterable[int],
        at_start: Callable[[], None],
    ) -> NoReturn:
        """Be the child: never returns into the parent's code, whatever happens."""
        code = 70  # EX_SOFTWARE of sysexits.h
        try:
            at_start()
            os.setpgid(0, 0)  # what it starts ends with it; Ctrl-C comes by way of the parent
            if os.isatty(0):  # a group in the background that reads a terminal is stopped
                with open(os.devnull, "rb") as nothing:  # noqa: PTH123 pathlib would be an import
                    os.dup2(nothing.fileno(), 0)
            for signal_number in STOPS:
                signal.signal(signal_number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            if os.getppid() != self._parent:
                os._exit(code)  # it died before we asked to die with it
            for descriptor in (read_end, *(sibling.pipe for sibling in self._processes)):
                os.close(descriptor)
            code = self._child(number, write_end)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:  # noqa: BLE001 - the last frame of this process: nobody else can tell
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _close_pipe(self, process: _Process) -> None:
        if process.pipe >= 0:
            self._talking.unregister(process.pipe)
            os.close(process.pipe)
            process.pipe = -1


@contextlib.contextmanager
def stops_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Stopped` inside the block, so that it cleans up."""

    def stop(number: int, _frame: object) -> NoReturn:
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def die_with_parent() -> Callable[[], None]:
    """What a child calls so that the kernel ends it with its parent; nothing off Linux.

    Looked up before the fork: a child should not have to load a library.
    """
    if sys.platform != "linux":
        return lambda: None  # the lifeline pipe must do
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask


def _signal_group(leader: int, number: int) -> None:
    """Signal all that is left of a child's process group.

    A child that was reaped, with all its group gone, leaves a number that nobody has.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
