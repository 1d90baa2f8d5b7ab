"""A collective program as a frozen value: ops, loops and branches over interned group sets.

What every reader produces and everything else consumes. Knows nothing of files, formats or the
world that will run it: ids are global device ids, already multiplied out by the reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from rankmuster.finding import Finding
from rankmuster.group import ReplicaGroups, SourceTargetPairs


class OpKind(StrEnum):
    """What an op does, by the names of `rankmuster.program/1` (facts E3)."""

    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    REDUCE_SCATTER = "reduce_scatter"
    SEND = "send"
    RECV = "recv"
    ALL_TO_ALL = "all_to_all"
    PERMUTE = "permute"
    PERMUTE_REDUCE = "permute_reduce"
    PERMUTE_IMPLICIT = "permute_implicit"
    PERMUTE_REDUCE_IMPLICIT = "permute_reduce_implicit"
    ALL_TO_ALL_V = "all_to_all_v"
    BARRIER = "barrier"
    GATHER = "gather"
    SCATTER = "scatter"
    COMM_SPLIT = "comm_split"
    WINDOW = "window"
    OTHER = "other"


POINT_TO_POINT = frozenset({OpKind.SEND, OpKind.RECV})
REDUCING = frozenset(
    {
        OpKind.ALL_REDUCE,
        OpKind.REDUCE,
        OpKind.REDUCE_SCATTER,
        OpKind.PERMUTE_REDUCE,
        OpKind.PERMUTE_REDUCE_IMPLICIT,
    }
)
WITHOUT_DATA = frozenset({OpKind.BARRIER, OpKind.COMM_SPLIT})  # no elements, no dtype
EVEN = frozenset(
    {
        OpKind.ALL_GATHER,
        OpKind.REDUCE_SCATTER,
        OpKind.ALL_TO_ALL,
        OpKind.ALL_TO_ALL_V,
        OpKind.GATHER,
        OpKind.SCATTER,
    }
)
"""What a rank holds of these depends on the size of its sub-group, and all ranks run one text."""
ON_PAIRS = frozenset(
    {
        OpKind.PERMUTE,
        OpKind.PERMUTE_REDUCE,
        OpKind.PERMUTE_IMPLICIT,
        OpKind.PERMUTE_REDUCE_IMPLICIT,
    }
)

# facts E1: the HLO names, and the words that people write for them.
DTYPES = frozenset(
    (
        *("bf16", "f16", "f32", "f64", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"),
        *("f8e3m4", "f8e4m3", "f8e4m3fn", "f8e5m2", "pred", "c64", "c128", "s4", "u4", "s2", "u2"),
        *("s1", "u1", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fn"),
        "unknown",
    )
)
DTYPE_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        **{
            f"{word}{bits}": f"s{bits}"
            for word in ("i", "int")
            for bits in (1, 2, 4, 8, 16, 32, 64)
        },
        **{f"uint{bits}": f"u{bits}" for bits in (1, 2, 4, 8, 16, 32, 64)},
        **{f"{word}{bits}": f"f{bits}" for word in ("fp", "float") for bits in (16, 32, 64)},
        "bfloat16": "bf16",
        "half": "f16",
        "float": "f32",
        "double": "f64",
        "bool": "pred",
        "boolean": "pred",
        "complex64": "c64",
        "complex128": "c128",
        "float8_e3m4": "f8e3m4",
        "float8_e4m3": "f8e4m3",
        "float8_e4m3fn": "f8e4m3fn",
        "float8_e5m2": "f8e5m2",
    }
)
# facts E2. Anything else a reducing op may hold is the canonical text of its computation.
REDUCE_OPS = frozenset({"add", "fma", "max", "min", "mul", "and", "or", "xor", "avg"})
REDUCE_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        "sum": "add",
        "prod": "mul",
        "product": "mul",
        "multiply": "mul",
        "maximum": "max",
        "minimum": "min",
        "mean": "avg",
        "average": "avg",
        "band": "and",
        "bor": "or",
        "bxor": "xor",
    }
)


# Nodes are built from the inside out and never changed, so none can be part of a circle; without
# the garbage collector's look at each, a program of many ops is read a tenth faster.
class Op(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One place in the text that posts a collective or point-to-point op.

    `group` is an index into `Program.replica_groups`, `pairs` one into `Program.src_target_pairs`;
    exactly one of them is set. `elements` counts, in the sense of facts E4, one entry per operand,
    and `dtype` names each operand's type. `reduce` is None where the kind does not reduce, or
    where the evidence does not say (RM706). `root` is a position in the sub-group; `peer` is a
    device id and only sends and receives on a replica group carry one.
    """

    kind: OpKind
    group: int | None = None
    pairs: int | None = None
    elements: tuple[int, ...] = ()
    dtype: tuple[str, ...] = ()
    reduce: str | None = None
    root: int | None = None
    dimension: int | None = None
    input_splits: tuple[int, ...] | None = None
    output_splits: tuple[int, ...] | None = None
    peer: int | None = None
    stream: int | None = None
    label: str | None = None
    name: str = ""
    source: str = ""

    @property
    def places(self) -> int:
        """How many ops this one counts as: one per operand, and one where it carries no data."""
        return len(self.elements) or 1


class Loop(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body that runs *trips* times; None where the count is not known (RM314)."""

    trips: int | None
    body: tuple[Node, ...]


class Branch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bodies of which one runs, chosen by the rank (RM313) or by data that all ranks share."""

    on: Literal["rank", "data"]
    bodies: tuple[tuple[Node, ...], ...]


Node: TypeAlias = Op | Loop | Branch


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A collective program: what one or more devices are about to run.

    `world_size` is what the text itself claims, None where it does not say; `world_source` says
    where that came from ("header", "file", "option" or "inferred"). `rank` is the process that a
    per-process file names for itself. `not_recorded` holds the op fields that this *format* cannot
    record. `target` is the chip generation that a Neuron compiler wrote it for ("*" for any), and
    `core_size` the logical-core size. `findings` are those that reading alone established (they
    concern this program by itself); they name no devices yet.
    """

    format: str
    replica_groups: tuple[ReplicaGroups, ...] = ()
    src_target_pairs: tuple[SourceTargetPairs, ...] = ()
    ops: tuple[Node, ...] = ()
    world_size: int | None = None
    world_source: Literal["header", "file", "option", "inferred"] = "inferred"
    num_streams: int = 1
    rank: int | None = None
    name: str = ""
    target: str | None = None
    core_size: int | None = None
    not_recorded: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    def walk(self) -> Iterator[Op]:
        """Every op in signing order, each once whatever the trip counts."""
        return walk(self.ops)


def walk(nodes: tuple[Node, ...]) -> Iterator[Op]:
    """Every op below *nodes* in signing order; deep nesting costs memory, not stack."""
    stack: list[Iterator[Node]] = [iter(nodes)]
    while stack:
        for node in stack[-1]:
            if isinstance(node, Op):
                yield node
                continue
            bodies = (node.body,) if isinstance(node, Loop) else node.bodies
            stack.append(child for body in bodies for child in body)
            break
        else:
            stack.pop()
