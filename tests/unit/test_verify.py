from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rankmuster.finding import Finding, OpRef, Severity, finding
from rankmuster.program import Node, Program
from rankmuster.resolve import Resolved
from rankmuster.testing.build import (
    all_gather,
    all_reduce,
    barrier,
    branch,
    loop,
    op,
    permute,
    program,
    send,
)
from rankmuster.verify import placed, verify

PAIR = [[0, 1]]


def judge(each: Program, world_size: int = 2) -> tuple[Finding, ...]:
    return verify(Resolved(each), world_size)


def codes(each: Program, world_size: int = 2) -> list[str]:
    return [found.code for found in judge(each, world_size)]


def on_groups(*members: list[int], **rest: Any) -> Program:
    return program(barrier(), groups=[members], **rest)


def on_pairs(*pairs: tuple[int, int], **rest: Any) -> Program:
    return program(permute(), pairs=[pairs], **rest)


def ref(index: int, node: Node, in_group: int = 0) -> OpRef:
    assert isinstance(node, type(barrier()))
    return OpRef(index=index, in_group=in_group, kind=node.kind.value, source=node.source)


def test_a_sound_program_has_no_findings() -> None:
    """Groups that cover the world, injective pairs, known trip counts: nothing to say."""
    ops = (all_reduce(), permute(), loop(3, all_gather(dimension=0)), op("broadcast", root=1))
    assert judge(program(*ops, groups=[PAIR], pairs=[[(0, 1), (1, 0)]], world_size=2)) == ()


def test_an_id_out_of_range_is_named() -> None:
    """RM101 quotes the ids and the world; no device of it is to blame."""
    assert judge(on_groups([0, 1], [9, 10, 10**12]))[0] == finding(
        "RM101", "group set 0 names devices 9-10,1000000000000 in a world of 2", group=0
    )


def test_an_id_repeated_is_named() -> None:
    """RM102 lists ids that stand twice in a set, in one sub-group or in two."""
    assert judge(on_groups([0, 1, 1], [0, 2]), 3) == (
        finding("RM102", "group set 0 names devices 0-1 more than once", ranks=[0, 1], group=0),
    )


def test_a_sub_group_without_members_is_refused() -> None:
    """RM104, in any format: nothing could run on it."""
    assert judge(on_groups([0, 1], [])) == (
        finding("RM104", "group set 0 holds an empty sub-group: each needs a member", group=0),
    )


@pytest.mark.parametrize(
    ("kind", "severity"),
    [("json", Severity.INFO), ("hlo", Severity.ERROR), ("stablehlo", Severity.ERROR)],
)
def test_ids_missing_from_a_cover_are_named(kind: str, severity: Severity) -> None:
    """RM103 is an error only where the format's own verifier demands a cover."""
    assert judge(on_groups([0, 3], format=kind), 5) == (
        finding(
            "RM103",
            "group set 0 leaves out devices 1-2,4 of a world of 5",
            severity=severity,
            ranks=[1, 2, 4],
            group=0,
        ),
    )


def test_many_sets_are_named_in_short() -> None:
    """One rule broken by every set of a long table is told of the first twenty."""
    tables = [[[at, at + 1]] for at in range(40)]
    told = judge(program(op("all_reduce"), groups=tables), 41)
    assert [(each.code, each.group) for each in told] == [("RM103", at) for at in range(20)]


def test_many_ids_are_named_in_short() -> None:
    """A message shows the first runs and counts the rest."""
    (found,) = judge(on_groups([*range(0, 100, 2)]), 100)
    assert found.message.startswith("group set 0 leaves out devices 1,3,5,7,")
    assert found.message.endswith("37,39 and 30 more of a world of 100")


def test_a_world_of_any_size_costs_nothing() -> None:
    """What a huge world lacks is named as ranges, never listed."""
    found = judge(on_groups([0, 1]), 10**12)[0]
    assert (found.ranks, found.message) == (
        (),
        "group set 0 leaves out devices 2-999999999999 of a world of 1000000000000",
    )


def test_pairs_are_injective() -> None:
    """RM201 and RM202 name sources and targets that stand twice, RM203 ids out of range."""
    assert judge(on_pairs((0, 1), (0, 2), (1, 2), (2, 7)), 3) == (
        finding("RM203", "pairs set 0 names device 7 in a world of 3", group=0),
        finding("RM201", "pairs set 0 has device 0 as a source more than once", ranks=[0], group=0),
        finding("RM202", "pairs set 0 has device 2 as a target more than once", ranks=[2], group=0),
    )


def test_repeats_in_hlo_pairs_are_for_its_reader() -> None:
    """Whether twice is legal depends on the op's form, which only the reader sees."""
    assert codes(on_pairs((0, 1), (0, 0), format="hlo")) == []


def test_no_pairs_at_all_is_worth_a_warning() -> None:
    """RM207: a permute along nothing moves nothing."""
    assert judge(on_pairs()) == (finding("RM207", "pairs set 0 is empty", group=0),)


def test_a_program_for_a_larger_world_does_not_fit() -> None:
    """RM002 compares the claim with the world; ids are then held to the claim."""
    assert judge(on_groups([0, 1, 2], world_size=3, world_source="file")) == (
        finding("RM002", "the program is for 3 devices, and the world has 2"),
    )


def test_ids_are_held_to_the_programs_own_world() -> None:
    """A program for two devices may not name a third, however large the world is."""
    own = on_groups([0, 1, 2], world_size=2, world_source="header")
    assert codes(own, 8) == ["RM101"]


