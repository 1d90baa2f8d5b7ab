"""Which connection leads to whom, and when somebody has left for good."""

from __future__ import annotations

from rankmuster.peers import Peers
from rankmuster.seating import Seating
from rankmuster.transport.base import Identity


def peers(seat: int, *, local: tuple[int, ...] = (0, 1, 2)) -> Peers:
    """Four processes of two devices each; the connections of the census are 100 and more."""
    made = Peers()
    if seat:
        made.reach_root(100)
    made.take_seats(Seating(processes=4, each=2), 2 * seat, local)
    if not seat:
        made.lead([0, 101, 102, 103])
    made.meet_at_root()
    return made


def at(seat: int) -> Identity:
    return Identity(seat, 2 * seat, 2)


def test_the_roots_host_meets_at_the_root_until_go():
    """Then, and with all others, a process is dialled, or answered where it has dialled us."""
    one = peers(1)
    assert [one.way_to(seat, by_root=True) for seat in (0, 2, 3)] == [100, 100, None]
    assert one.way_to(2, by_root=False) is None
    one.join(7, at(2))
    one.dial(3, 8)
    assert [one.way_to(seat, by_root=False) for seat in (2, 3)] == [7, 8]


def test_other_hosts_reach_nobody_by_the_root():
    """Not even the root: a connection of its own, as for everybody."""
    three = peers(3, local=(3,))
    assert [three.way_to(seat, by_root=True) for seat in (0, 1, 2)] == [None] * 3


def test_the_way_stays_the_same_from_the_first_frame_on():
    """A peer that dials later is heard on its connection, and still told on ours."""
    one = peers(1)
    one.dial(3, 8)
    one.join(7, at(3))
    assert one.way_to(3, by_root=True) == 8


def test_the_root_passes_on_what_a_process_of_its_host_sends_for_its_own_devices():
    """Not what it sends in another's name."""
    root = peers(0)
    assert [device for device in range(8) if root.is_passed_on(device)] == [2, 3, 4, 5]
    assert root.passed_on(101, source=2, destination=5) == 102
    assert root.passed_on(101, source=4, destination=2) is None


def test_who_has_other_connections_has_not_left():
    """Its last frames may be on any that it dialled, or that it is dialling."""
    one = peers(1)
    one.join(7, at(3))
    one.dial(3, 8)
    assert (one.lose(8), one.has_left(3)) == (3, False)
    assert (one.lose(7), one.has_left(3)) == (3, True)
    one.knock(9, at(2))
    one.join(5, at(2))
    assert (one.lose(5), one.has_left(2)) == (2, False)
    assert (one.lose(9), one.has_left(2)) == (2, True)


def test_a_handshake_that_fails_is_nobodys_end():
    """Somebody else may have repeated a hello."""
    one = peers(1)
    one.knock(9, at(2))
    assert one.lose(9) is None
    assert one.lose(55) is None


def test_without_a_plan_only_the_root_can_be_lost():
    """A peer may dial before our plan comes."""
    early = Peers()
    early.reach_root(100)
    assert (early.lose(100), early.is_census(100), early.has_left(0)) == (0, True, False)
