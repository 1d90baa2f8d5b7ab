"""The three spellings of groups and the four modes."""

from __future__ import annotations

import pytest
from hlo_modules import all_reduce, codes, members, module, program

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo import read
from rankmuster.formats.hlo.groups import parse_groups

IOTA = {
    "[2,4]<=[8]": "0123 4567",
    "[4,2]<=[2,4]T(1,0)": "04 15 26 37",
    "[2,4]<=[2,2,2]T(0,2,1)": "0213 4657",
    "[4,2]<=[2,2,2]T(1,0,2)": "01 45 23 67",
    "[2,4]<=[2,2,2]T(2,0,1)": "0246 1357",
}
MESH = {
    "{'b'}": "0123 4567",
    "{'a'}": "04 15 26 37",
    "{'b':(1)2}": "02 13 46 57",
    "{'b':(2)2}": "01 23 45 67",
    "{'b':(2)2,'a'}": "0415 2637",
    "{'a','b':(2)2}": "0145 2367",
}


def groups(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, group)) for group in text.split())


@pytest.mark.parametrize(("text", "expected"), IOTA.items())
def test_iota_lists_expand_as_xla_does(text: str, expected: str) -> None:
    """An iota list is an arange, reshaped, transposed and cut."""
    assert parse_groups(text.encode()).groups == groups(expected)


@pytest.mark.parametrize(("refs", "expected"), MESH.items())
def test_mesh_axes_expand_as_xla_does(refs: str, expected: str) -> None:
    """Named axes and sub-axes become the members, in the order written."""
    text = f"mesh['a'=2,'b'=4] {refs}"
    assert parse_groups(text.encode()).groups == groups(expected)


@pytest.mark.parametrize("ids", ["(7,6,5,4,3,2,1,0)", "([2,4]T(0,1))"])
def test_a_mesh_keeps_its_device_ids(ids: str) -> None:
    """device_ids= permutes the mesh, as a list or as an iota list."""
    found = parse_groups(f"mesh['a'=2,'b'=4], device_ids={ids} {{'b'}}".encode()).groups
    assert found == (groups("7654 3210") if ids.startswith("(7") else groups("0123 4567"))


def test_three_spellings_are_one_set() -> None:
    """The same groups written three ways are one object with one id."""
    found = program(
        all_reduce("{{0,1,2,3},{4,5,6,7}}", name="a"),
        all_reduce("[2,4]<=[8]", name="b"),
        all_reduce("mesh['x'=2,'y'=4] {'y'}", name="c"),
        "ROOT t = (f32[64], f32[64], f32[64]) tuple(a, b, c)",
    )
    assert [op.group for op in found.walk()] == [0, 0, 0]
    assert len(found.replica_groups) == 1


FLAT = ", channel_id=1, use_global_device_ids=true"
MODES = {  # on 2 replicas of 4 partitions, as executed by XLA: device = 4 * replica + partition
    ("{{0,1}}", ""): "04 15 26 37",
    ("{{1,0}}", ""): "40 51 62 73",
    ("{{0,1}}", ", channel_id=1"): "01234567",
    ("{{1,0}}", ", channel_id=1"): "45670123",
    ("{{0},{1}}", ", channel_id=1"): "0123 4567",
    ("{{5,0},{1,2},{3,4},{6,7}}", FLAT): "50 12 34 67",
    ("{}", ", channel_id=1"): "01234567",
    ("{}", ""): "04 15 26 37",
    ("{{0,1,2},{3,4},{5,6,7}}", FLAT): "012 34 567",
}


@pytest.mark.parametrize(("text", "rest"), MODES)
def test_modes_name_the_devices_that_xla_uses(text: str, rest: str) -> None:
    """Each mode multiplies ids out in XLA's order and keeps the written order inside."""
    line = f"ROOT ar = f32[64] all-reduce(p), replica_groups={text}, to_apply=add{rest}"
    found = members(line, header="replica_count=2, num_partitions=4")
    assert found == groups(MODES[text, rest])


def test_all_to_all_with_a_channel_crosses_partitions() -> None:
    """Ops without the flag read their ids as partitions once they have a channel."""
    line = (
        "ROOT a = f32[64] all-to-all(p), channel_id=1, replica_groups={{1,0},{3,2}}, dimensions={0}"
    )
    found = members(line, header="replica_count=2, num_partitions=4")
    assert found == groups("10 54 32 76")


def test_permute_pairs_follow_their_mode() -> None:
    """Pairs with a channel shift partitions inside each replica; without, replicas."""
    permute = "c = f32[64] collective-permute(p){}, source_target_pairs={{{{0,1}}}}"
    both = [permute.format(", channel_id=1"), "ROOT d" + permute.format("")[1:]]
    found = program(*both, header="replica_count=2, num_partitions=2")
    assert {s.sorted_pairs for s in found.src_target_pairs} == {
        ((0, 1), (2, 3)),
        ((0, 2), (1, 3)),
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[2,4]<=[7]", "RM107"),
        ("[2,2]<=[16]", "RM107"),
        ("[1000000,1000000]<=[8]", "RM107"),
        ("mesh['a'=2,'b'=4], device_ids=(0,1,2) {'a'}", "RM107"),
        ("mesh['a'=2,'b'=4] {'b':(3)2}", "RM107"),
        ("{{0,1},{2,3},{4,5},{6,8}}", "RM101"),
        ("{{0,1},{2,3},{4,5},{6,-7}}", "RM101"),
        ("{{0,1},{2,3},{4,5},{6,6}}", "RM102"),
        ("{{0,1},{2,3},{5,6}}", "RM103"),
        ("{{0,1,2,3,4,5,6,7},{}}", "RM104"),
        ("{}", "RM108"),
        ("{{0,1000000000000}}", "RM101"),
    ],
)
def test_wrong_groups_get_the_finding_for_their_cause(text: str, code: str) -> None:
    """What is missing, repeated, out of range or does not fit has its own code."""
    assert code in codes(program("ROOT " + all_reduce(text)))


