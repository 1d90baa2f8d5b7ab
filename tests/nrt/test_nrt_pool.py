"""The pool of communicator nodes: keys, counts, streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.errors import BadArgument, InvariantError, PoolExhausted, SetupFailed
from rankmuster.pool import CommNode, CommunicatorPool, bootstrap_order, pool_key
from rankmuster.status import Status


def node(*participants: int, stream: int = 0) -> CommNode:
    key = pool_key(participants, len(participants))
    return CommNode(key=key, stream_id=stream, context_id=0, disable_graph=True)


def nothing(_: CommNode) -> None:
    """Neither build nor reuse does anything."""


def test_key_is_the_byte_image() -> None:
    """Four bytes a participant, in order; a list of another length than the group is refused."""
    assert pool_key((1, 258), 2).hex() == "0100000002010000"
    assert pool_key((0, 1), 2) != pool_key((1, 0), 2)
    with pytest.raises(BadArgument):
        pool_key((0, 1), 3)


def test_key_order() -> None:
    """Declared order keeps [1, 0] apart from [0, 1]; sorted order, and its hazard, does not."""
    assert bootstrap_order((1, 0), "declared") == (1, 0)
    assert bootstrap_order((1, 0), "sorted") == bootstrap_order((0, 1), "sorted") == (0, 1)


def test_hit_and_miss() -> None:
    """The first builds, the second reuses and counts; the last release is the one to destroy."""
    pool = CommunicatorPool()
    built, reused = [], []
    first = pool.acquire(node(0, 1), built.append, reused.append)
    second = pool.acquire(node(0, 1), built.append, reused.append)
    assert (first is second, first.refcnt, built, reused) == (True, 2, [first], [first])
    assert [pool.release(first), len(pool), pool.release(first), len(pool)] == [False, 1, True, 0]


def test_streams_have_nodes_of_their_own() -> None:
    """The same participants on two streams are two nodes (D25); a fifth stream is refused."""
    pool = CommunicatorPool()
    made = [pool.acquire(node(0, 1, stream=s), nothing, nothing) for s in range(4)]
    assert len(set(map(id, made))) == len(pool) == 4
    with pytest.raises(PoolExhausted) as caught:
        pool.acquire(node(0, 1, stream=4), nothing, nothing)
    assert caught.value.status is Status.RESOURCE


def test_half_built_nodes_go() -> None:
    """A build that fails takes its node out again; a reuse that fails counts for nothing."""
    pool = CommunicatorPool()

    def fail(_: CommNode) -> None:
        raise SetupFailed("no")

    with pytest.raises(SetupFailed):
        pool.acquire(node(0, 1), fail, nothing)
    assert len(pool) == 0
    kept = pool.acquire(node(0, 1), nothing, nothing)
    with pytest.raises(SetupFailed):
        pool.acquire(node(0, 1), nothing, fail)
    assert (kept.refcnt, len(pool)) == (1, 1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=40))
def test_counts_never_go_below_zero(steps: list[tuple[bool, int]]) -> None:
    """Whatever the order, a node lives exactly as long as somebody holds it."""
    pool = CommunicatorPool()
    held: list[CommNode] = []
    for take, which in steps:
        if take:
            held.append(pool.acquire(node(which, 9), nothing, nothing))
        elif held:
            pool.release(held.pop(which % len(held)))
        assert {id(n): n.refcnt for n in pool} == {id(n): sum(m is n for m in held) for n in held}


def test_released_once_too_often() -> None:
    """Giving back what is not held is our own bug."""
    pool = CommunicatorPool()
    taken = pool.acquire(node(0, 1), nothing, nothing)
    pool.release(taken)
    with pytest.raises(InvariantError):
        pool.release(taken)
