"""Which connection leads to which other process of the plan, and who of them is gone.

Knows no socket and no message: connections are handles, processes are seats. Until go, processes of
the root's host reach each other by the root: a connection costs far more than a frame.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankmuster.seating import Seating
from rankmuster.transport.base import Identity

ROOT = 0  # its seat


class Peers:
    """One process's ways to the others, the connections of the census among them.

    There is no `seating` until there is a plan that goes on; peers may dial us before.
    """

    def __init__(self) -> None:
        self.seating: Seating | None = None
        self.seat = ROOT
        """Our own."""
        self.local: tuple[int, ...] = ()
        """The seats on our host, ascending, ours among them."""
        self.by_root: frozenset[int] = frozenset()
        """The same, where they and we reach each other by the root."""
        self.gone: set[int] = set()
        self._census: dict[int, int] = {}  # seat -> handle: at the root all, elsewhere the root's
        self._passed_on: dict[int, int] = {}  # at the root: device on its host -> census handle
        self._dialled: dict[int, int] = {}  # seat -> handle to send on
        self._inbound: dict[int, Identity] = {}  # handles of peers that send to us
        self._knocking: dict[int, int] = {}  # handle -> seat on the root's host, not proven yet
        self._cut: set[int] = set()  # seats of those whose other connections have ended

    def reach_root(self, handle: int) -> None:
        """The root is at the other end of this connection; we are not it."""
        self._census[ROOT] = handle

    def take_seats(self, seating: Seating, first_device: int, local: tuple[int, ...]) -> None:
        """The plan is there: *first_device* is ours, and these processes are on our host."""
        self.seating, self.local = seating, local
        self.seat = seating.seat_of(first_device)

    def lead(self, census: Sequence[int]) -> None:
        """We are the root, and these are the connections of the census, by seat."""
        self._census = dict(enumerate(census))

    def meet_at_root(self) -> None:
        """If we are on the root's host: reach the others there by it; as the root, pass it on."""
        assert self.seating is not None
        if ROOT not in self.local:
            return
        self.by_root = frozenset(self.local)
        if self.seat == ROOT:
            self._passed_on = {
                device: self._census[seat]
                for seat in self.by_root - {ROOT}
                for device in self.seating.devices_of(seat)
            }

    def seat_of(self, device: int) -> int:
        """The process that holds a device of the plan."""
        assert self.seating is not None
        return self.seating.seat_of(device)

    # where frames go

    def way_to(self, seat: int, *, by_root: bool) -> int | None:
        """The connection on which we send to a process, None where it has to be dialled first.

        It stays the same from the first frame on, for frames of two connections may overtake.
        """
        if by_root and seat in self.by_root:
            return self._census[seat if self.seat == ROOT else ROOT]
        if seat not in self._dialled:
            theirs = (h for h, who in self._inbound.items() if self._is_at(seat, who))
            if (handle := next(theirs, None)) is not None:
                self._dialled[seat] = handle
        return self._dialled.get(seat)

    def dial(self, seat: int, handle: int) -> None:
        """We dialled a process, to send to it."""
        self._dialled[seat] = handle

    def seats_dialled(self) -> dict[int, int]:
        """The living processes to which we send directly, by handle."""
        return {h: seat for seat, h in self._dialled.items() if seat not in self.gone}

    def is_passed_on(self, device: int) -> bool:
        """Whether frames for *device* go through us, the root."""
        return device in self._passed_on

    def passed_on(self, handle: int, source: int, destination: int) -> int | None:
        """Where such a frame goes on; None if its *source* is no device behind that *handle*."""
        return self._passed_on[destination] if self._passed_on.get(source) == handle else None

    # who comes and who goes

    def knock(self, handle: int, who: Identity) -> None:
        """A peer is about to prove itself: its last words may come that way."""
        if self.by_root and (seat := self.seat_of(who.first_device)) in self.by_root:
            self._knocking[handle] = seat

    def join(self, handle: int, who: Identity) -> None:
        """A peer that dialled us has proven itself."""
        self._knocking.pop(handle, None)
        self._inbound[handle] = who

    def behind(self, handle: int) -> int | None:
        """The process at the other end of a connection; None for one that has no seat."""
        if handle in self._knocking:
            return self._knocking[handle]
        if handle in self._inbound:
            return self.seat_of(self._inbound[handle].first_device)
        ways = (*self._census.items(), *self._dialled.items())
        return next((seat for seat, way in ways if way == handle), None)

    def is_census(self, handle: int) -> bool:
        """Whether the closing round runs over a connection."""
        return handle in self._census.values()

    def lose(self, handle: int) -> int | None:
        """A connection has ended; return whose, None where only a handshake failed."""
        seat = self.behind(handle)
        if self._knocking.pop(handle, None) is not None and seat not in self._cut:
            return None
        self._inbound.pop(handle, None)
        if seat is not None and seat in self._knocking.values():
            self._cut.add(seat)
        return seat

    def has_left(self, seat: int) -> bool:
        """Whether a process of which a connection has ended can send us nothing more.

        Connections do not wait for each other: its last frames may be on the one that it dialled,
        or on the one that it is dialling.
        """
        if self.seating is None or seat in self._knocking.values():
            return False
        return not any(self._is_at(seat, who) for who in self._inbound.values())

    def _is_at(self, seat: int, who: Identity) -> bool:
        return self.seat_of(who.first_device) == seat
