"""The texts in `examples/` differ in what their README says, and in nothing else that matters."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec.structs import replace

from rankmuster.formats import read
from rankmuster.program import Loop, Op

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def ops_of(name: str) -> list[Op]:
    """What is compared of each op: all but its name and source line."""
    program = read((EXAMPLES / name).read_bytes(), where=name)
    assert program.findings == ()
    return [replace(op, name="", source="") for op in program.walk()]


STEP = "step.hlo"
LOSS = 5  # the all-reduce of the loss
NORM = 12  # the all-reduce of the gradients' norm; the all-gather of their sum follows


def test_step_holds_every_kind_of_collective() -> None:
    """The training step has the five kinds, and its scans keep their trip counts."""
    assert {op.kind for op in ops_of(STEP)} == {
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"),
    }
    nodes = read((EXAMPLES / STEP).read_bytes()).ops
    assert [node.trips for node in nodes if isinstance(node, Loop)] == [5, 5]


def test_other_rows_changes_elements_of_activations_only() -> None:
    """Another batch scales the ten ops on activations by its rows."""
    step = ops_of(STEP)
    scaled = [replace(op, elements=tuple(n * 6 // 4 for n in op.elements)) for op in step]
    expected = [*scaled[:LOSS], step[LOSS], *scaled[LOSS + 1 : NORM - 1], *step[NORM - 1 :]]
    assert ops_of("step_other_rows.hlo") == expected


def test_swapped_exchanges_two_neighbours() -> None:
    """Clipping after gathering swaps the all-reduce and the all-gather."""
    step = ops_of(STEP)
    swapped = [*step[:NORM], step[NORM + 1], step[NORM], *step[NORM + 2 :]]
    assert ops_of("step_swapped.hlo") == swapped


def test_other_reduce_changes_one_reduce_op() -> None:
    """The other norm is a maximum where the step adds."""
    step = ops_of(STEP)
    changed = [*step[:NORM], replace(step[NORM], reduce="max"), *step[NORM + 1 :]]
    assert ops_of("step_other_reduce.hlo") == changed


def test_ring_reads() -> None:
    """The program written by hand passes things around its ring seven times."""
    program = read((EXAMPLES / "ring.json").read_bytes())
    assert [op.kind for op in program.walk()] == [
        *("all_gather", "permute", "all_reduce", "reduce_scatter", "barrier"),
    ]
    assert program.ops[1].trips == 7
