"""Which family of algorithms the runtime would pick for a group, and why not the others.

Precedence and predicates of facts §7.2 (third-party reverse engineering), size windows of the
vendor's documentation. The runtime has no cost model; neither have we.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rankmuster.program import OpKind

MIB = 1 << 20
MESH_BELOW = MIB  # documented: mesh wins below 1 MB, recursive halving to 56 MB, kangaring above
RDH_UP_TO = 56 * MIB
MESH_MAX_RANKS = 128  # ENC_MESH_MAX_NUM_DEVICES
KANGARING_MAX_RANKS = 256
FULL_MESH_SIZES = (2, 4, 8)
GROUPED_MESH_FACTOR = 6
INTER_RDH_OVER = 7
MESH_ONLY = frozenset({OpKind.ALL_TO_ALL, OpKind.ALL_TO_ALL_V})


class Algorithm(IntEnum):
    """`enc_alg_type` (facts §2.2). Log names repeat, so the number is the key."""

    RING = 0
    HIER = 1
    MESH = 2
    KANGARING = 3
    SINGLE_CYCLE_RING = 4
    INTRA_RDH = 5
    SINGLE_STEP_MESH = 6
    INTER_RDH = 7
    TWO_STEP_POD_MESH = 8
    LATENCY_OPT_MESH = 9
    BW_OPT_MESH = 10
    INVALID = 11


LOG_NAMES = (
    *("Ring", "Hier", "Mesh", "Kangaring", "Invalid", "RDH", "Single Step Mesh", "RDH"),
    *("UltraServer Mesh", "Mesh", "Bw Optimal Mesh"),
)
PRECEDENCE = (
    *(Algorithm.HIER, Algorithm.INTRA_RDH, Algorithm.MESH, Algorithm.KANGARING),
    *(Algorithm.SINGLE_CYCLE_RING, Algorithm.INTER_RDH, Algorithm.RING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What decides: the group's shape, the op, and its size where it is known.

    `nbytes` is None where no op says; `mesh_ok` is the group's own flag (`nccl_mesh_supported`);
    `whole_chips` says that every rank of each chip takes part; the older family is
    `full_mesh_only`, so meshes 2, 4 or 8 ranks, and where `grouped_mesh` multiples of 6 too.
    """

    size: int
    nodes: int
    ranks_per_node: int | None
    core_size: int
    kind: OpKind | None = None
    nbytes: int | None = None
    streams: int = 1
    on_pairs: bool = False
    in_pod: bool = False
    mesh_ok: bool = True
    whole_chips: bool = True
    full_mesh_only: bool = False
    grouped_mesh: bool = False

    @property
    def intra(self) -> bool:
        """Whether the group lies on one node."""
        return self.nodes == 1

    @property
    def one_per_node(self) -> bool:
        """Whether each node holds one member."""
        return self.size == self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The family picked, and for each one before it in precedence why it was passed over."""

    algorithm: Algorithm
    passed_over: tuple[tuple[Algorithm, str], ...]

    @property
    def name(self) -> str:
        """The family's key in lower case."""
        return self.algorithm.name.lower()

    def to_dict(self) -> dict[str, Any]:
        """The choice as the report shows it."""
        return {
            "algorithm": self.name,
            "log_name": "" if self.name == "invalid" else LOG_NAMES[self.algorithm],
            "passed_over": {each.name.lower(): why for each, why in self.passed_over},
        }


def choose(question: Question) -> Choice:
    """Pick the first family in precedence that nothing speaks against.

    An op that only a mesh can run gets INVALID where the mesh is out.
    """
    passed: list[tuple[Algorithm, str]] = []
    for candidate in PRECEDENCE:
        why = next(_against(candidate, question), "")
        if not why:
            return Choice(algorithm=candidate, passed_over=tuple(passed))
        passed.append((candidate, why))
    return Choice(algorithm=Algorithm.INVALID, passed_over=tuple(passed))


def _against(candidate: Algorithm, question: Question) -> Iterator[str]:
    if question.kind in MESH_ONLY and candidate is not Algorithm.MESH:
        yield f"{question.kind} insists on the mesh"
    if candidate in _REASONS:
        yield from _REASONS[candidate](question)


def _against_hier(q: Question) -> Iterator[str]:
    if q.intra:
        yield "the group lies on one node"
    if q.on_pairs:
        yield "source-target pairs"
    if q.ranks_per_node is None:
        yield "nodes contribute unevenly"
    if q.ranks_per_node == 1:
        yield "one rank a node"


def _against_intra_rdh(q: Question) -> Iterator[str]:
    yield from _one_node_one_stream(q)
    if q.nbytes is not None and not MESH_BELOW <= q.nbytes <= RDH_UP_TO:
        yield f"{q.nbytes} bytes are not between 1 and 56 MiB"


def _against_mesh(q: Question) -> Iterator[str]:
    if not q.mesh_ok:
        yield "the group does not support it"
    if q.streams > 1:
        yield f"{q.streams} streams"
    if q.size > MESH_MAX_RANKS:
        yield f"{q.size} ranks, more than {MESH_MAX_RANKS}"
    grouped = q.grouped_mesh and q.size % GROUPED_MESH_FACTOR == 0
    if q.full_mesh_only and q.size not in FULL_MESH_SIZES and not grouped:
        yield f"{q.size} ranks, not 2, 4 or 8" + (" or a multiple of 6" * q.grouped_mesh)
    if q.kind not in MESH_ONLY and q.nbytes is not None and q.nbytes >= MESH_BELOW:
        yield f"{q.nbytes} bytes are 1 MiB or more"


def _against_kangaring(q: Question) -> Iterator[str]:
    yield from _one_node_one_stream(q)
    least = 4 if q.core_size == 2 else 8
    if not least < q.size <= KANGARING_MAX_RANKS:
        yield f"{q.size} ranks, not {least + 1} to {KANGARING_MAX_RANKS}"
    if not q.whole_chips:
        yield "not all ranks of each chip take part"


def _against_single_cycle(q: Question) -> Iterator[str]:
    yield from _one_rank_a_node(q)
    if q.kind is not OpKind.ALL_REDUCE:
        yield "only for all_reduce"


def _against_inter_rdh(q: Question) -> Iterator[str]:
    yield from _one_rank_a_node(q)
    if q.size <= INTER_RDH_OVER or q.size & (q.size - 1):
        yield f"{q.size} ranks, not a power of two above {INTER_RDH_OVER}"
    if q.in_pod:
        yield "the nodes form a pod"


def _one_node_one_stream(q: Question) -> Iterator[str]:
    if not q.intra:
        yield f"the group spans {q.nodes} nodes"
    if q.streams > 1:
        yield f"{q.streams} streams"


def _one_rank_a_node(q: Question) -> Iterator[str]:
    if q.intra:
        yield "the group lies on one node"
    if not q.one_per_node:
        yield "more than one rank a node"


_REASONS: dict[Algorithm, Callable[[Question], Iterator[str]]] = {
    Algorithm.HIER: _against_hier,
    Algorithm.INTRA_RDH: _against_intra_rdh,
    Algorithm.MESH: _against_mesh,
    Algorithm.KANGARING: _against_kangaring,
    Algorithm.SINGLE_CYCLE_RING: _against_single_cycle,
    Algorithm.INTER_RDH: _against_inter_rdh,
}
