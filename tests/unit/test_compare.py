"""Comparing programs: the first difference is named, by process, op and field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rankmuster.compare import compare
from rankmuster.copies import ProgramCopy
from rankmuster.finding import Finding, OpRef, Severity, Value
from rankmuster.program import Program
from rankmuster.testing.build import (
    all_gather,
    all_reduce,
    barrier,
    branch,
    loop,
    op,
    permute,
    program,
)

EVERYBODY = [[[0, 1, 2, 3]]]
MESH = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 1, 2, 3]]]


def held(*programs: Program) -> list[ProgramCopy]:
    """One program per device."""
    return [ProgramCopy(each, (device,)) for device, each in enumerate(programs)]


def compared(*programs: Program, **rest: Any) -> tuple[Finding, ...]:
    """What comparing one program per device finds."""
    return compare(held(*programs), len(programs), **rest)


def only(*programs: Program) -> Finding:
    """The one finding of comparing one program per device."""
    [found] = compared(*programs)
    return found


def three_and(odd: Sequence[Any], usual: Sequence[Any], groups: Any = EVERYBODY) -> Finding:
    """The finding where device 3 runs *odd* and all others *usual*."""
    three = program(*usual, groups=groups)
    return only(three, three, three, program(*odd, groups=groups))


def test_other_size_is_named_with_both_values() -> None:
    """Eight processes, one op, and one process with another count: all of it is said."""
    usual = program(all_reduce(104857600, source="a.py:3"), groups=[[list(range(8))]])
    odd = program(all_reduce(209715200, source="a.py:3"), groups=[[list(range(8))]])
    assert only(odd, *[usual] * 7) == Finding(
        code="RM302",
        severity=Severity.ERROR,
        message="group 0: device 0 posts all_reduce of 209715200 f32 where devices 1-7 post "
        "all_reduce of 104857600 f32 (op 0 of 1, a.py:3)",
        ranks=(0,),
        others=(1, 2, 3, 4, 5, 6, 7),
        majority=True,
        group=0,
        op=OpRef(index=0, in_group=0, kind="all_reduce", source="a.py:3"),
        field="elements",
        values=(
            Value(ranks=(1, 2, 3, 4, 5, 6, 7), value=104857600),
            Value(ranks=(0,), value=209715200),
        ),
        fix="recompile the ranks that differ with the same batch and shapes",
        context=(
            "device 0:",
            ">    0  all_reduce of 209715200 f32  on group 0  a.py:3",
            "devices 1-7:",
            ">    0  all_reduce of 104857600 f32  on group 0  a.py:3",
        ),
    )


def test_a_tie_shows_both_sides_alike() -> None:
    """Of two processes that differ neither is the expectation."""
    groups = [[[0, 1]]]
    found = only(
        program(op("broadcast", 34112, root=0), groups=groups),
        program(op("broadcast", 34111, root=0), groups=groups),
    )
    assert (found.ranks, found.others, found.majority) == ((0, 1), (), False)
    assert found.values == (Value(ranks=(0,), value=34112), Value(ranks=(1,), value=34111))


@pytest.mark.parametrize(
    ("usual", "odd", "code", "field", "values"),
    [
        (all_reduce(8), all_gather(8), "RM301", "kind", ("all_reduce", "all_gather")),
        (all_gather(8), all_gather(9), "RM302", "elements", (8, 9)),
        (all_reduce((8, 4)), all_reduce((8, 5)), "RM302", "elements", (4, 5)),
        (all_reduce(8), all_reduce(8, dtype="bf16"), "RM303", "dtype", ("f32", "bf16")),
        (all_reduce(8), all_reduce(8, reduce="max"), "RM304", "reduce", ("add", "max")),
        (op("broadcast", 8, root=0), op("broadcast", 8, root=1), "RM305", "root", (0, 1)),
        (
            *(all_gather(8, dimension=0), all_gather(8, dimension=1)),
            *("RM305", "dimension", (0, 1)),
        ),
        (loop(3, all_reduce(8)), loop(4, all_reduce(8)), "RM311", "trips", (3, 4)),
        (all_reduce(8), loop(4, all_reduce(8)), "RM311", "trips", (1, 4)),
    ],
)
def test_the_field_that_differs_is_named(
    usual: Any, odd: Any, code: str, field: str, values: tuple[Any, Any]
) -> None:
    """Every field has its code, and both values are shown, the majority's first."""
    found = three_and([barrier(), odd, barrier()], [barrier(), usual, barrier()])
    assert (found.code, found.field, found.ranks) == (code, field, (3,))
    assert tuple(each.value for each in found.values) == values


