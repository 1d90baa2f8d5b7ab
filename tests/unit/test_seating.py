"""Who sits where, how hosts are folded, and whose address is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.hosts import fold_hosts
from rankmuster.protocol.bootstrap import hypercube_children, tree_parent
from rankmuster.protocol.edges import destinations, neighbours
from rankmuster.seating import Seating, seating


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_every_device_has_its_process(counts, draw):
    """Seats and devices are each other's inverse, whatever shares processes hold."""
    devices = list(range(sum(counts)))
    draw.shuffle(devices)
    shares = sorted(sorted(devices.pop() for _ in range(count)) for count in counts)
    made = seating(shares)
    assert [list(made.devices_of(seat)) for seat in range(made.processes)] == shares
    assert all(
        made.seat_of(device) == seat for seat, share in enumerate(shares) for device in share
    )


def test_equal_shares_take_no_room():
    """Two numbers stand for any regular world."""
    assert seating([range(n, n + 4) for n in range(0, 4096, 4)]) == Seating(processes=1024, each=4)


@given(st.integers(1, 70), st.data())
def test_a_rank_dials_nobody_whose_address_it_did_not_ask_for(size, data):
    """All edges of both trees and of the barrier are among the destinations."""
    rank = data.draw(st.integers(0, size - 1))
    there = destinations(rank, size)
    assert set(hypercube_children(rank, size)) <= there
    assert rank == 0 or tree_parent(rank) in there
    distance = 1
    while distance < size:
        assert (rank + distance) % size in there
        distance <<= 1


@given(st.integers(1, 70), st.data())
def test_who_sends_to_a_rank_is_its_neighbour(size, data):
    """Whoever has a rank among its destinations is among that rank's neighbours, and back."""
    rank = data.draw(st.integers(0, size - 1))
    from_there = {other for other in range(size) if rank in destinations(other, size)}
    assert neighbours(rank, size) == destinations(rank, size) | from_there


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["head"], "head"),
        (["trn07", "trn09", "trn08", "head"], "head,trn[07-09]"),
        (["trn7", "trn07"], "trn07,trn7"),
        (["ip-10-0-0-1", "ip-10-0-0-2"], "ip-10-0-0-[1-2]"),
        (["node3.cluster", "node4.cluster"], "node[3-4].cluster"),
    ],
)
def test_hosts_are_folded_by_their_last_number(names, folded):
    """As Slurm writes them."""
    assert fold_hosts(names) == folded
