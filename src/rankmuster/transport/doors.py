"""Opening a listening socket: on which address, and of which family."""

from __future__ import annotations

import errno
import ipaddress
import socket

from rankmuster.address import Reach, join_address, reach_of
from rankmuster.errors import OutOfResources
from rankmuster.transport.interfaces import choose, interfaces
from rankmuster.transport.names import is_ipv4

FREE = "say --root host:port with a free port, the same to every process"
TAKEN = f"is another process of the job numbered 0 too? number them from 0, or {FREE}"
BACKLOG = 4096  # the kernel cuts it to its own bound (net.core.somaxconn)


def open_door(host: str, port: int = 0, interface: str = "") -> socket.socket:
    """Listen for processes that dial *host*, a name or number of this machine.

    With *interface*, on that one's address; else on the loopback where *host* is of it, and on
    every address where it is not: what a host calls itself and what others call it differ
    (Debian's /etc/hosts gives a host's own name to 127.0.1.1). Raises `OutOfResources`, and
    `NoSuchInterface`.
    """
    where = choose(interface) if interface else host
    if not interface and reach_of(host) is not Reach.LOOPBACK:
        where = ""
    elif where.lower() == "localhost":
        where = "127.0.0.1"
    try:
        return _listen(where, port)
    except OSError as error:
        place = join_address((where or "every address", port))
        raise OutOfResources(
            # `create_server` adds: (while attempting to bind on address ('127.0.0.1', 20480))
            f"cannot listen on {place}: {str(error.strerror).partition(' (')[0]}",
            fix=TAKEN if error.errno == errno.EADDRINUSE else FREE,
        ) from error


def addresses_behind(door: socket.socket) -> list[str]:
    """The addresses, without zones, at which others reach a listening socket of this host."""
    host = door.getsockname()[0].removeprefix("::ffff:")
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        return [each.address.partition("%")[0] for each in interfaces()]
    return [host]


def _listen(where: str, port: int) -> socket.socket:
    if not where and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    if is_ipv4(where):
        return socket.create_server((where, port), backlog=BACKLOG)
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    # As bytes: a name given as text goes through the IDNA codec, whose import takes milliseconds.
    host = where.encode() or None
    name = socket.getaddrinfo(host, port, family, flags=socket.AI_PASSIVE)[0][4]
    return socket.create_server(name, family=family, backlog=BACKLOG)
