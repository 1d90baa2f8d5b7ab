"""Where one process of a bring-up can be reached, and what is wrong where it cannot.

What a root's address says, and what this host knows of itself, are here; opening sockets is the
transport's. Of transports that have no addresses nothing is wrong.
"""

from __future__ import annotations

import socket

from rankmuster.address import USELESS, Ends, Reach, join_address, reach_of, split_address
from rankmuster.finding import Finding, finding
from rankmuster.launch.base import Place
from rankmuster.transport.base import Connections
from rankmuster.transport.doors import addresses_behind, open_door
from rankmuster.transport.interfaces import choose
from rankmuster.transport.tcp import TcpEndpoint

LOOPBACK = "127.0.0.1"  # as an address: "where I am seen"


class Doorway:
    """The doors of one process: the root's, at the root, and the one for its peers."""

    def __init__(self, place: Place, endpoint: Connections) -> None:
        self._place, self._endpoint = place, endpoint
        self._root_door: socket.socket | None = None

    def open_for_census(self) -> None:
        """As the root: let the others in."""
        place = self._place
        self._root_door = place.open_door() if place.open_door else place.listener
        if self._root_door is not None:
            self._endpoint.adopt(self._root_door)

    def close_for_census(self) -> None:
        """As the root: let nobody in any more. Who comes now comes for the next muster.

        Its root may share that door with us.
        """
        if self._root_door is not None and isinstance(self._endpoint, TcpEndpoint):
            self._endpoint.deafen(self._root_door)
            self._root_door = None

    def open_for_peers(self, root_handle: int) -> str:
        """Open a door for our peers; return the address on which they reach it.

        The rule of the interface: the one that is asked for, else the one that leads to the root.
        """
        if not isinstance(self._endpoint, TcpEndpoint):
            return self._endpoint.listen("" if self._place.transport else self._root_host)
        door = open_door(self._root_host, 0, self._place.interface)
        self._endpoint.adopt(door)
        return join_address((self._own_host(root_handle).partition("%")[0], door.getsockname()[1]))

    def ends(self, handle: int) -> Ends | None:
        """Both addresses of a connection, where it has any."""
        return self._endpoint.ends(handle) if isinstance(self._endpoint, TcpEndpoint) else None

    def unreached(self) -> dict[int, str]:
        """By handle, what is wrong with each address that we dialled and where nobody answers."""
        return self._endpoint.unreached() if isinstance(self._endpoint, TcpEndpoint) else {}

    def is_elsewhere(self) -> bool:
        """As the root: whether the others look for the root on what seems to be another host."""
        if (there := self._addresses()) is None:
            return False
        host = self._root_host
        if reach_of(host) is Reach.NAME:
            return host.partition(".")[0].lower() != self._place.host.partition(".")[0].lower()
        return host not in there and reach_of(host) not in USELESS

    def misplaced_root(self) -> Finding | None:
        """RM608 of a root that does not listen where the others were told to dial it."""
        if (there := self._addresses()) is None:
            return None
        host = self._root_host
        if reach_of(host) is Reach.NAME:
            return None
        if host not in there:
            useful = [each for each in there if reach_of(each) is Reach.ROUTABLE] or there
            why = f"and it listens on {', '.join(useful)} of {self._place.host}"
        elif reach_of(host) in USELESS:
            why = f"a {reach_of(host)} address, which leads every other host to itself"
        else:
            return None
        message = f"the others look for the root at {host}, {why}"
        return finding("RM608", message, ranks=self._place.devices)

    def _addresses(self) -> list[str] | None:
        """Those behind the root's door; None where it was not opened for an address to dial."""
        if self._root_door is None or self._place.open_door is None:
            return None
        return addresses_behind(self._root_door)

    def _own_host(self, root_handle: int) -> str:
        """The address of ours that leads to the root; the loopback where only others know it."""
        if self._place.interface:
            return choose(self._place.interface)
        if (ends := self.ends(root_handle)) is not None:
            return split_address(ends.ours)[0]
        known = self._place.is_root and reach_of(self._root_host) is not Reach.NAME
        return self._root_host if known else LOOPBACK

    @property
    def _root_host(self) -> str:
        return split_address(self._place.root)[0]
