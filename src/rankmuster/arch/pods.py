"""UltraServer pods: who is which node of four, elected from serial numbers (facts §3.5).

A pure rendering of the driver's election and of the views that its modes give.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from rankmuster.errors import InvalidCluster


class PodType(IntEnum):
    """`nec_pod_type` (facts §2.1)."""

    NONE = 0
    P2P = 1
    SWITCH = 2


class PodMode(IntEnum):
    """UltraServer mode: what of an elected pod a job uses (`NEURON_RT_ULTRASERVER_MODE`)."""

    UNSET = 0
    X4 = 1
    X2H = 2
    X2V = 3
    X1 = 4


LEFT_LINK, RIGHT_LINK = 1, 2  # bits of the link mask
BOTH_LINKS = LEFT_LINK | RIGHT_LINK
# Node in the pod of four -> node in its half; the halves are told apart by their serials.
_HALVES = {PodMode.X2H: (0, 0, 1, 1), PodMode.X2V: (0, 1, 0, 1)}
_SECOND_HALF = {PodMode.X2H: frozenset({1, 3}), PodMode.X2V: frozenset({2, 3})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A node's place in its pod: node -1, size 0 and serial 0 where it is alone."""

    node: int
    size: int
    serial: int


ALONE = Seat(node=-1, size=0, serial=0)


def elect(
    own: int, *, left: int, right: int, diagonal: int | None = None, links: int = BOTH_LINKS
) -> Seat:
    """A node's seat from the serial numbers of itself and of those it can see.

    With one link, or the same node behind both, it is a pod of two and the lower serial is node 0.
    With four nodes the lowest is node 0, its diagonal node 2, and the others are 1 or 3 by the side
    on which node 0 stands. Raises InvalidCluster for serials that cannot be told apart.
    """
    if not 0 < links <= BOTH_LINKS:
        raise InvalidCluster(f"link mask {links} is not 1 (left), 2 (right) or 3 (both)")
    if links != BOTH_LINKS or left == right:
        other = right if links == RIGHT_LINK else left
        return _pair(own, other)
    if diagonal is None or len({own, left, right, diagonal}) < 4:
        seen = ", ".join(map(str, (own, left, right, diagonal)))
        raise InvalidCluster(f"a pod of four needs four distinct serials, not {seen}")
    if own < min(diagonal, left, right):
        return Seat(node=0, size=4, serial=own)
    if own > diagonal and diagonal < min(left, right):
        return Seat(node=2, size=4, serial=diagonal)
    if left < right:
        return Seat(node=1, size=4, serial=left)
    return Seat(node=3, size=4, serial=right)


def _pair(own: int, other: int) -> Seat:
    if own == other:
        raise InvalidCluster(f"both nodes of a pod carry serial {own}")
    return Seat(node=int(own > other), size=2, serial=min(own, other))


def view(seat: Seat, mode: PodMode) -> Seat:
    """The seat as a job in *mode* sees it."""
    if mode is PodMode.X1 or (mode is PodMode.X4 and seat.size != 4):
        return ALONE
    if mode in _HALVES and seat.size == 4:
        serial = seat.serial - (seat.node in _SECOND_HALF[mode])
        return Seat(node=_HALVES[mode][seat.node], size=2, serial=serial)
    return seat


def supported(count: int, links: int) -> frozenset[PodMode]:
    """The modes that an elected pod of *count* nodes offers."""
    modes = {PodMode.X1}
    if count == 4:
        modes.add(PodMode.X4)
    if count >= 2 and links & LEFT_LINK:
        modes.add(PodMode.X2V)
    if count == 2 and links & RIGHT_LINK:
        modes.add(PodMode.X2H)
    return frozenset(modes)