def test_of_several_operands_the_one_that_differs_is_named() -> None:
    """The place counts one per operand, as the index does."""
    found = three_and([all_reduce((8, 4, 5))], [all_reduce((8, 4, 4))])
    assert found.op
    assert found.op.index == 2


def test_missing_op_is_named_where_it_would_stand() -> None:
    """A process that skips an op lacks that op; what follows is not blamed."""
    ops = [barrier(), *(all_gather(n, name=f"expert.{n}") for n in (5, 6, 7)), barrier()]
    found = three_and([*ops[:2], *ops[3:]], ops)
    assert found.message == (
        "group 0: device 3 lacks all_gather of 6 f32 that devices 0-2 post (op 2 of 5, expert.6)"
    )
    assert found.context[:4] == (
        "device 3:",
        "     0  barrier  on group 0",
        "     1  all_gather of 5 f32  on group 0  expert.5",
        ">    -  nothing here",
    )


def test_extra_op_is_named() -> None:
    """A process that issues one reduction more has that one too many."""
    sums = [all_reduce(1, name=f"log.{n}") for n in range(3)]
    found = three_and(sums, sums[:2])
    assert (found.code, found.field, found.ranks) == ("RM306", "op", (3,))
    assert found.op == OpRef(index=2, in_group=2, kind="all_reduce", name="log.2")


def test_swapped_ops_are_the_same_in_another_order() -> None:
    """Forty processes, ops 7 and 8 swapped on process 39: order, not two differences."""
    groups = [[list(range(40))]]
    ops = [all_reduce(n + 1) for n in range(12)]
    usual = program(*ops, groups=groups)
    odd = program(*ops[:7], ops[8], ops[7], *ops[9:], groups=groups)
    found = only(*[usual] * 39, odd)
    assert (found.code, found.ranks, found.op and found.op.index) == ("RM307", (39,), 7)
    assert len(found.context) == 16


def test_order_across_communicators() -> None:
    """Two communicators that agree by themselves are entered in one order by all who share both."""
    groups = [[[0, 1, 2, 3]], [[0, 1, 2], [3]]]
    ops = [all_reduce(8), all_gather(16, group=1)]
    usual = program(*ops, groups=groups)
    found = only(usual, program(*ops[::-1], groups=groups), usual, usual)
    assert (found.code, found.field, found.ranks) == ("RM307", "order", (1,))
    assert found.values == (
        Value(ranks=(0, 2), value="all_reduce of 8 f32 on group 0"),
        Value(ranks=(1,), value="all_gather of 16 f32 on group 1"),
    )


def test_order_does_not_matter_to_those_who_share_one_device() -> None:
    """Rows and columns of a mesh meet in one device each: nobody else can see their order."""
    ops = [all_reduce(8, group=0), all_gather(16, group=1)]
    usual, odd = program(*ops, groups=MESH[:2]), program(*ops[::-1], groups=MESH[:2])
    [found] = compared(usual, odd, usual, usual)
    assert (found.code, found.severity) == ("RM310", Severity.INFO)


def test_order_inside_loops_matters() -> None:
    """Two loops of one op each are not one loop of both."""
    groups = [[[0, 1]], [[0, 1], [2]]]
    one, other = all_reduce(8, group=0), all_gather(8, group=1)
    apart = program(loop(3, one), loop(3, other), groups=[[[0, 1]], [[0, 1], [2]]])
    both = program(loop(3, one, other), groups=groups)
    assert {each.code for each in compared(apart, both)} == {"RM307"}


def test_op_on_another_group_is_a_matter_of_membership() -> None:
    """An op that moved is missing on one group and too many on the next: one finding."""
    groups = [[[0, 1, 2], [3, 4, 5]], [[0, 3], [1, 4], [2, 5]], [list(range(6))]]
    usual = program(barrier(group=2), all_gather(8, group=0), barrier(group=2), groups=groups)
    odd = program(barrier(group=2), all_gather(8, group=1), barrier(group=2), groups=groups)
    found = only(*[usual] * 5, odd)
    assert (found.code, found.field, found.ranks) == ("RM308", "members", (5,))
    assert [each.value for each in found.values] == [[3, 4, 5], [2, 5]]


