"""Components of source-target pairs with sparse ids.

Up to 10^4 pairs each contestant starts in a fresh process with a list, and its imports count: that
is what a command pays. From 10^5 on everybody is imported and gets an array, and gives the ids and
a label for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import OURS, Case, Contestant, Figure, Goal, timed
from processes import own_clock

SCIPY = "scipy"
PEERS = (SCIPY, "rustworkx", "networkx")


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: ARG001, FBT001 - every row's form
    """Small lists in fresh processes, then arrays of random and of ring edges."""
    for edges in (10**3, 10**4):
        yield one_shot(edges)
    for edges in (10**5,) if quick else (10**5, 10**6):
        for kind in ("random", "rings"):
            yield arrays(edges, kind)


def one_shot(edges: int) -> Case:
    """A list of pairs in a process that has imported nothing."""

    def contestant(name: str) -> Contestant:
        return Contestant(name=name, prepare=lambda: own_clock("components.py", name, str(edges)))

    return Case(
        name=f"{edges:,} pairs in chains, imports counted",
        contestants=tuple(map(contestant, (OURS, *PEERS))),
        goal=Goal(peer=SCIPY, ratio=0.05),
    )


def arrays(edges: int, kind: str) -> Case:
    """An array of pairs, everything imported."""

    def contestant(name: str, labels: Callable[[Any], tuple[Any, Any]]) -> Contestant:
        return Contestant(name=name, prepare=lambda: labelling(labels, edges, kind))

    return Case(
        name=f"{edges:,} pairs, {kind}, as an array",
        contestants=(
            contestant(OURS, ours),
            *map(contestant, PEERS, (by_scipy, by_rustworkx, by_networkx)),
        ),
        goal=Goal(peer=SCIPY, ratio=0.5),
    )


def labelling(labels: Callable[[Any], tuple[Any, Any]], edges: int, kind: str) -> Figure:
    """Time *labels*, once it has found as many components as scipy."""
    import numpy as np

    pairs = graph(edges, kind)
    right = len(np.unique(by_scipy(pairs)[1]))
    return timed(lambda: labels(pairs), lambda found: len(np.unique(found[1])) == right)


def graph(edges: int, kind: str) -> Any:
    """An (edges, 2) array of ids below 2^31, as many as edges: drawn at random, or rings of 64."""
    import numpy as np

    rng = np.random.default_rng(edges)
    ids = np.unique(rng.integers(0, 1 << 31, 2 * edges))
    rng.shuffle(ids)
    ids = ids[:edges]
    if kind == "random":
        return ids[rng.integers(0, edges, (edges, 2))]
    place = np.arange(edges)
    ring = place - place % 64
    following = np.where(place + 1 < np.minimum(ring + 64, edges), place + 1, ring)
    pairs = np.stack([ids, ids[following]], axis=1)
    rng.shuffle(pairs)
    return pairs


def ours(pairs: Any) -> tuple[Any, Any]:
    """Our array path."""
    from rankmuster.partition import label

    found = label(pairs)
    return found.vertices, found.labels


def by_scipy(pairs: Any) -> tuple[Any, Any]:
    """np.unique numbers the ids, csgraph labels them."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ids, dense = np.unique(pairs, return_inverse=True)
    sources, targets = dense.reshape(-1, 2).T
    ones = np.ones(len(pairs), bool)
    adjacency = coo_array((ones, (sources, targets)), shape=(len(ids), len(ids)))
    return ids, connected_components(adjacency, directed=False)[1]


def by_rustworkx(pairs: Any) -> tuple[Any, Any]:
    """np.unique numbers the ids, rustworkx finds sets of them."""
    import numpy as np
    import rustworkx

    ids, dense = np.unique(pairs, return_inverse=True)
    found = rustworkx.PyGraph()
    found.extend_from_edge_list(list(map(tuple, dense.reshape(-1, 2).tolist())))
    return ids, labelled(rustworkx.connected_components(found), len(ids))


def by_networkx(pairs: Any) -> tuple[Any, Any]:
    """Takes the ids as they are and finds sets of them."""
    import networkx as nx
    import numpy as np

    found = list(nx.connected_components(nx.Graph(pairs.tolist())))
    ids = np.fromiter((vertex for each in found for vertex in each), np.int64)
    return ids, np.repeat(np.arange(len(found)), [len(each) for each in found])


def labelled(sets: list[set[int]], count: int) -> Any:
    """A label for each of *count* vertices, from sets of them."""
    import numpy as np

    labels = np.empty(count, np.int64)
    for number, vertices in enumerate(sets):
        labels[list(vertices)] = number
    return labels
