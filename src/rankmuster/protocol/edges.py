"""With whom a rank of a group talks, known before anybody is dialled: so addresses can be asked.

The edges of the bootstrap's two trees carry the local barrier and a gather too; a caller's barrier
goes round in powers of two.
"""

from __future__ import annotations

from rankmuster.protocol.bootstrap import (
    hypercube_children,
    hypercube_parent,
    tree_children,
    tree_parent,
)


def tree_destinations(rank: int, size: int) -> set[int]:
    """Ranks that a bootstrap, or a gather, sends to."""
    up = {tree_parent(rank)} if rank else set()
    return up | set(hypercube_children(rank, size))


def destinations(rank: int, size: int) -> set[int]:
    """Ranks that anything in a communicator sends to: some two for each bit of its size."""
    around = {(rank + (1 << bit)) % size for bit in range((size - 1).bit_length())}
    return tree_destinations(rank, size) | around


def neighbours(rank: int, size: int) -> set[int]:
    """Ranks that anything in a communicator sends to, and those from which it hears."""
    around = {(rank - (1 << bit)) % size for bit in range((size - 1).bit_length())}
    above = {hypercube_parent(rank)} if rank else set()
    return destinations(rank, size) | around | above | set(tree_children(rank, size))
