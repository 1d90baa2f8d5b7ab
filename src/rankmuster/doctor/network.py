"""What the network has: names and how long they take, addresses and who reaches them, the port.

Names are looked up forwards only, each in a thread with a deadline: a resolver may hang for longer
than anybody waits.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rankmuster.address import Reach, join_address, reach_of
from rankmuster.doctor.checkup import Checkup, error, warning, well
from rankmuster.transport.interfaces import Interface

LOOKUP_S = 2.0
SLOW_S = 0.1
ANSWER_S = 0.5

Resolver = Callable[[str], list[str]]


class Lookup(NamedTuple):
    """What a name came to, and how long it took; no addresses where `problem` says why."""

    addresses: tuple[str, ...]
    seconds: float
    problem: str = ""


def addresses_of(name: str) -> list[str]:
    """The addresses of *name*, as the system's resolver has them. Raises OSError."""
    # As bytes, past the IDNA codec, as a bring-up does it.
    found = socket.getaddrinfo(name.encode(), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def look_up(name: str, *, within_s: float = LOOKUP_S, resolver: Resolver = addresses_of) -> Lookup:
    """Ask for *name*, and wait at most *within_s*; the thread ends when the resolver does."""
    found: list[str] = []
    problems: list[str] = []

    def ask() -> None:
        try:
            found.extend(resolver(name))
        except OSError as problem:
            problems.append(problem.strerror or str(problem))

    start = time.monotonic()
    thread = threading.Thread(target=ask, name=f"look up {name}", daemon=True)
    thread.start()
    thread.join(within_s)
    took = time.monotonic() - start
    if thread.is_alive():
        return Lookup((), took, f"no answer within {within_s:g} s")
    return Lookup(tuple(found), took, "; ".join(problems))


def check_name(title: str, name: str, found: Lookup, *, is_root: bool) -> Checkup:
    """Whether *name* is known, soon, and by an address that others reach."""
    facts = {"host": name, "addresses": list(found.addresses), "seconds": round(found.seconds, 4)}
    if found.problem:
        make = error if is_root else warning
        seen = f"{name!r} is not found: {found.problem}"
        return make(title, seen, "add it to DNS or /etc/hosts, or use the number", **facts)
    told = f"{name!r} is {', '.join(found.addresses)}, found in {found.seconds * 1e3:.1f} ms"
    if found.seconds > SLOW_S:
        fix = "put it into /etc/hosts: every process asks at once"
        return warning(title, f"{told}, which is slow", fix, **facts)
    if is_root and name != "localhost" and all(_is_own(each) for each in found.addresses):
        fix = "give the others' number for it; Debian's 127.0.1.1 line in /etc/hosts is the cause"
        return warning(title, f"{told}: other hosts cannot reach that", fix, **facts)
    return well(title, told, **facts)


def _is_own(address: str) -> bool:
    return reach_of(address) is Reach.LOOPBACK


def check_interfaces(known: Sequence[Interface]) -> Checkup:
    """Whether this host has an address that others reach; all of them are listed."""
    told = ", ".join(f"{each.name} {each.address} ({each.reach})" for each in known)
    facts = {"interfaces": [each._asdict() for each in known]}
    if not any(each.reach is Reach.ROUTABLE for each in known):
        seen = f"no address that other hosts reach among {told or 'none'}"
        return warning("interfaces", seen, "one machine only, or bring an interface up", **facts)
    return well("interfaces", told, **facts)


def check_port(host: str, port: int, found: Lookup, known: Sequence[Interface]) -> Checkup:
    """Whether the root's port is free on this host, or what answers on it elsewhere."""
    here = {each.address for each in known}
    own = [each for each in found.addresses if each in here or _is_own(each)]
    where = join_address((host, port))
    if own:
        return _check_own_port(where, own[0], port)
    if not found.addresses:
        return warning("root port", f"{where} was not tried: no address", "see the root's name")
    return _check_far_port(where, found.addresses[0], port)


def _check_own_port(where: str, address: str, port: int) -> Checkup:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as problem:
            fix = f"'ss -ltnp sport = :{port}' names who has it; take another port"
            return error("root port", f"{where} cannot be had: {problem.strerror}", fix)
    return well("root port", f"{where} is free here")


def _check_far_port(where: str, address: str, port: int) -> Checkup:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(ANSWER_S)
        code = probe.connect_ex((address, port))
    if code == 0:
        fix = "fine if the root runs already; else take another port"
        return warning("root port", f"somebody listens on {where}", fix)
    if code == errno.ECONNREFUSED:
        return well("root port", f"{where} answers that nobody listens yet")
    seen = f"no answer from {where}: {errno.errorcode.get(code, 'timeout')}"
    return warning("root port", seen, "look at routes and firewalls between the hosts")
