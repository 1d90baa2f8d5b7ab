"""Seconds for one partition in a fresh process, imports counted and the interpreter's start not.

python components.py rankmuster|scipy|rustworkx|networkx EDGES
"""

from __future__ import annotations

import random
import sys
from time import perf_counter

Pairs = list[tuple[int, int]]


def ours(pairs: Pairs) -> int:
    """Our own, as the rest of the project calls it."""
    from rankmuster.partition import components

    return len(components(pairs))


def scipy(pairs: Pairs) -> int:
    """Sparse ids are numbered by np.unique, then labelled."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ids, dense = np.unique(np.array(pairs), return_inverse=True)
    ends = dense.reshape(-1, 2).T
    graph = coo_array((np.ones(len(pairs), bool), (ends[0], ends[1])), shape=(len(ids),) * 2)
    return int(connected_components(graph, directed=False)[0])


def rustworkx(pairs: Pairs) -> int:
    """Sparse ids are numbered by a dict, then labelled in Rust."""
    import rustworkx

    number: dict[int, int] = {}
    dense = [
        (number.setdefault(a, len(number)), number.setdefault(b, len(number))) for a, b in pairs
    ]
    graph = rustworkx.PyGraph()
    graph.extend_from_edge_list(dense)
    return rustworkx.number_connected_components(graph)


def networkx(pairs: Pairs) -> int:
    """Takes ids as they are."""
    import networkx as nx

    return nx.number_connected_components(nx.Graph(pairs))


def main() -> None:
    """Print how long the named one takes; complain where its answer is wrong."""
    edges = int(sys.argv[2])
    ids = random.Random(edges).sample(range(1 << 31), edges)
    pairs = list(zip(ids, ids[1:] + ids[:1], strict=True))
    pairs = [pair for place, pair in enumerate(pairs) if place % 16]  # chains of sixteen
    right = -(-edges // 16)
    contestant = {"rankmuster": ours, "scipy": scipy, "rustworkx": rustworkx, "networkx": networkx}
    start = perf_counter()
    found = contestant[sys.argv[1]](pairs)
    took = perf_counter() - start
    if found != right:
        sys.exit(f"wrong answer: {found} components where {right} is right")
    print(took)


if __name__ == "__main__":
    main()
