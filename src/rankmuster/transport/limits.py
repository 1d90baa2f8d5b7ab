"""How many descriptors a bring-up takes, and the limit that this process has for them."""

from __future__ import annotations

import resource
from typing import NamedTuple

OWN = 64  # the interpreter's, the program's files, and those of whoever calls us
UNPROVEN = 256  # accepted connections that have not shown a valid hello


class Limit(NamedTuple):
    """The number of descriptors that a process may have: now, and at most."""

    soft: int
    hard: int


def needed(processes: int) -> int:
    """What the process of device 0 needs at most, with its door full of strangers.

    One connection to every process for the census, and peers of its groups: they lie on trees, so
    each group adds few, and no more than there are processes.
    """
    return OWN + UNPROVEN + 2 * processes


def limit() -> Limit:
    """This process's limit; "unlimited" is a very large number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = 1 << 30
    return Limit(*(endless if each == resource.RLIM_INFINITY else each for each in (soft, hard)))


def allow(descriptors: int) -> bool:
    """Raise the soft limit to so many *descriptors* where it is lower; whether there are as many.

    It is left as it is where it suffices: a program that uses select(2) wants it at 1024.
    """
    soft, hard = limit()
    if soft >= descriptors:
        return True
    wanted = min(descriptors, hard)
    try:
        ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, ceiling))
    except (ValueError, OSError):  # macOS has a bound of its own below the hard limit
        return False
    return wanted == descriptors
