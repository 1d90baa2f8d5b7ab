"""How the chips of one server are wired: neighbours by port, routing ids, hops.

The tables are the public driver's numbers (facts §3.3). On the tori every link flips exactly one
bit of the routing id, so that the 4x4 torus is the 4-cube and a distance is a popcount.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

PORTS = 4
Port = int | None  # the chip at the other end; None where nothing is plugged in
Shape = Literal["torus", "ring", "chain", "switch", "single", "open"]


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The links inside one server.

    `ports[chip]` are the chips behind ports 0 to 3, `rids[chip]` the routing ids. A "switch" joins
    every two chips without ports of its own (D49). "open" is somebody else's machine: any two
    devices of a host count as linked. `switch_v1` is the family whose routing ids hold a server
    number above four bits (facts §3.4).
    """

    name: str
    shape: Shape
    chips: int
    rids: tuple[int, ...]
    ports: tuple[tuple[Port, ...], ...]
    switch_v1: bool = False

    def __post_init__(self) -> None:
        assert len(self.rids) == len(set(self.rids)) == len(self.ports) == self.chips

    @cached_property
    def chip_of_rid(self) -> dict[int, int]:
        """Routing id -> chip (user id)."""
        return {rid: chip for chip, rid in enumerate(self.rids)}

    @cached_property
    def neighbours(self) -> tuple[frozenset[int], ...]:
        """The chips that each chip has a cable to."""
        return tuple(frozenset(p for p in ports if p is not None) for ports in self.ports)

    def peer_rid(self, rid: int, port: int) -> int | None:
        """The routing id at the other end of *port*, None where there is none (`get_peer_rid`)."""
        chip = self.chip_of_rid.get(rid)
        if chip is None or not 0 <= port < PORTS:
            return None
        peer = self.ports[chip][port]
        return None if peer is None else self.rids[peer]

    def port_to(self, source: int, target: int) -> int | None:
        """The first port of chip *source* that leads straight to *target* (`get_p2p_port`)."""
        if not 0 <= source < self.chips:
            return None
        ports = self.ports[source]
        return ports.index(target) if target in ports else None

    @cached_property
    def distances(self) -> tuple[tuple[int | None, ...], ...]:
        """Links between every two chips along the shortest way, None where there is no way."""
        if self.shape in {"switch", "open"}:
            every = range(self.chips)
            return tuple(tuple(int(a != b) for b in every) for a in every)
        return tuple(self._from(chip) for chip in range(self.chips))

    def _from(self, start: int) -> tuple[int | None, ...]:
        found = {start: 0}
        queue = [start]
        for chip in queue:  # grows while it is read: breadth first
            for peer in sorted(self.neighbours[chip] - found.keys()):
                found[peer] = found[chip] + 1
                queue.append(peer)
        return tuple(found.get(chip) for chip in range(self.chips))

    def hops(self, a: int, b: int) -> int | None:
        """Links from chip *a* to *b*; through a switch counts as one."""
        return self.distances[a][b]


# Columns: up, left, down, right of the 4x4 grid, which are the four ports in order.
_TRN1_PORTS = (
    *((12, 3, 4, 1), (13, 0, 5, 2), (14, 1, 6, 3), (15, 2, 7, 0)),
    *((0, 7, 8, 5), (1, 4, 9, 6), (2, 5, 10, 7), (3, 6, 11, 4)),
    *((4, 11, 12, 9), (5, 8, 13, 10), (6, 9, 14, 11), (7, 10, 15, 8)),
    *((8, 15, 0, 13), (9, 12, 1, 14), (10, 13, 2, 15), (11, 14, 3, 12)),
)
# Port p belongs to sequencer engine p.
_TRN2_PORTS = (
    *((12, 1, 3, 4), (0, 13, 5, 2), (14, 3, 1, 6), (2, 15, 7, 0)),
    *((8, 5, 7, 0), (4, 9, 1, 6), (10, 7, 5, 2), (6, 11, 3, 4)),
    *((4, 9, 11, 12), (8, 5, 13, 10), (6, 11, 9, 14), (10, 7, 15, 8)),
    *((0, 13, 15, 8), (12, 1, 9, 14), (2, 15, 13, 10), (14, 3, 11, 12)),
)
TRN1_TORUS = Fabric(
    name="4x4 torus",
    shape="torus",
    chips=16,
    rids=(0, 2, 6, 4, 1, 3, 7, 5, 9, 11, 15, 13, 8, 10, 14, 12),
    ports=_TRN1_PORTS,
)
TRN2_TORUS = Fabric(
    name="4x4 torus",
    shape="torus",
    chips=16,
    rids=(0, 8, 9, 1, 2, 10, 11, 3, 6, 14, 15, 7, 4, 12, 13, 5),
    ports=_TRN2_PORTS,
)


def _row(chips: int, *, closed: bool) -> Fabric:
    """Chips in a row: port 0 leads to the one before, port 1 to the one after."""

    def beside(chip: int) -> Port:
        return chip % chips if closed or 0 <= chip < chips else None

    return Fabric(
        name=f"ring of {chips}" if closed else f"chain of {chips}",
        shape="ring" if closed else "chain",
        chips=chips,
        rids=tuple(range(chips)),
        ports=tuple((beside(chip - 1), beside(chip + 1), None, None) for chip in range(chips)),
    )


def _without_ports(name: str, shape: Shape, chips: int, *, switch_v1: bool = False) -> Fabric:
    return Fabric(
        name=name,
        shape=shape,
        chips=chips,
        rids=tuple(range(chips)),
        ports=((None,) * PORTS,) * chips,
        switch_v1=switch_v1,
    )


def open_fabric(chips: int) -> Fabric:
    """A host of *chips* devices about whose wiring nothing is claimed."""
    return _without_ports("not modelled", "open", chips)


INF2_RING = _row(12, closed=True)
INF2_CHAIN = _row(6, closed=False)
SINGLE = _without_ports("one chip", "single", 1)
# The PDS platform numbers its chips 0 to 15, the MAX platform 0 to 3 (facts §3.3).
TRN3_SWITCH = _without_ports("NeuronSwitch-v1", "switch", 16, switch_v1=True)
TRN3_SLED = _without_ports("switch in the sled", "switch", 4)