def test_members_in_another_order_are_another_group() -> None:
    """Who is shard 0 is part of the group: both member lists are shown."""
    ops = [all_gather(8), barrier()]
    usual, odd = program(*ops, groups=EVERYBODY), program(*ops, groups=[[[3, 1, 2, 0]]])
    found = only(usual, usual, odd, usual)
    assert (found.code, found.ranks, found.others) == ("RM308", (2,), (0, 1, 3))
    assert [each.value for each in found.values] == [[0, 1, 2, 3], [3, 1, 2, 0]]


def test_other_pair_lists_differ_in_membership() -> None:
    """Every process wrote its own part of the pairs: each part is shown."""
    one = program(permute(8), pairs=[[(0, 1), (1, 2)]])
    other = program(permute(8), pairs=[[(0, 1), (1, 2), (2, 0)]])
    found = only(one, one, other)
    assert (found.code, found.field, found.ranks) == ("RM308", "members", (2,))
    assert found.values[1].value == [[0, 1], [1, 2], [2, 0]]


def test_a_group_that_nobody_uses_must_still_be_formed_by_all() -> None:
    """A communicator that only some declare would wait for the others."""
    groups = [[[0, 1, 2]], [[2, 1, 0]]]
    usual, odd = program(barrier(), groups=groups), program(barrier(), groups=groups[:1])
    found = only(usual, usual, odd)
    assert (found.code, found.ranks) == ("RM308", (2,))
    assert [each.value for each in found.values] == [[2, 1, 0], None]


def test_one_cause_on_many_communicators_is_one_finding() -> None:
    """A set of four pairs that half of all devices post otherwise is told once."""
    groups = [[[0, 1], [2, 3], [4, 5], [6, 7]]]
    even, odd = program(all_reduce(8), groups=groups), program(all_reduce(9), groups=groups)
    found = only(*[even, odd] * 4)
    assert found.values == (Value(ranks=(0, 2, 4, 6), value=8), Value(ranks=(1, 3, 5, 7), value=9))
    assert not found.majority


def test_the_rest_of_the_set_breaks_a_tie() -> None:
    """Of a pair nobody can say who is right, unless all other pairs do as one of them."""
    groups = [[[0, 1], [2, 3], [4, 5], [6, 7]]]
    usual, odd = program(all_reduce(8), groups=groups), program(all_reduce(9), groups=groups)
    found = only(*[usual] * 5, odd, usual, usual)
    assert (found.ranks, found.others, found.majority) == ((5,), (0, 1, 2, 3, 4, 6, 7), True)


def test_differences_apart_are_told_apart() -> None:
    """Two mistakes in two places are two findings, in the order of the program."""
    usual = program(all_reduce(8, group=0), all_reduce(8, group=2), groups=MESH)
    one = program(all_reduce(9, group=0), all_reduce(8, group=2), groups=MESH)
    other = program(all_reduce(8, group=0), all_reduce(8, group=2, reduce="max"), groups=MESH)
    assert [each.code for each in compared(usual, one, usual, other)] == ["RM302", "RM304"]


