"""The two trees of a bootstrap."""

from __future__ import annotations

from itertools import pairwise

import pytest
from protocol_worlds import SIGNATURE, UNIQUE_ID

from rankmuster.protocol.bootstrap import (
    bootstrap,
    hypercube_children,
    hypercube_parent,
    tree_children,
    tree_parent,
)
from rankmuster.protocol.closing import closing
from rankmuster.testing.simulate import simulate

SIZES = range(1, 301)


@pytest.mark.parametrize(
    ("children", "parent"),
    [(tree_children, tree_parent), (hypercube_children, hypercube_parent)],
)
def test_every_rank_is_reached_exactly_once(children, parent) -> None:
    """For sizes 1 to 300, what parents send and what children wait for are the same edges."""
    for size in SIZES:
        down = [(rank, child) for rank in range(size) for child in children(rank, size)]
        up = [(parent(rank), rank) for rank in range(1, size)]
        assert sorted(down) == sorted(up)
        assert all(above < below for above, below in up)


def test_hypercube_is_the_original_loop() -> None:
    """The ticket's edges are those of S0's mask loop, in its order."""
    for size in SIZES:
        for rank in range(size):
            mask = 1
            while not mask & rank and mask < size:
                mask <<= 1
            if rank:
                assert hypercube_parent(rank) == rank & ~mask
            steps = [mask >> n for n in range(1, mask.bit_length())]
            wanted = [rank + step for step in steps if rank + step < size]
            assert list(hypercube_children(rank, size)) == wanted


def test_largest_subtree_goes_first() -> None:
    """Rank 0 of 16 serves 8 before 4, 2 and 1."""
    children = list(hypercube_children(0, 16))
    assert children == [8, 4, 2, 1]
    assert all(a > b for a, b in pairwise(children))


def test_a_bootstrap_costs_two_frames_a_rank() -> None:
    """Every rank but 0 sends one verdict of 17 bytes and is sent one ticket of 129."""
    for size in (1, 2, 3, 64, 300):
        world = simulate([bootstrap(n, size, SIGNATURE, UNIQUE_ID) for n in range(size)])
        assert world.messages == 2 * (size - 1)
        assert world.payload_bytes == (17 + 129) * (size - 1)
        assert set(world.outcome.values()) == {UNIQUE_ID}


def test_a_go_that_nobody_waits_for_is_a_no() -> None:
    """A root that stood still until all others gave up does not go alone."""
    ranks = [closing(n, 4, None, lambda: False) for n in range(4)]
    answers = simulate(ranks).outcome
    assert {answer.go for answer in answers.values()} == {False}
    assert {answer.causes[0].process for answer in answers.values()} == {0}
