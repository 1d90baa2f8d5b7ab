"""Which devices a set of source-target pairs joins: the union-find of S1, and an array twin.

Knows ids and edges only: nothing of programs, groups or the world. `ConnectedComponents` keeps the
original's exact forest; where only the components are wanted, `components` finds the same ones in
the same order with less ado, by arrays where edge lists are large (numpy is imported only then).
"""

from __future__ import annotations

from itertools import pairwise

TYPE_CHECKING = False  # typing itself takes as long to import as ten thousand edges to join
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.signedinteger[Any]]

ARRAYS_FROM = 1 << 15
"""The number of edges from which importing numpy (150 ms) costs less than it saves."""


class DisjointSet:
    """A forest of rooted trees, one per set (`disjoint_set<unsigned, true>`, S1 §1).

    Two maps over sparse ids: `representative` (id -> parent) and `rank` (root -> height), which
    only `union` reads.
    """

    __slots__ = ("rank", "representative")

    def __init__(self) -> None:
        self.representative: dict[int, int] = {}
        self.rank: dict[int, int] = {}

    def make_set(self, vertex: int) -> None:
        """Put *vertex* into a tree of its own."""
        self.representative[vertex] = vertex
        self.rank[vertex] = 0

    def find_set(self, vertex: int) -> int:
        """Return the root of *vertex* and hang every id on the way directly below it.

        Two passes leave the forest that the original's walk, unrolled four deep, leaves (S1 §2).
        Raises KeyError for an id that `make_set` has not seen.
        """
        parent = self.representative
        root = vertex
        while (above := parent[root]) != root:
            root = above
        while (above := parent[vertex]) != root:
            parent[vertex] = root
            vertex = above
        return root

    def union(self, a: int, b: int) -> None:
        """Join the sets of *a* and *b*; of equal heights, *a*'s root wins and grows (S1 §3)."""
        root_a, root_b = self.find_set(a), self.find_set(b)
        if root_a == root_b:
            return
        height_a, height_b = self.rank[root_a], self.rank[root_b]
        if height_a < height_b:
            self.representative[root_a] = root_b
            return
        self.representative[root_b] = root_a
        if height_a == height_b:
            self.rank[root_a] = height_a + 1


class ConnectedComponents:
    """The components that *edges* make (`connected_components<unsigned, true>`, S1 §3).

    `edges` keeps the order given (the caller sorts, S1 §3 P2); `universe` lists the distinct ids
    by first appearance; `num_vertices` is its length. A self pair makes a component of one.
    """

    __slots__ = ("edges", "num_vertices", "sets", "universe")

    def __init__(self, edges: Iterable[tuple[int, int]]) -> None:
        self.edges = tuple(edges)
        self.universe = list(dict.fromkeys(vertex for edge in self.edges for vertex in edge))
        self.num_vertices = len(self.universe)
        self.sets = DisjointSet()
        for vertex in self.universe:
            self.sets.make_set(vertex)
        for source, target in self.edges:
            self.sets.union(source, target)

    def components(self) -> dict[int, list[int]]:
        """Every component by its root; roots and members in universe order."""
        found: dict[int, list[int]] = {}
        for vertex in self.universe:
            found.setdefault(self.sets.find_set(vertex), []).append(vertex)
        return found

    def get_connected(
        self, device: int, *, strict_cpp: bool = False
    ) -> tuple[dict[int, list[int]], int | None]:
        """Every component by its root, and the root of *device*, a global id.

        A device that no edge names has no root: None. With *strict_cpp* it gets the original's
        answer instead: `operator[]` inserts the missing id below vertex 0, so an outsider lands in
        vertex 0's component, which may not exist (facts D30).
        """
        components = self.components()
        if device not in self.sets.representative:
            if not strict_cpp:
                return components, None
            for missing in (device, 0):
                self.sets.representative.setdefault(missing, 0)
        return components, self.sets.find_set(device)