def test_many_differences_are_counted() -> None:
    """After the first twenty, the rest is a number."""
    pairs = [[[n, n + 1]] for n in range(0, 60, 2)]
    programs = [
        program(
            all_reduce(8 + n % 2, group=n // 2), groups=pairs[: n // 2 + 1] + pairs[n // 2 + 1 :]
        )
        for n in range(60)
    ]
    found = compared(*programs)
    assert len(found) == 21
    assert found[-1].message == "10 more differences (RM302) are not told one by one"


def test_difference_that_nobody_shares_is_information() -> None:
    """A group of one's own may do what it likes."""
    groups = [[[0, 1]], [[0], [1]]]
    usual = program(barrier(), groups=groups)
    [found] = compared(usual, program(barrier(), all_reduce(8, group=1), groups=groups))
    assert (found.code, found.severity) == ("RM310", Severity.INFO)
    [strict] = compared(usual, program(barrier(), all_reduce(8, group=1), groups=groups), same=True)
    assert (strict.code, strict.severity) == ("RM310", Severity.ERROR)


def test_names_and_places_in_the_source_do_not_matter() -> None:
    """Equal programs under other names are one."""
    one = program(all_reduce(8, name="a", source="x.py:1"), groups=EVERYBODY)
    other = program(all_reduce(8, name="b", source="y.py:2"), groups=EVERYBODY)
    assert compared(one, other, one, other, same=True) == ()


def test_what_is_not_recorded_is_not_a_difference() -> None:
    """A reduce op that one side does not record cannot be told from the other side's."""
    usual = program(all_reduce(8), groups=EVERYBODY)
    silent = program(all_reduce(8, reduce=None), groups=EVERYBODY)
    found = only(usual, usual, usual, silent)
    assert (found.code, found.field, found.ranks) == ("RM706", "reduce", (3,))
    assert [each.value for each in found.values] == ["add", None]


def test_a_known_difference_is_found_behind_an_unknown_field() -> None:
    """That a count is not recorded hides no other field."""
    usual = [loop(3, all_reduce(8)), all_reduce(9)]
    odd = [loop(None, all_reduce(8)), all_reduce(9, reduce="max")]
    found = three_and(odd, usual)
    assert (found.code, found.ranks) == ("RM304", (3,))


def test_unknown_type_and_count_are_undecided() -> None:
    """Each field that one side lacks is told by itself."""
    usual = program(loop(3, all_reduce(8)), all_gather(8), groups=EVERYBODY)
    odd = program(loop(None, all_reduce(8)), all_gather(8, dtype="unknown"), groups=EVERYBODY)
    found = compared(usual, usual, usual, odd)
    assert {(each.code, each.field) for each in found} == {("RM706", "trips"), ("RM706", "dtype")}


def test_branches_are_compared_by_body() -> None:
    """An op that stands in the other body of a branch is in another place."""
    one, other = branch([all_reduce(8)], []), branch([], [all_reduce(8)])
    found = three_and([barrier(), other], [barrier(), one])
    assert (found.code, found.field, found.ranks) == ("RM307", "order", (3,))


def test_worlds_of_other_sizes() -> None:
    """Files that claim worlds of different sizes do not belong together."""
    ops = {"groups": [[[0, 1, 2]]], "world_source": "file"}
    small, large = (program(barrier(), world_size=size, **ops) for size in (3, 4))
    found = compared(small, small, large)[0]
    assert (found.code, found.ranks, found.others) == ("RM001", (2,), (0, 1))


def test_absent_devices_are_not_compared() -> None:
    """Of a device without a program nothing is said."""
    usual, odd = program(all_reduce(8), groups=EVERYBODY), program(all_reduce(9), groups=EVERYBODY)
    copies = [ProgramCopy(usual, (0,)), ProgramCopy(odd, (2,))]
    [found] = compare(copies, 4)
    assert [each.ranks for each in found.values] == [(0,), (2,)]


def test_one_program_is_not_compared() -> None:
    """A file for the whole world agrees with itself at once, however large the world is."""
    whole = program(all_reduce(8), groups=[[list(range(50000))]])
    assert compare([ProgramCopy(whole, tuple(range(50000)))], 50000) == ()


@pytest.mark.parametrize("tag", ["name", "label", "source"])
@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("count", [1, 3])
def test_of_equal_ops_names_tell_which_is_missing(tag: str, first: int, count: int) -> None:
    """Where many ops say the same, the one whose name the other side lacks is the missing one."""
    ops = [all_gather(64, **{tag: f"expert.{n}"}) for n in range(9)]
    lacking = ops[:first] + ops[first + count :]
    for found in (three_and(lacking, ops), three_and(ops, lacking)):
        assert (found.code, found.ranks, found.majority) == ("RM306", (3,), True)
        assert found.op
        assert found.op.index == first


def test_names_decide_nothing_where_nothing_is_missing() -> None:
    """Equal ops in another order by their names alone are no difference."""
    ops = [all_gather(64, name=f"expert.{n}") for n in range(9)]
    usual, odd = (program(*each, groups=EVERYBODY) for each in (ops, ops[::-1]))
    assert compared(usual, usual, usual, odd) == ()


PAIRS = [[[0, 1], [2, 3], [4, 5], [6, 7]]]


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("odd", range(8))
@pytest.mark.parametrize("more", [True, False])
def test_an_op_too_many_or_too_few_on_a_pair_names_who_is_alone(
    at: int, odd: int, more: bool
) -> None:
    """Of a pair that is split over one op, the one that all other pairs do not do as is odd."""
    ops = [all_reduce(8), all_reduce(16)]
    changed = [*ops[:at], all_reduce(32), *ops[at:]] if more else ops[: at % 2] + ops[at % 2 + 1 :]
    usual = program(*ops, groups=PAIRS)
    found = only(*[program(*changed, groups=PAIRS) if d == odd else usual for d in range(8)])
    others = tuple(device for device in range(8) if device != odd)
    assert (found.code, found.ranks) == ("RM306", (odd,))
    assert (found.others, found.majority) == (others, True)
    assert found.message.startswith(f"group 0: device {odd} {'posts' if more else 'lacks'} ")


def test_who_is_not_of_a_group_is_not_said_to_post_on_it() -> None:
    """Devices that only put the odd one into another group form that, and post on their own."""
    usual = program(all_reduce(8), groups=PAIRS)
    odd = program(all_reduce(8), groups=[[[0, 2], [1, 3], [4, 5], [6, 7]]])
    found = only(odd, *[usual] * 7)
    assert found.message == (
        "group 0: device 0 posts all_reduce of 8 f32 on [0, 2] where devices 1-7 form group "
        "[0, 1] for it (op 0 of 1)"
    )


def test_long_values_are_cut_around_what_differs() -> None:
    """Two long lists of pairs that differ late are shown where they do."""
    ring = [(n, n + 1) for n in range(40)]
    usual = program(permute(8), pairs=[[*ring, (40, 0)]])
    odd = program(permute(8), pairs=[[*ring, (40, 1)]])
    message = only(usual, usual, usual, odd).message
    assert "[40, 1]] where" in message
    assert "[40, 0]] (op" in message


def test_branches_that_differ_are_told_whole() -> None:
    """The body of the branch is what differs, and is never cut off."""
    wide = op("all_gather", [1048576, 1048576, 1048576], ["bf16", "f32", "bf16"], dimension=1)
    left, right = branch([wide], []), branch([], [wide])
    message = three_and([left], [right]).message
    assert "in body 0 of branch 0" in message
    assert "in body 1 of branch 0" in message


def test_chains_of_pairs_that_leave_each_other_out_are_other_memberships() -> None:
    """Files that each hold another stretch of one chain differ in the pairs, and lack no op."""
    stretches = [[(n, n + 1) for n in range(start, start + 4)] for start in (0, 4, 8, 12)]
    found = compared(*[program(permute(4), pairs=[each], world_size=32) for each in stretches])
    assert {each.code for each in found} == {"RM308"}
    held = {value.ranks: value.value for each in found for value in each.values}
    assert held == {
        (device,): [list(pair) for pair in each] for device, each in enumerate(stretches)
    }


def test_all_of_three_classes_are_shown_with_context() -> None:
    """Two that differ and the majority, or three of which none is one."""
    posts = [program(all_reduce(n), groups=[[[0, 1, 2, 3, 4, 5]]]) for n in (4, 5, 6)]
    tie = only(*[posts[n // 2] for n in range(6)])
    most = only(posts[0], posts[0], posts[0], posts[0], posts[1], posts[2])
    subjects = [[line for line in each.context if line[0] == "d"] for each in (tie, most)]
    assert subjects == [
        ["devices 0-1:", "devices 2-3:", "devices 4-5:"],
        ["device 4:", "device 5:", "devices 0-3:"],
    ]


def test_order_across_groups_says_why_it_can_hang() -> None:
    """The two groups are named, and that each side may wait in one for the other."""
    ops = [all_reduce(8, group=0), all_reduce(8, group=1)]
    groups = [[[0, 1, 2]], [[2, 1, 0]]]
    usual, odd = (program(*each, groups=groups) for each in (ops, ops[::-1]))
    found = only(usual, usual, odd)
    assert found.code == "RM307"
    assert "the same ops of groups 0 and 1 in another order, so that each side may wait" in (
        found.message
    )


def test_a_label_is_shown() -> None:
    """The tag of an op stands in the message and in the context, if its name does not say it."""
    ops = [all_gather(64, label=f"expert.{n}") for n in range(3)]
    found = three_and(ops[:1] + ops[2:], ops)
    assert found.message.endswith("(op 1 of 3, label expert.1)")
    assert ">    1  all_gather of 64 f32  on group 0  label expert.1" in found.context
