from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster import partition
from rankmuster.partition import ConnectedComponents, DisjointSet, components, grouped, label

IDS = st.integers(0, 30) | st.integers(0, 2**32 - 1)
EDGES = st.lists(st.tuples(IDS, IDS), max_size=60)


def unrolled_find(rep: dict[int, int], x: int) -> int:
    """S1 §2 line by line: four levels written out, a call of itself below them."""
    if rep[x] == x:
        return rep[x]
    p1 = rep[x]
    if rep[p1] == p1:
        rep[x] = p1
        return p1
    p2 = rep[p1]
    if rep[p2] != p2:
        p3 = rep[p2]
        if rep[p3] != p3:
            p4 = rep[p3]
            if rep[p4] != p4:
                rep[p4] = unrolled_find(rep, rep[p4])
            rep[p3] = rep[p4]
        rep[p2] = rep[p3]
    rep[p1] = rep[p2]
    rep[x] = rep[p1]
    return rep[x]


@given(st.lists(st.integers(0, 2**16), max_size=40), st.lists(st.integers(0, 39), max_size=10))
def test_find_leaves_the_forest_of_the_unrolled_walk(above: list[int], asked: list[int]) -> None:
    """Two passes and the original's walk find the same roots and leave the same forest."""
    # Vertex n hangs below an earlier one, or itself: every forest, deep chains included.
    forest = {vertex: choice % (vertex + 1) for vertex, choice in enumerate([0, *above])}
    ours, theirs = DisjointSet(), dict(forest)
    ours.representative = dict(forest)
    for vertex in (each % len(forest) for each in asked):
        assert ours.find_set(vertex) == unrolled_find(theirs, vertex)
        assert ours.representative == theirs


def test_find_follows_a_long_chain_without_recursion() -> None:
    """A chain of ten thousand costs no stack, and all of it ends below the root."""
    chain = DisjointSet()
    chain.representative = {vertex: max(vertex - 1, 0) for vertex in range(10_000)}
    assert chain.find_set(9_999) == 0
    assert set(chain.representative.values()) == {0}


def test_find_never_reads_rank() -> None:
    """The heights are for union alone."""
    sets = ConnectedComponents([(1, 2), (2, 3)]).sets
    sets.rank.clear()
    assert sets.find_set(3) == 1


def test_the_first_root_wins_a_tie_and_grows() -> None:
    """Of two trees of one height the first named hangs the other below it."""
    sets = ConnectedComponents([(7, 3), (9, 3)]).sets
    assert sets.representative == {7: 7, 3: 7, 9: 7}
    assert sets.rank == {7: 1, 3: 0, 9: 0}


def test_the_higher_tree_wins() -> None:
    """A lower tree hangs below a higher one, whichever is named first, and nothing grows."""
    sets = ConnectedComponents([(1, 2), (5, 1)]).sets
    assert sets.representative == {1: 1, 2: 1, 5: 1}
    assert sets.rank[1] == 1


def test_universe_lists_ids_by_first_appearance() -> None:
    """The ids keep the order in which the edges name them."""
    found = ConnectedComponents([(4, 9), (2, 4), (2, 2)])
    assert (found.universe, found.num_vertices) == ([4, 9, 2], 3)


def test_get_connected_answers_for_a_global_id() -> None:
    """The device's root selects its component among all of them."""
    found, root = ConnectedComponents([(10, 30), (20, 40)]).get_connected(40)
    assert root is not None
    assert (found, found[root]) == ({10: [10, 30], 20: [20, 40]}, [20, 40])


def test_an_outsider_has_no_component() -> None:
    """A device that no pair names stays out (facts D30)."""
    assert ConnectedComponents([(0, 1)]).get_connected(5) == ({0: [0, 1]}, None)


def test_strict_outsider_lands_with_vertex_0() -> None:
    """The original's map inserts a missing id below vertex 0 (facts D30)."""
    assert ConnectedComponents([(1, 0)]).get_connected(5, strict_cpp=True) == ({1: [1, 0]}, 1)


def test_strict_outsider_may_land_in_no_component() -> None:
    """Without a vertex 0 the original's outsider gets a root that nothing stands under."""
    assert ConnectedComponents([(1, 2)]).get_connected(5, strict_cpp=True) == ({1: [1, 2]}, 0)


def test_members_follow_the_sorted_pairs() -> None:
    """Members stand in order of first appearance over the sorted pairs, not by number (D31)."""
    assert components([(7, 1), (0, 9), (9, 4), (5, 5)]) == ((0, 9, 4), (5,), (7, 1))


def test_no_pairs_make_no_components() -> None:
    """Nothing comes of nothing, on both paths."""
    assert components([]) == grouped(np.empty((0, 2), dtype=np.int64)) == ()


@given(EDGES)
def test_arrays_give_the_components_of_the_forest(edges: list[tuple[int, int]]) -> None:
    """The array path and lists return the same components in the same order."""
    forest = tuple(map(tuple, ConnectedComponents(sorted(edges)).components().values()))
    assert grouped(np.array(edges, dtype=np.int64).reshape(-1, 2)) == components(edges) == forest


@given(EDGES)
def test_labels_say_who_is_joined(edges: list[tuple[int, int]]) -> None:
    """Ids have one label exactly when one component holds them; components count by least id."""
    found = label(np.array(edges, dtype=np.int64).reshape(-1, 2))
    parts = sorted(map(sorted, components(edges)))
    numbers = range(found.number)
    assert [found.vertices[found.labels == number].tolist() for number in numbers] == parts


@given(st.integers(1, 400), st.randoms(use_true_random=False))
def test_arrays_join_a_shuffled_ring(size: int, random: np.random.Generator) -> None:
    """The longest paths come out whole."""
    ids = list(range(size))
    random.shuffle(ids)
    ring = list(zip(ids, [*ids[1:], ids[0]], strict=True))
    assert label(np.array(ring)).number == 1


def test_arrays_hold_more_edges_than_32_bits_can_number() -> None:
    """A pair of places is a number beyond 32 bits once there are 65536 of them."""
    chain = [(device + 1, device) for device in range(70_000)]
    assert grouped(np.array(chain)) == ((1, 0, *range(2, 70_001)),)


@pytest.mark.parametrize("largest", [5, 2**62, 2**80])
def test_a_long_list_takes_the_array_path(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    """From some length on arrays do the work, and ids that no word holds still do not break."""
    monkeypatch.setattr(partition, "ARRAYS_FROM", 1)
    assert components([(3, 4), (largest, 3)]) == ((3, 4, largest),)
