"""Processes of one machine come up: ours with a verdict, over what peers do without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import OURS, Case, Contestant, Goal
from processes import own_clock

GLOO, STORE, JAX, MPICH = "torch gloo", "torch TCPStore + barrier", "jax", "MPICH Init + barrier"
NEW_GROUP, CREATE_GROUP = "torch new_group", "MPI Create_group"
UNCHECKED = "the same, unchecked"


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: ARG001, FBT001 - every row's form
    """The world for four sizes against four peers; 256 communicators; the verdict's own cost."""
    for size in (8, 64) if quick else (8, 16, 32, 64):
        # One goal a case: each peer is asked by itself, in turns with ours.
        for who, peer, ratio in (
            ("gloo", GLOO, 0.15),
            ("store", STORE, 2.0),
            ("jax", JAX, 0.1),
            ("mpi", MPICH, 0.1),
        ):
            yield versus(f"bring-up of {size}", "rankmuster", [(who, peer)], size, peer, ratio)
    for who, peer, ratio in (
        ("new_group", NEW_GROUP, 0.01),
        ("mpi_groups", CREATE_GROUP, 0.2),
    ):
        name = "256 communicators over 16"
        yield versus(name, "communicators", [(who, peer)], 16, peer, ratio)
    name = "verdict's own cost at 64"
    yield versus(name, "rankmuster", [("unchecked", UNCHECKED)], 64, UNCHECKED, 1.15)


def versus(
    name: str, us: str, others: Sequence[tuple[str, str]], size: int, peer: str, ratio: float
) -> Case:
    """Ours and its peers, each in processes that are started anew for every figure."""
    who = [(us, OURS), *others]
    return Case(
        name=name,
        contestants=tuple(
            Contestant(
                name=label, prepare=lambda child=child: own_clock("bring_up.py", child, str(size))
            )
            for child, label in who
        ),
        goal=Goal(peer=peer, ratio=ratio),
    )
