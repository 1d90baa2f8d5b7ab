"""What an address leads to: at once for numbers, by the name server for names.

A name server may take its time, or never answer; it is asked in a thread of its own.
"""

from __future__ import annotations

import socket
from typing import Any

from rankmuster.address import split_address
from rankmuster.background import Background


class Names:
    """The sockets' names for *address*. Raises `BadAddress`, and OSError for a name of nothing."""

    def __init__(self, address: str) -> None:
        host, port = split_address(address)
        # As bytes: a name given as text goes through the IDNA codec, whose import alone takes
        # longer than all the rest of a connection.
        self._asked = host.encode(), port
        self._found: list[tuple[int, Any]] = []
        self._turn = 0
        if is_ipv4(host):  # what most are: there is nothing to ask
            self._found = [(socket.AF_INET, (host, port))]
            return
        try:
            self._take(socket.getaddrinfo(*self._asked, flags=socket.AI_NUMERICHOST))
        except socket.gaierror:
            self._work = Background(lambda: socket.getaddrinfo(*self._asked))

    @property
    def known(self) -> bool:
        """Whether there is an answer. Raises OSError where the answer is that there is nothing."""
        if not self._found and self._work.done:
            self._take(self._work.result())
        return bool(self._found)

    def next(self) -> tuple[int, Any]:
        """Family and name to connect to; each call gives the next one, round and round."""
        family, name = self._found[self._turn % len(self._found)]
        self._turn += 1
        return family, name

    def _take(self, found: list[tuple[Any, ...]]) -> None:
        self._found = list(dict.fromkeys((family, name) for family, _, _, _, name in found))


def is_ipv4(host: str) -> bool:
    """Whether *host* is an IPv4 address in full: "10.0.0.4", not "10.4" and not a name."""
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True
