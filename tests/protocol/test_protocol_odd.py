"""Whose signature is the odd one, from the edges of the tree that differ."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from rankmuster.protocol.bootstrap import tree_children, tree_parent
from rankmuster.protocol.odd import Signed, odd_ones, subtree_size, usual_signature


def seen(signatures: Mapping[int, str]) -> list[Signed]:
    """Both ends of every edge whose ends differ, as the parents report them."""
    size = len(signatures)
    odd = [r for r in range(1, size) if signatures[r] != signatures[tree_parent(r)]]
    return [
        Signed(size=size, rank=rank, process=rank, signature=signatures[rank])
        for child in odd
        for rank in (tree_parent(child), child)
    ]


@given(st.lists(st.sampled_from("aab"), min_size=2, max_size=70))
def test_the_usual_signature_is_that_of_more_than_half(held: list[str]) -> None:
    """The edges alone tell which signature most ranks hold, and nothing where none is."""
    most = max(set(held), key=held.count)
    wanted = most if 2 * held.count(most) > len(held) and len(set(held)) > 1 else None
    assert usual_signature(len(held), seen(dict(enumerate(held)))) == wanted


def test_groups_are_judged_apart() -> None:
    """A pair cannot tell who is wrong; the group of three beside it can."""
    three = [
        Signed(group="3", size=3, rank=rank, process=rank, signature="ab"[rank == 2])
        for rank in (0, 2)
    ]
    pair = [
        Signed(group="2", size=2, rank=rank, process=rank, signature="cd"[rank]) for rank in (0, 1)
    ]
    assert list(odd_ones([*pair, *three])) == [(three[1], "a")]


def test_subtrees_partition_the_tree() -> None:
    """A rank's subtree is itself and those of its children."""
    for size in range(1, 40):
        for rank in range(size):
            below = sum(subtree_size(child, size) for child in tree_children(rank, size))
            assert subtree_size(rank, size) == 1 + below
