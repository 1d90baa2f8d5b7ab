"""Random programs for laws: small worlds, every kind of op, loops and branches."""

from __future__ import annotations

from hypothesis import strategies as st

from rankmuster.program import (
    ON_PAIRS,
    POINT_TO_POINT,
    REDUCING,
    WITHOUT_DATA,
    Branch,
    Loop,
    Node,
    Op,
    OpKind,
    Program,
)
from rankmuster.testing.build import program

WORLD = 6
DTYPES = st.sampled_from(["f32", "bf16", "s8", "pred", "unknown"])
REDUCES = st.sampled_from(["add", "max", "avg", "custom:(a*b)", None])
SIZES = st.sampled_from([0, 1, 512, 1 << 20])
COLLECTIVES = sorted(set(OpKind) - ON_PAIRS - POINT_TO_POINT)


@st.composite
def group_sets(draw: st.DrawFn) -> list[list[int]]:
    """The world in a random order, cut into sub-groups."""
    ids = draw(st.permutations(range(WORLD)))
    cuts = sorted(draw(st.sets(st.integers(1, WORLD - 1), max_size=4)))
    return [list(ids[start:end]) for start, end in zip([0, *cuts], [*cuts, WORLD], strict=True)]


@st.composite
def pair_sets(draw: st.DrawFn) -> list[tuple[int, int]]:
    """A random injective map of some devices to others, self pairs included."""
    sources, targets = (draw(st.permutations(range(WORLD))) for _ in range(2))
    return list(zip(sources, targets, strict=True))[: draw(st.integers(1, WORLD))]


@st.composite
def ops(draw: st.DrawFn, *, groups: int, pairs: int, messages: bool) -> Op:
    """An op on one of the sets."""
    on_pairs = bool(pairs) and draw(st.booleans())
    kinds = sorted(ON_PAIRS) if on_pairs else COLLECTIVES
    kind = draw(st.sampled_from(kinds + sorted(POINT_TO_POINT) * 3 if messages else kinds))
    count = 0 if kind in WITHOUT_DATA else draw(st.integers(1, 2))
    even = kind in POINT_TO_POINT or draw(st.integers(0, 7)) != 0
    return Op(
        kind=kind,
        group=None if on_pairs else draw(st.integers(0, groups - 1)),
        pairs=draw(st.integers(0, pairs - 1)) if on_pairs else None,
        elements=tuple(draw(SIZES) for _ in range(count)),
        dtype=tuple(draw(DTYPES) for _ in range(count)),
        reduce=draw(REDUCES) if kind in REDUCING else None,
        root=draw(st.none() | st.integers(0, 3)),
        dimension=draw(st.none() | st.integers(0, 2)),
        input_splits=None if even else (1, 2, 3),
        peer=draw(st.integers(0, WORLD - 1)) if kind in POINT_TO_POINT else None,
        label=draw(st.sampled_from([None, "tag"])),
        stream=draw(st.sampled_from([None, 0, 1])),
        name=draw(st.sampled_from(["", "op.1"])),
        source=draw(st.sampled_from(["", "model.py:1"])),
    )


def nested(leaves: st.SearchStrategy[Op]) -> st.SearchStrategy[tuple[Node, ...]]:
    """A body of *leaves*, loops and branches."""
    node = st.recursive(
        leaves,
        lambda inner: (
            st.builds(
                Loop,
                trips=st.none() | st.integers(0, 3),
                body=st.lists(inner, max_size=3).map(tuple),
            )
            | st.builds(
                Branch,
                on=st.sampled_from(["rank", "data"]),
                bodies=st.lists(st.lists(inner, max_size=2).map(tuple), max_size=3).map(tuple),
            )
        ),
        max_leaves=6,
    )
    return st.lists(node, max_size=6).map(tuple)


@st.composite
def programs(draw: st.DrawFn, *, messages: bool = True) -> Program:
    """A program of `WORLD` devices; with *messages* it may send and receive."""
    groups = draw(st.lists(group_sets(), min_size=1, max_size=3))
    pairs = draw(st.lists(pair_sets(), max_size=2))
    leaves = ops(groups=len(groups), pairs=len(pairs), messages=messages)
    return program(*draw(nested(leaves)), groups=groups, pairs=pairs)