def test_an_inferred_world_claims_nothing() -> None:
    """What the reader guessed from the ids does not excuse missing ones."""
    assert codes(on_groups([0, 1], world_size=2, format="hlo"), 4) == ["RM103"]


@pytest.mark.parametrize(("target", "expected"), [("trn2", ["RM106"]), (None, [])])
def test_neuron_has_room_for_twelve_sets(target: str | None, expected: list[str]) -> None:
    """RM106 counts the sets where the program says that Neuron will run it."""
    assert codes(program(barrier(), groups=[PAIR] * 13, target=target)) == expected


@pytest.mark.parametrize("nodes", [(), (loop(3), branch([], []))])
def test_a_program_without_ops_proves_nothing(nodes: tuple[Node, ...]) -> None:
    """RM312: nothing to compare is never a match."""
    assert codes(program(*nodes, groups=[PAIR])) == ["RM312"]


def test_sends_are_something_to_compare() -> None:
    """A process that only sends is paired with others: no RM312."""
    assert codes(program(send(1), groups=[PAIR])) == []


def test_a_root_is_a_position() -> None:
    """RM101 also names a root that no sub-group has."""
    wrong = op("broadcast", root=2)
    assert judge(program(barrier(), wrong, groups=[PAIR])) == (
        finding(
            "RM101",
            "broadcast has root 2 in sub-groups of 2; positions count from 0",
            field="root",
            op=ref(1, wrong, 1),
            group=0,
        ),
    )


def test_an_unrecorded_reduce_op_is_said_once() -> None:
    """RM706 counts the ops that leave it open and shows the first."""
    silent = all_reduce(reduce=None, source="a.py:1")
    assert judge(program(all_reduce([1, 2]), silent, silent, groups=[PAIR])) == (
        finding(
            "RM706",
            "the reduce op is not recorded in 2 of 3 ops",
            field="reduce",
            op=ref(2, silent, 2),
            group=0,
        ),
    )


def test_unknown_trip_counts_are_said_once() -> None:
    """RM314 counts loops that communicate; the first op in the first of them is shown."""
    inner = loop(None, loop(None, barrier()))
    assert judge(program(barrier(), loop(None), inner, groups=[PAIR])) == (
        finding(
            "RM314",
            "the trip count of 2 loops is not known",
            field="trips",
            op=ref(1, barrier(), 1),
            group=0,
        ),
    )


def test_branches_on_the_rank_may_part_the_processes() -> None:
    """RM313 warns where the bodies communicate differently."""
    found = judge(program(barrier(), branch([], [all_reduce()], on="rank"), groups=[PAIR]))
    assert found == (
        finding(
            "RM313",
            "the branch depends on the rank, and its bodies communicate differently",
            op=ref(1, all_reduce(), 1),
            group=0,
        ),
    )


@pytest.mark.parametrize(
    "node",
    [
        branch([all_reduce(name="a")], [all_reduce(name="b")], on="rank"),
        branch([], [all_reduce()], on="data"),
        branch([loop(2)], [], on="rank"),
    ],
)
def test_other_branches_are_harmless(node: Node) -> None:
    """Bodies that do the same, shared data, and bodies that do nothing part nobody."""
    assert codes(program(barrier(), node, groups=[PAIR])) == []


def test_what_the_reader_found_is_not_said_again() -> None:
    """A finding of the reader about one set stands for ours about the same."""
    each = on_groups([0, 0, 5], [1, 1])
    seen = finding("RM102", "replica 0 is repeated", group=0)
    assert codes(msgspec.structs.replace(each, findings=(seen,))) == ["RM101"]


@pytest.mark.parametrize(
    "kind", ["all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "gather", "scatter"]
)
def test_uneven_groups_are_refused_where_sizes_depend_on_them(kind: str) -> None:
    """RM104: what a rank holds of these ops depends on its sub-group; told once per set."""
    each = program(barrier(), op(kind, name="g"), op(kind), groups=[[[0, 1], [2, 3, 4]]])
    (found,) = judge(each, 5)
    assert (found.code, found.severity, found.group) == ("RM104", Severity.ERROR, 0)
    assert found.op == OpRef(index=1, in_group=1, kind=kind, name="g")
    assert found.message == (
        f"{kind} on group set 0, whose sub-groups have 2 and 3 members: legal for all_reduce, "
        f"not for {kind}"
    )


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "reduce", "barrier", "comm_split"])
def test_uneven_groups_are_legal_where_sizes_do_not_depend_on_them(kind: str) -> None:
    """Every rank holds the same, however many there are."""
    assert judge(program(op(kind), groups=[[[0, 1], [2, 3, 4]]]), 5) == ()


def test_what_is_wrong_with_a_program_is_told_with_its_place() -> None:
    """Of an op its own place, of a set that of the first op on it."""
    ops = (barrier(), all_gather(name="ag.1", source="m.py:7", group=1))
    each = Resolved(program(*ops, groups=[[[0, 1]], [[0, 9]]]))
    (found,) = (placed(each, one) for one in verify(each, 2) if one.code == "RM101")
    assert found.message == ("group set 1 names device 9 in a world of 2 (op 1 of 2, ag.1, m.py:7)")
    assert found.op == OpRef(index=1, in_group=0, kind="all_gather", name="ag.1", source="m.py:7")


def test_an_iota_that_does_not_fit_leaves_nothing_out() -> None:
    """Behind RM107 no RM103 follows: nobody knows what the list would have named."""
    known = (finding("RM107", "4 places, 16 ids", group=0),)
    assert codes(program(all_reduce(), groups=[[]], format="hlo", findings=known)) == []
