"""The standard streams where they are closed, full or without a reader: that stops no job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

STANDARD = ("stdin", "stdout", "stderr")


def open_closed() -> None:
    """Lead the standard streams that were closed before us (`>&-`) to nowhere.

    Else the next socket or file takes their number, and whatever is printed. Of standard input
    only the number is taken: that it is closed is for whoever wants to read it to say.
    """
    for number, name in enumerate(STANDARD):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere == number:
                # For a command that we become, too.
                os.set_inheritable(nowhere, True)  # noqa: FBT003 it takes no keywords
            else:  # the number is in use, whatever for
                os.close(nowhere)
            if name != "stdin":
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 for good


def tell(say: Callable[[], object]) -> None:
    """*say* something on standard error; where it takes nothing, fall silent there for good.

    A full disk under a log, or a reader that has gone, is no reason to end a process.
    """
    try:
        say()
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 for good
