"""Short builders of programs, for tests: ours and those of whoever builds on this library.

Defaults are the plainest that are legal, so that a test names only what it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rankmuster.group import GroupTable
from rankmuster.program import (
    ON_PAIRS,
    REDUCING,
    WITHOUT_DATA,
    Branch,
    Loop,
    Node,
    Op,
    OpKind,
    Program,
)

Members = Sequence[Sequence[int]]


def program(
    *ops: Node, groups: Iterable[Members] = (), pairs: Iterable[Members] = (), **rest: Any
) -> Program:
    """A program as JSON gives it: sets keep the order and the ids that they are given in.

    *rest* are further fields of `Program`.
    """
    table = GroupTable(fold_equal=False)
    for members in groups:
        table.add_groups(members)
    for edges in pairs:
        table.add_pairs((source, target) for source, target in edges)
    fields: dict[str, Any] = {
        "format": "json",
        "replica_groups": tuple(table.replica_groups),
        "src_target_pairs": tuple(table.src_target_pairs),
        "ops": ops,
    }
    return Program(**fields | rest)


def op(
    kind: OpKind | str,
    elements: int | Sequence[int] = 1024,
    dtype: str | Sequence[str] = "f32",
    **rest: Any,
) -> Op:
    """An op, on set 0 of its kind's table and adding where it reduces, unless *rest* says more."""
    kind = OpKind(kind)
    fields: dict[str, Any] = {"kind": kind}
    if "group" not in rest and "pairs" not in rest:
        fields["pairs" if kind in ON_PAIRS else "group"] = 0
    if kind not in WITHOUT_DATA:
        sizes = (elements,) if isinstance(elements, int) else tuple(elements)
        fields["elements"] = sizes
        fields["dtype"] = (dtype,) * len(sizes) if isinstance(dtype, str) else tuple(dtype)
    if kind in REDUCING:
        fields["reduce"] = "add"
    return Op(**fields | rest)


def all_reduce(elements: int | Sequence[int] = 1024, **rest: Any) -> Op:
    """An all-reduce that adds f32 on group 0."""
    return op(OpKind.ALL_REDUCE, elements, **rest)


def all_gather(elements: int | Sequence[int] = 1024, **rest: Any) -> Op:
    """An all-gather of f32 on group 0."""
    return op(OpKind.ALL_GATHER, elements, **rest)


def permute(elements: int | Sequence[int] = 1024, **rest: Any) -> Op:
    """A permute of f32 along pairs 0."""
    return op(OpKind.PERMUTE, elements, **rest)


def send(peer: int | None, elements: int = 1024, **rest: Any) -> Op:
    """A send of f32 to *peer* on group 0; None where it runs on `pairs=`."""
    return op(OpKind.SEND, elements, peer=peer, **rest)


def recv(peer: int | None, elements: int = 1024, **rest: Any) -> Op:
    """A receive of f32 from *peer* on group 0; None where it runs on `pairs=`."""
    return op(OpKind.RECV, elements, peer=peer, **rest)


def barrier(**rest: Any) -> Op:
    """A barrier on group 0."""
    return op(OpKind.BARRIER, **rest)


def loop(trips: int | None, *body: Node) -> Loop:
    """A loop of *trips* over *body*."""
    return Loop(trips=trips, body=body)


def branch(*bodies: Sequence[Node], on: Literal["rank", "data"] = "data") -> Branch:
    """A branch of which one of *bodies* runs."""
    return Branch(on=on, bodies=tuple(tuple(body) for body in bodies))