def test_a_missing_id_is_named() -> None:
    """XLA says that replica 6 is out of range; the truth, that 4 is missing, is said too."""
    text = "ROOT " + all_reduce("{{0,1},{2,3},{5,6}}", rest=" ")
    found = program(text, header="replica_count=6")
    assert [f.message for f in found.findings] == [
        "all-reduce: replica 6 out of range: there are 6 replicas (cross_replica)",
        "all-reduce: replica 4 of 6 missing (cross_replica)",
    ]


PERMUTE = "ROOT c = f32[64] collective-permute(p), source_target_pairs={{0,1},{1,7}}"
FLAG = "use_global_device_ids=true"
FOR_ALL = "{{0,1,2,3,4,5,6,7}}"


@pytest.mark.parametrize(
    ("line", "header", "fix"),
    [
        (
            PERMUTE,
            "num_partitions=8",
            "without channel_id the ids are replicas: give it one if the 8 partitions are meant",
        ),
        (
            PERMUTE + ", channel_id=1",
            "replica_count=8",
            "with channel_id the ids are partitions: leave it out if the 8 replicas are meant",
        ),
        (
            f"ROOT {all_reduce(FOR_ALL, rest=' ')}",
            "num_partitions=8",
            f"the ids are replicas: give it channel_id and {FLAG} if the 8 devices are meant",
        ),
        (
            f"ROOT {all_reduce(FOR_ALL, rest=', channel_id=1')}",
            "replica_count=2, num_partitions=4",
            f"the ids are replicas: give it {FLAG} if the 8 devices are meant",
        ),
        (PERMUTE, "num_partitions=4", "check the pairs against the world size"),
    ],
)
def test_ids_that_other_attributes_would_give_a_meaning(line: str, header: str, fix: str) -> None:
    """Which ids they are hangs on attributes: where those would mend it, that is said."""
    beyond = [f for f in program(line, header=header).findings if "out of range" in f.message]
    assert [f.fix for f in beyond] == [fix]


def test_several_ids_are_told_in_the_plural() -> None:
    """Ranges and lists of ids are many replicas."""
    text = "ROOT " + all_reduce("{{0,1},{1,5},{6,0}}", rest=" ")
    found = program(text, header="replica_count=4")
    assert [f.message for f in found.findings] == [
        "all-reduce: replicas 0-1 repeated",
        "all-reduce: replicas 5-6 out of range: there are 4 replicas (cross_replica)",
        "all-reduce: replicas 2-3 of 4 missing (cross_replica)",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[8]<=[8]",
        "[2,4]<=[2,4]T(1,1)",
        "[2,524288]<=[1048576,1]T(0,2)",
        "[1048576,2]<=[2097152]",
        "{{{0}}}",
        "{{0,x}}",
        "mesh['a'=2] {'bogus'}",
        "mesh['a'=2,'a'=4] {'a'}",
        "mesh['a'=2] {'a','a'}",
        "mesh['a'=2, device_ids=(0,1)] {'a'}",
        "nonsense",
        "{{" + "9" * 5000 + "}}",
        "[" + "9" * 5000 + ",1]<=[1]",
    ],
)
def test_what_is_no_group_list_is_refused(text: str) -> None:
    """Malformed lists and lists beyond the bound are errors with a line and a column."""
    with pytest.raises(InvalidProgram) as caught:
        read(module("ROOT " + all_reduce(text)))
    assert caught.value.line == 11
    assert caught.value.column is not None


def test_an_unknown_axis_names_the_nearest() -> None:
    """A typing error in an axis is answered with the axis that was meant."""
    with pytest.raises(InvalidProgram, match="did you mean 'axis_0'"):
        parse_groups(b"mesh['axis_0'=2,'other'=2] {'axis_o'}")


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (", use_global_device_ids=true", "RM108"),
        (", channel_id=0", "RM108"),
        (", channel_id=1, mode=flattened_id", "RM109"),
    ],
)
def test_modes_that_cannot_be_are_found(rest: str, code: str) -> None:
    """Attributes that select no legal mode, or another than is stated, are errors."""
    text = "ROOT " + all_reduce("{{0,1},{2,3},{4,5},{6,7}}", rest=rest)
    assert code in codes(program(text, header="replica_count=8"))


def test_a_stated_mode_that_fits_is_fine() -> None:
    """mode= that repeats what the attributes say changes nothing."""
    rest = ", channel_id=1, use_global_device_ids=true, mode=flattened_id"
    assert codes(program("ROOT " + all_reduce("[2,4]<=[8]", rest=rest))) == []


@pytest.mark.parametrize("first", ["groups", "pairs"])
def test_groups_and_pairs_of_one_text_are_two_sets(first: str) -> None:
    """{{0,1},{2,3}} means groups to an all-reduce and pairs to a permute in one module."""
    lines = [
        "r = f32[8] all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add",
        "c = f32[8] collective-permute(p), source_target_pairs={{0,1},{2,3}}",
    ]
    found = program(*(lines if first == "groups" else reversed(lines)), header="replica_count=4")
    assert [groups.members for groups in found.replica_groups] == [((0, 1), (2, 3))]
    assert [edges.pairs for edges in found.src_target_pairs] == [((0, 1), (2, 3))]
    assert {(op.kind, op.group, op.pairs) for op in found.walk()} == {
        ("all_reduce", 0, None),
        ("permute", None, 0),
    }
