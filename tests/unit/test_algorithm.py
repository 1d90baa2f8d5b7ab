"""Which algorithm family, and why not the others (facts §7.2)."""

from __future__ import annotations

from typing import Any

import pytest

from rankmuster.algorithm import LOG_NAMES, PRECEDENCE, Algorithm, Question, choose
from rankmuster.program import OpKind

MIB = 1 << 20
ALL_REDUCE = OpKind.ALL_REDUCE


def ask(**fields: Any) -> str:
    defaults = {"size": 16, "nodes": 1, "ranks_per_node": 16, "core_size": 2, "kind": ALL_REDUCE}
    return choose(Question(**defaults | fields)).name


@pytest.mark.parametrize(
    ("fields", "family"),
    [
        ({}, "intra_rdh"),
        ({"nbytes": MIB // 2}, "mesh"),
        ({"nbytes": 2 * MIB}, "intra_rdh"),
        ({"nbytes": 64 * MIB}, "kangaring"),
        ({"nbytes": 64 * MIB, "size": 4}, "ring"),
        ({"nbytes": 64 * MIB, "size": 8, "core_size": 1}, "ring"),
        ({"nbytes": 64 * MIB, "whole_chips": False}, "ring"),
        ({"streams": 2}, "ring"),
        ({"size": 64, "nodes": 4}, "hier"),
        ({"size": 64, "nodes": 4, "ranks_per_node": None, "mesh_ok": False}, "ring"),
        ({"size": 64, "nodes": 4, "on_pairs": True, "nbytes": MIB}, "ring"),
        ({"size": 4, "nodes": 4, "ranks_per_node": 1, "nbytes": MIB}, "single_cycle_ring"),
        ({"size": 4, "nodes": 4, "ranks_per_node": 1, "nbytes": 64}, "mesh"),
        (
            {"size": 8, "nodes": 8, "ranks_per_node": 1, "nbytes": MIB, "kind": OpKind.ALL_GATHER},
            "inter_rdh",
        ),
        (
            {"size": 4, "nodes": 4, "ranks_per_node": 1, "nbytes": MIB, "kind": OpKind.ALL_GATHER},
            "ring",
        ),
        ({"kind": OpKind.ALL_TO_ALL, "nbytes": 64 * MIB}, "mesh"),
        ({"kind": OpKind.ALL_TO_ALL, "mesh_ok": False}, "invalid"),
        ({"size": 6, "full_mesh_only": True, "core_size": 1, "nbytes": 64}, "ring"),
        ({"size": 12, "full_mesh_only": True, "grouped_mesh": True, "nbytes": 64}, "mesh"),
    ],
)
def test_family(fields: dict[str, Any], family: str) -> None:
    """Precedence, predicates and sizes pick one family."""
    assert ask(**fields) == family


def test_reasons() -> None:
    """Every family before the chosen one says why it was passed over."""
    choice = choose(Question(size=4, nodes=1, ranks_per_node=4, core_size=2, nbytes=64 * MIB))
    assert choice.to_dict() == {
        "algorithm": "ring",
        "log_name": "Ring",
        "passed_over": {
            "hier": "the group lies on one node",
            "intra_rdh": "67108864 bytes are not between 1 and 56 MiB",
            "mesh": "67108864 bytes are 1 MiB or more",
            "kangaring": "4 ranks, not 5 to 256",
            "single_cycle_ring": "the group lies on one node",
            "inter_rdh": "the group lies on one node",
        },
    }


def test_pods_have_no_inter_rdh() -> None:
    """A group over the nodes of a pod does not halve recursively."""
    fields = {"size": 8, "nodes": 8, "ranks_per_node": 1, "nbytes": MIB, "kind": OpKind.ALL_GATHER}
    assert (ask(**fields), ask(**fields, in_pod=True)) == ("inter_rdh", "ring")


def test_numbers() -> None:
    """The enum has the runtime's numbers, and log names that repeat."""
    assert [each.value for each in PRECEDENCE] == [1, 5, 2, 3, 4, 7, 0]
    assert LOG_NAMES[Algorithm.INTRA_RDH] == LOG_NAMES[Algorithm.INTER_RDH] == "RDH"
    assert LOG_NAMES[Algorithm.SINGLE_CYCLE_RING] == "Invalid"
    assert len(LOG_NAMES) == Algorithm.INVALID
