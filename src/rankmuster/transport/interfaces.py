"""This host's network interfaces and their addresses, and the choice among them.

Asks the C library (getifaddrs), which Linux and macOS share; no name server is ever asked.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import socket
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from rankmuster.address import Reach, reach_of
from rankmuster.errors import MusterError, did_you_mean
from rankmuster.status import Status


class NoSuchInterface(MusterError):
    """What was said of the interface matches none of this host's."""

    status = Status.INVALID


class Interface(NamedTuple):
    """One address of one interface: "eth0", "10.0.0.4", from where it can be reached."""

    name: str
    address: str
    reach: Reach


class _SocketAddress(ctypes.Structure):
    """struct sockaddr; BSD puts the length before the family."""

    _fields_ = (
        (("length", ctypes.c_uint8), ("family", ctypes.c_uint8))
        if sys.platform == "darwin"
        else (("family", ctypes.c_uint16),)
    ) + (("rest", ctypes.c_uint8 * 26),)


class _Entry(ctypes.Structure):
    """struct ifaddrs, as far as we read it: the same start on Linux and BSD."""


_Entry._fields_ = (
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SocketAddress)),
)


def interfaces() -> list[Interface]:
    """Every IP address of this host, in the system's order; [] where the system cannot say."""
    library = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if library.getifaddrs(ctypes.byref(first)) != 0:
        return []
    try:
        return list(_walk(first))
    finally:
        library.freeifaddrs(first)


def choose(wanted: str, known: Sequence[Interface] | None = None) -> str:
    """The address that *wanted* means: an address, a network (10.0.0.0/16) or a name (eth*, =eth0).

    An = before the name, as NCCL writes it for an exact match, changes nothing. Of several
    addresses the first that other hosts can reach is taken, IPv4 before IPv6. Raises
    `NoSuchInterface`, which names what there is.
    """
    known = interfaces() if known is None else known
    fitting = [each for each in known if _fits(wanted, each)]
    if not fitting:
        there = ", ".join(f"{each.name} {each.address} ({each.reach})" for each in known)
        raise NoSuchInterface(
            f"interface {wanted!r} matches none of {there or 'no interface at all'}",
            fix=did_you_mean(wanted, {each.name for each in known}),
        )
    best = min(fitting, key=lambda each: (each.reach is not Reach.ROUTABLE, ":" in each.address))
    return best.address


def address_towards(host: str) -> str:
    """The local address from which packets to *host* would leave; "" where there is no way.

    Nothing is sent: connecting a UDP socket only looks the route up.
    """
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            host.encode(), 9, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(name)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _fits(wanted: str, interface: Interface) -> bool:
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return fnmatchcase(interface.name, wanted.removeprefix("="))
    return ipaddress.ip_address(interface.address.partition("%")[0]) in network


def _walk(entry: ctypes._Pointer[_Entry]) -> Iterator[Interface]:
    while entry:
        here = entry.contents
        if here.address:
            family, rest = here.address.contents.family, bytes(here.address.contents.rest)
            name = here.name.decode("utf-8", "replace")
            text = ""
            if family == socket.AF_INET:  # port, address
                text = socket.inet_ntop(family, rest[2:6])
            elif family == socket.AF_INET6:  # port, flow, address; the zone is the interface
                text = socket.inet_ntop(family, rest[6:22])
                if reach_of(text) is Reach.LINK_LOCAL:
                    text = f"{text}%{name}"
            if text:
                yield Interface(name, text, reach_of(text))
        entry = here.next
