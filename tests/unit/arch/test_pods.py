"""Pod election and the views of its modes (facts §3.5)."""

from __future__ import annotations

from itertools import permutations

import pytest

from rankmuster.arch.pods import ALONE, PodMode, Seat, elect, supported, view
from rankmuster.errors import InvalidCluster


def ring_of(serials: tuple[int, int, int, int]) -> list[Seat]:
    """Each node's own election in a ring of four: left, right and the one across."""
    return [
        elect(
            serials[at],
            left=serials[at - 1],
            right=serials[(at + 1) % 4],
            diagonal=serials[(at + 2) % 4],
        )
        for at in range(4)
    ]


def test_four_nodes_agree() -> None:
    """Whatever the serials, four nodes take four seats and one leader, counted along the ring."""
    for serials in permutations((3, 5, 8, 13)):
        seats = ring_of(serials)
        assert {seat.serial for seat in seats} == {3}
        first = serials.index(3)
        assert [seats[(first + step) % 4].node for step in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("links", [1, 2])
def test_two_nodes(links: int) -> None:
    """With one link the lower serial is node 0 of two."""
    seats = [elect(7, left=9, right=9, links=links), elect(9, left=7, right=7, links=links)]
    assert seats == [Seat(node=0, size=2, serial=7), Seat(node=1, size=2, serial=7)]


def test_the_same_node_on_both_sides() -> None:
    """Two cables to one neighbour make a pod of two."""
    assert elect(4, left=2, right=2) == Seat(node=1, size=2, serial=2)


@pytest.mark.parametrize(
    ("own", "left", "right", "diagonal", "links"),
    [(1, 1, 1, None, 1), (1, 2, 3, 2, 3), (1, 2, 3, None, 3), (1, 2, 3, 4, 0), (1, 2, 3, 4, 4)],
)
def test_serials_that_cannot_be(
    own: int, left: int, right: int, diagonal: int | None, links: int
) -> None:
    """Equal serials and impossible link masks are refused."""
    with pytest.raises(InvalidCluster):
        elect(own, left=left, right=right, diagonal=diagonal, links=links)


FOUR = [Seat(node=node, size=4, serial=9) for node in range(4)]


@pytest.mark.parametrize(
    ("mode", "nodes", "serials"),
    [
        (PodMode.UNSET, [0, 1, 2, 3], [9, 9, 9, 9]),
        (PodMode.X4, [0, 1, 2, 3], [9, 9, 9, 9]),
        (PodMode.X2H, [0, 0, 1, 1], [9, 8, 9, 8]),
        (PodMode.X2V, [0, 1, 0, 1], [9, 9, 8, 8]),
        (PodMode.X1, [-1, -1, -1, -1], [0, 0, 0, 0]),
    ],
)
def test_views_of_four(mode: PodMode, nodes: list[int], serials: list[int]) -> None:
    """Each mode shows its own part of a pod of four, halves with different serials."""
    seen = [view(seat, mode) for seat in FOUR]
    assert ([seat.node for seat in seen], [seat.serial for seat in seen]) == (nodes, serials)
    halves = {(seat.serial, seat.node) for seat in seen}
    assert mode is PodMode.X1 or len(halves) == 4


def test_views_of_two() -> None:
    """A pod of two is no pod of four, and is its own half."""
    seat = Seat(node=1, size=2, serial=9)
    assert view(seat, PodMode.X4) == ALONE
    assert view(seat, PodMode.X2H) == view(seat, PodMode.X2V) == seat


def test_supported_modes() -> None:
    """A pod offers the modes that its nodes and links allow."""
    assert supported(4, 3) == {PodMode.X1, PodMode.X4, PodMode.X2V}
    assert supported(2, 2) == {PodMode.X1, PodMode.X2H}
    assert supported(1, 3) == {PodMode.X1}