def components(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return the components of *pairs*, members in order of first appearance once sorted (D31)."""
    edges = as_array(pairs) if len(pairs) >= ARRAYS_FROM else None
    if edges is not None:
        return grouped(edges)
    return joined(sorted(pairs))


def joined(edges: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return the components of *edges* in universe order, as `ConnectedComponents` has them.

    Each vertex knows its component as a list; of two that an edge joins, the shorter moves.
    """
    component: dict[int, list[int]] = {}  # keeps its keys in the order of the universe
    for source, target in edges:
        one, two = component.get(source), component.get(target)
        if one is None and two is None:
            component[source] = component[target] = [source, target]
        elif one is None and two is not None:
            component[source] = two
            two.append(source)
        elif two is None and one is not None:
            component[target] = one
            one.append(target)
        elif one is not two and one is not None and two is not None:
            if len(one) < len(two):
                one, two = two, one
            one += two
            for vertex in two:
                component[vertex] = one
    members: dict[int, list[int]] = {}
    for vertex, mine in component.items():
        members.setdefault(id(mine), []).append(vertex)
    return tuple(map(tuple, members.values()))


def as_array(pairs: Sequence[tuple[int, int]]) -> Array | None:
    """The pairs as an array; None if an id is beyond 64 bits, which is not ours to refuse."""
    import numpy as np

    try:
        return np.array(pairs, dtype=np.int64)
    except OverflowError:
        return None


class Labels:
    """The components of an edge array: `labels[i]` is the component of `vertices[i]`.

    `vertices` are the distinct ids, ascending; components are numbered from 0 by their least id.
    """

    __slots__ = ("labels", "number", "vertices")

    def __init__(self, *, number: int, vertices: Array, labels: Array) -> None:
        self.number, self.vertices, self.labels = number, vertices, labels


def label(edges: Array) -> Labels:
    """Label the components of *edges*, an integer array of shape (E, 2) of global ids."""
    import numpy as np

    vertices, places = dense(edges.reshape(-1))
    roots = hook_and_jump(len(vertices), places[0::2], places[1::2])
    is_root = roots == np.arange(len(roots))
    numbers = np.cumsum(is_root) - 1
    return Labels(number=int(is_root.sum()), vertices=vertices, labels=numbers[roots])


def grouped(edges: Array) -> tuple[tuple[int, ...], ...]:
    """Return the components of *edges* as `components` does."""
    import numpy as np

    vertices, places = dense(edges.reshape(-1))
    sources, targets = places[0::2], places[1::2]
    roots = hook_and_jump(len(vertices), sources, targets)
    order = first_appearance(len(vertices), sources, targets)
    roots = roots[order]
    first = np.empty(len(vertices), dtype=np.int64)  # where each root's component first appears
    first[roots[::-1]] = np.arange(len(order) - 1, -1, -1)
    by_component = np.argsort(first[roots], kind="stable")
    members = vertices[order[by_component]].tolist()
    starts = np.flatnonzero(np.diff(roots[by_component], prepend=-1)).tolist()
    return tuple(tuple(members[start:end]) for start, end in pairwise([*starts, len(members)]))


def dense(ids: Array) -> tuple[Array, Array]:
    """Return the sorted distinct *ids* and, for each id, its place among them.

    Like `np.unique(return_inverse=True)`, but where id and position fit into one word it sorts
    those words, which is several times as fast as an indirect sort.
    """
    import numpy as np

    bits = len(ids).bit_length()
    if not len(ids) or int(ids.min()) < 0 or int(ids.max()) >> (63 - bits):
        distinct, places = np.unique(ids, return_inverse=True)
        return distinct, places.astype(np.int32)
    words = ids.astype(np.int64)
    words <<= bits
    words |= np.arange(len(ids), dtype=np.int64)
    words.sort()
    positions = words & ((1 << bits) - 1)
    words >>= bits
    is_new = np.ones(len(words), dtype=bool)
    np.not_equal(words[1:], words[:-1], out=is_new[1:])
    distinct = words.compress(is_new)
    is_new[0] = False  # the running count then starts from 0
    places = np.empty(len(ids), dtype=np.int32)
    places[positions] = np.cumsum(is_new, dtype=np.int32)
    return distinct, places


def hook_and_jump(count: int, sources: Array, targets: Array) -> Array:
    """Return, for each of *count* vertices, the least vertex of its component.

    Rounds of hooking every root onto its least neighbour, halving paths until they are flat, and
    dropping the edges that have become loops. A root that no other hooks onto in one round hooks
    onto another in the next, so their number halves in every two rounds.
    """
    import numpy as np

    parent = np.arange(count, dtype=np.int32)
    while len(sources):
        low, high = np.minimum(sources, targets), np.maximum(sources, targets)
        np.minimum.at(parent, high, low)
        if len(high) < count // 4:
            # Few roots were hooked: what hangs below them is flattened once, at the end.
            while not np.array_equal(further := parent.take(near := parent.take(high)), near):
                parent[high] = further
        else:
            parent = flat(parent)
        sources, targets = parent.take(low), parent.take(high)
        apart = np.flatnonzero(sources != targets)
        sources, targets = sources.take(apart), targets.take(apart)
    return flat(parent)


def flat(parent: Array) -> Array:
    """Return the forest with every vertex pointing at its root."""
    import numpy as np

    while not np.array_equal(further := parent.take(parent), parent):
        parent = further
    return parent


def first_appearance(count: int, sources: Array, targets: Array) -> Array:
    """Return the vertices in the order in which the sorted edges name them."""
    import numpy as np

    # Places are 32 bits wide and their products are not; there are fewer vertices than 2**31.
    edges = sources.astype(np.int64) * count + targets
    edges.sort()
    named = np.empty(2 * len(edges), dtype=np.int64)
    named[0::2], named[1::2] = np.divmod(edges, max(count, 1))
    first = np.empty(count, dtype=np.int64)
    first[named[::-1]] = np.arange(len(named) - 1, -1, -1)
    return named[np.sort(first)]
