"""A command below this process, where what carried the muster does not let us become it.

MPI's launcher takes a process that initialised MPI and ends without finalising for a failure, and
ends the job; a command that uses no MPI would do just that.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from rankmuster import streams
from rankmuster.launch.fork import die_with_parent

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
PMI_FD = "PMI_FD"  # 11: MPICH's line to its launcher


def run_below(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run *command* with all that we inherited, pass signals on, and return its exit code.

    Raises OSError where it cannot be started.
    """
    early: list[int] = []  # that came before there was anybody to pass them on to
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: early.append(number))
    with subprocess.Popen(
        command,
        env=environ,
        close_fds=False,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 one system call, made ready before the fork
    ) as child:
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: child.send_signal(number))
        for passed_over in early:
            child.send_signal(passed_over)
        code = child.wait()
    code = code if code >= 0 else 128 - code
    if PMI_FD in environ and _is_ended(int(environ[PMI_FD])):
        # The command was an MPI program, and finalised for us: a second time is an error.
        sys.stdout.flush()
        streams.tell(sys.stderr.flush)
        os._exit(code)
    return code


def _is_ended(descriptor: int) -> bool:
    """Whether the other side has closed a socket."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as line:
            return not line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:  # it is closed here too, or no socket
        return True
