"""Where a process listens, as text: "10.0.0.1:4321", "[fe80::1]:4321", "trn-3:4321".

Knows no socket and asks no name server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Container
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from rankmuster.errors import MusterError
from rankmuster.status import Status


class BadAddress(MusterError):
    """An address is not of the form host:port."""

    status = Status.INVALID


class Reach(StrEnum):
    """From where an address can be reached."""

    LOOPBACK = "loopback"  # from this host
    LINK_LOCAL = "link-local"  # from the same wire, by those who name their own interface
    BRIDGE = "bridge"  # from this host's containers; every host has the same one
    ROUTABLE = "routable"
    NAME = "name"  # whatever it resolves to


USELESS: Container[Reach] = frozenset({Reach.LOOPBACK, Reach.LINK_LOCAL, Reach.BRIDGE})
"""What other hosts cannot reach."""
# What docker and libvirt give to the host's end of their bridges, unless told otherwise. The whole
# networks are private ones that sites use too, so only the host's own end counts: 172.17.0.1.
BRIDGES = frozenset({"172.17.0.1", "172.18.0.1", "192.168.122.1", "10.88.0.1", "10.42.0.1"})


class Ends(NamedTuple):
    """The two addresses of one connection, as text, as this end sees them."""

    ours: str
    theirs: str


@lru_cache(maxsize=4096)  # a plan asks the same of few hosts, for each neighbour of each process
def reach_of(host: str) -> Reach:
    """From where a host, by number or name, can be reached."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return Reach.LOOPBACK if host.lower() == "localhost" else Reach.NAME
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return Reach.LOOPBACK
    if address.is_link_local:
        return Reach.LINK_LOCAL
    return Reach.BRIDGE if str(address) in BRIDGES else Reach.ROUTABLE


def reachable(address: str, listener: Ends | None, asker: Ends | None) -> str:
    """Where *asker* is to dial for the *listener* that advertises *address*.

    Both are known by the ends of their connections at the root, which has none to itself. Who
    advertises the loopback is where the root sees it; and if that is the loopback too, others find
    it where they find the root.
    """
    if asker is None or _is_here(asker.theirs):
        return address
    host, port = split_address(address)
    if reach_of(host) is not Reach.LOOPBACK:
        return address
    seen = asker.ours
    if listener is not None and not _is_here(listener.theirs):
        seen = listener.theirs
    return join_address((split_address(seen)[0], port))


def seen_on(host: str, ends: Ends | None) -> str:
    """The *host* that a process names, told apart from others of that name by where it is seen.

    Containers and machines of one image may all have one name, but not one address.
    """
    if ends is None or _is_here(ends.theirs):
        return host
    ours, theirs = (split_address(each)[0] for each in ends)
    return host if theirs == ours else f"{host} {theirs}"


@lru_cache(maxsize=4096)
def _is_here(address: str) -> bool:
    return reach_of(split_address(address)[0]) is Reach.LOOPBACK


def join_address(name: tuple[Any, ...]) -> str:
    """The text for a socket's own name; an IPv4 address in IPv6 clothes is written as IPv4."""
    host, port = str(name[0]).removeprefix("::ffff:"), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shown(name: tuple[Any, ...]) -> str:
    """A socket's name as the other end sees it too: without the zone, which is this host's own."""
    return join_address((str(name[0]).partition("%")[0], name[1]))


@lru_cache(maxsize=4096)
def split_address(text: str) -> tuple[str, int]:
    """Host and port of *text*. Raises `BadAddress`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise BadAddress(f"{text!r} is not an address", fix="write host:port or [ipv6]:port")
    if ":" in host and not bracketed:
        raise BadAddress(f"{text!r} is ambiguous", fix=f"write [{host}]:{port}")
    return host, int(port)
