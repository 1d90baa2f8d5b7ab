"""Processes of one machine come up: ours with a verdict, over what peers do without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness import OURS, Case, Contestant, Goal
from processes import own_clock

GLOO, STORE, JAX, MPICH = "torch gloo", "torch TCPStore + barrier", "jax", "MPICH Init + barrier"
NEW_GROUP, CREATE_GROUP = "torch new_group", "MPI Create_group"
UNCHECKED = "the same, unchecked"
LARGEST = 64  # processes, for which the goals are


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: ARG001, FBT001 - every row's form
    """The world for four sizes against four peers; 256 communicators; the verdict's own cost."""
    for size in (8, LARGEST) if quick else (8, 16, 32, LARGEST):
        # One goal a case: each peer is asked by itself, in turns with ours.
        for who, peer, ratio in (
            ("gloo", GLOO, 0.15),
            ("store", STORE, 2.0),
            ("jax", JAX, 0.1),
            ("mpi", MPICH, 0.1),
        ):
            goal = Goal(peer=peer, ratio=ratio) if size == LARGEST else None
            yield versus(f"bring-up of {size}", "rankmuster", who, peer, size, goal)
    for who, peer, ratio in (
        ("new_group", NEW_GROUP, 0.01),
        ("mpi_groups", CREATE_GROUP, 0.2),
    ):
        name = "256 communicators over 16"
        goal = Goal(peer=peer, ratio=ratio)
        yield versus(name, "communicators", who, peer, 16, goal)
    name, goal = f"verdict's own cost at {LARGEST}", Goal(peer=UNCHECKED, ratio=1.15)
    yield versus(name, "rankmuster", "unchecked", UNCHECKED, LARGEST, goal)


def versus(name: str, us: str, who: str, peer: str, size: int, goal: Goal | None) -> Case:
    """Ours and a peer, each in processes that are started anew for every figure."""
    return Case(
        name=name,
        contestants=tuple(
            Contestant(
                name=label, prepare=lambda child=child: own_clock("bring_up.py", child, str(size))
            )
            for child, label in ((us, OURS), (who, peer))
        ),
        goal=goal,
    )
