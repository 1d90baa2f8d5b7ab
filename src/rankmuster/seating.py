"""Which process of a plan holds which devices, in few bytes however many there are.

Processes are numbered by their lowest device, so the root comes first; such a number is a *seat*.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from rankmuster.protocol.edges import tree_destinations
from rankmuster.ranks import fold, unfold


class Seating(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """`processes` seats: each of the next `each` devices, or, where that is 0, as `shares` say."""

    processes: int
    each: int = 0
    shares: tuple[str, ...] = ()

    def devices_of(self, seat: int) -> tuple[int, ...]:
        """The devices of one process, ascending."""
        if self.each:
            return tuple(range(seat * self.each, (seat + 1) * self.each))
        return unfold(self.shares[seat])

    def firsts_of(self, seats: Sequence[int]) -> tuple[int, ...]:
        """The lowest device of each of these processes."""
        if self.each:
            return tuple([seat * self.each for seat in seats])
        return tuple(self.devices_of(seat)[0] for seat in seats)

    def seat_of(self, device: int) -> int:
        """The process that holds a device."""
        return device // self.each if self.each else self._by_device[device]

    @cached_property
    def _by_device(self) -> dict[int, int]:
        return {device: seat for seat, share in enumerate(self.shares) for device in unfold(share)}


def seating(shares: Sequence[Sequence[int]]) -> Seating:
    """The seating of processes with these ascending devices, in order of their first."""
    each = len(shares[0])
    alike = [list(range(first, first + each)) for first in range(0, each * len(shares), each)]
    if list(map(list, shares)) == alike:
        return Seating(processes=len(shares), each=each)
    return Seating(processes=len(shares), shares=tuple(map(fold, shares)))


class AddressBook:
    """Who needs whose address: by what each process wants, and by who shares its host.

    *hosts* and *wants* (folded devices) are those of each seat.
    """

    def __init__(self, seated: Seating, hosts: Sequence[str], wants: Sequence[str]) -> None:
        self._seating, self._hosts, self._wants = seated, hosts, wants
        self._by_host: dict[str, list[int]] = {}
        for seat, host in enumerate(hosts):
            self._by_host.setdefault(host, []).append(seat)
        self._local = {host: fold(seats) for host, seats in self._by_host.items()}

    def local_to(self, seat: int) -> str:
        """The seats on the same host, folded."""
        return self._local[self._hosts[seat]]

    def wanted_by(self, seat: int) -> set[int]:
        """The seats that this one will dial; those it asked for, and of its host's barrier."""
        there = range(self._seating.processes)
        wanted = set(map(self._seating.seat_of, unfold(self._wants[seat])))
        local = self._by_host[self._hosts[seat]]
        edges = tree_destinations(local.index(seat), len(local))
        return (wanted | {local[rank] for rank in edges}).intersection(there) - {seat}
