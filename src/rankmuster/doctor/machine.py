"""What the machine itself has: descriptors, the backlog of listeners, its clock and its name."""

from __future__ import annotations

import ctypes
import socket
import sys
import time
from pathlib import Path

from rankmuster.doctor.checkup import Checkup, error, warning, well
from rankmuster.transport.doors import BACKLOG
from rankmuster.transport.limits import Limit, needed

SOMAXCONN = Path("/proc/sys/net/core/somaxconn")
CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "pit"})
LABEL_CHARS = 63  # of a part of a DNS name (RFC 1035)
YEARS = (2024, 2100)
LOOK_S = 0.05
DRIFT = 0.05  # of the wall clock against the monotonic one while we look
TIMEX_BYTES = 512  # more than struct timex has anywhere
TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised


def check_descriptors(processes: int, has: Limit) -> Checkup:
    """Whether the process of device 0 may have as many as a world of *processes* takes."""
    wants = needed(processes)
    facts = {"needed": wants, "soft": has.soft, "hard": has.hard}
    seen = f"{processes} processes take {wants} descriptors"
    if wants > has.hard:
        return error(
            "descriptors",
            f"{seen} at the root, and no more than {has.hard} are allowed",
            f"raise the limit there, in limits.conf or with 'ulimit -Hn {wants}'",
            **facts,
        )
    if wants > has.soft:
        raised = f"the limit of {has.soft} is raised at bring-up (up to {has.hard})"
        return well("descriptors", f"{seen} at the root; {raised}", **facts)
    return well("descriptors", f"{seen} at the root, {has.soft} are allowed", **facts)


def check_backlog(processes: int, somaxconn: int | None) -> Checkup:
    """Whether all processes may knock at once: what does not fit waits for a retransmission."""
    if somaxconn is None:
        return well("backlog", "the system does not say how many may knock at once")
    bound = min(somaxconn, BACKLOG)
    facts = {"processes": processes, "somaxconn": somaxconn}
    if bound < processes:
        return warning(
            "backlog",
            f"{processes} processes may knock at once and {bound} fit; the rest come seconds late",
            f"sysctl net.core.somaxconn={BACKLOG}, on the root's machine",
            **facts,
        )
    return well("backlog", f"{bound} connections may knock at once", **facts)


def somaxconn() -> int | None:
    """The system's bound on the backlog of any listener, None where it does not say."""
    try:
        return int(SOMAXCONN.read_text())
    except (OSError, ValueError):
        return None


def check_host_name(name: str) -> Checkup:
    """Whether programs that keep a host's name in 64 bytes, or look it up, can bear this one."""
    longest = max(map(len, name.split(".")))
    if not name or longest > LABEL_CHARS:
        return warning(
            "host name",
            f"this host calls itself {name!r}, with {longest} characters between dots",
            f"give it a name of up to {LABEL_CHARS}: longer ones cannot be looked up",
            host=name,
        )
    return well("host name", f"this host calls itself {name!r}", host=name)


def check_clock() -> Checkup:
    """Whether the clock tells a likely time, and runs as time does."""
    start, wall = time.monotonic(), time.time()
    time.sleep(LOOK_S)
    drift = abs((time.time() - wall) / (time.monotonic() - start) - 1)
    year = time.gmtime(wall).tm_year
    source = _clock_source()
    facts = {"year": year, "drift": round(drift, 4), "source": source, "synced": _is_synced()}
    if not YEARS[0] <= year < YEARS[1]:
        return error("clock", f"the clock says it is {year}", "set it (chronyd, ntpd)", **facts)
    if drift > DRIFT:
        seen = f"the wall clock ran {drift:.0%} off the monotonic one within {LOOK_S * 1e3:.0f} ms"
        return warning("clock", seen, "something steps it: look at chronyd or ntpd", **facts)
    if source in SLOW_CLOCKS:
        slow = f"the clock source is {source}, which takes microseconds to read"
        return warning("clock", slow, "boot with clocksource=tsc if it is stable", **facts)
    return well("clock", "the clock runs evenly" + (f" ({source})" if source else ""), **facts)


def _clock_source() -> str:
    try:
        return CLOCK.read_text().strip()
    except OSError:
        return ""


def _is_synced() -> bool | None:
    """Whether the kernel's clock follows a time server; None where it cannot be asked."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    state: int = library.adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))  # zeroes only ask
    return None if state < 0 else state != TIME_ERROR


def own_name() -> str:
    """What this host calls itself."""
    return socket.gethostname()
