from __future__ import annotations

import json
import mmap
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_strategies import programs

from rankmuster.errors import InvalidProgram, UnsupportedFormat
from rankmuster.formats import json_program, read, sniff
from rankmuster.program import Node, Program
from rankmuster.testing.build import (
    all_gather,
    all_reduce,
    barrier,
    branch,
    loop,
    op,
    permute,
    program,
    recv,
    send,
)

EXAMPLE = b"""{"format": "rankmuster.program/1", "world_size": 8, "num_streams": 1,
 "replica_groups": [[[0,1],[2,3],[4,5],[6,7]], [[0,2,4,6],[1,3,5,7]]],
 "src_target_pairs": [[[0,1],[1,2],[2,3],[3,0]]],
 "ops": [{"kind": "all_reduce", "group": 0, "elements": 64, "dtype": "bf16", "reduce": "add",
          "name": "grad.0", "source": "train.py:88"},
         {"kind": "permute", "pairs": 0, "elements": 4096, "dtype": "f32"},
         {"kind": "loop", "trips": 12, "body": [{"kind": "all_gather", "group": 1,
          "elements": 512, "dtype": "bf16", "dimension": 0}]},
         {"kind": "branch", "on": "data", "bodies": [[], [{"kind": "barrier", "group": 1}]]}]}
"""


def changed(path: list[str | int], value: Any) -> bytes:
    """The example with one value put in; an Ellipsis takes the value out."""
    tree = json.loads(EXAMPLE)
    inner = tree
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(tree).encode()


def first_op(**change: Any) -> Node:
    """The first op of the example as read with some keys changed."""
    tree = json.loads(EXAMPLE)
    tree["ops"] = [tree["ops"][0] | change]
    return read(json.dumps(tree).encode()).ops[0]


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidProgram) as caught:
        read(data)
    return caught.value.reason + (f"; {caught.value.fix}" if caught.value.fix else "")


def test_the_documented_example_reads() -> None:
    """Every part of a program becomes its value."""
    assert read(EXAMPLE) == program(
        all_reduce(64, dtype="bf16", name="grad.0", source="train.py:88"),
        permute(4096),
        loop(12, all_gather(512, dtype="bf16", group=1, dimension=0)),
        branch([], [barrier(group=1)]),
        groups=[[[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 2, 4, 6], [1, 3, 5, 7]]],
        pairs=[[(0, 1), (1, 2), (2, 3), (3, 0)]],
        world_size=8,
        world_source="file",
    )


def test_optional_keys_read() -> None:
    """What an op may say besides, and the file's own rank."""
    entries = [
        {"kind": "send", "group": 0, "elements": 1, "dtype": "f32", "peer": 1, "label": 7},
        {"kind": "recv", "pairs": 0, "elements": 1, "dtype": "f32", "label": "x", "stream": 2},
        {"kind": "all_to_all_v", "group": 0, "elements": [1, 2], "dtype": ["f32", "s8"]}
        | {"input_splits": [1, 2], "output_splits": [], "root": 1, "dimension": None},
    ]
    text = {"format": json_program.FORMAT, "rank": 3, "num_streams": 4, "ops": entries}
    sets = {"replica_groups": [[[0, 1]]], "src_target_pairs": [[[0, 1]]]}
    assert read(json.dumps(text | sets).encode()) == program(
        send(1, 1, label="7"),
        recv(None, 1, pairs=0, label="x", stream=2),
        op("all_to_all_v", [1, 2], ["f32", "s8"], input_splits=(1, 2), output_splits=(), root=1),
        groups=[[[0, 1]]],
        pairs=[[(0, 1)]],
        rank=3,
        num_streams=4,
    )


def test_equal_sets_keep_their_ids() -> None:
    """Entries of a table are never renumbered, though equal ones share an object (facts E7)."""
    each = read(changed(["replica_groups"], [[[0, 1]], [[0, 1]]]))
    assert len(each.replica_groups) == 2
    assert each.replica_groups[0] is each.replica_groups[1]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("bfloat16", "bf16"), ("fp32", "f32"), ("Float32", "f32"), ("i32", "s32"), ("int8", "s8")],
)
def test_spellings_of_types_are_accepted(spelling: str, name: str) -> None:
    """People write types in several ways (facts E1)."""
    assert first_op(dtype=spelling) == first_op(dtype=name)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("sum", "add"), ("PROD", "mul"), ("custom:(a*b)", "custom:(a*b)"), (None, None)],
)
def test_spellings_of_reduce_ops_are_accepted(spelling: str | None, name: str | None) -> None:
    """Common words, computations of one's own, and null for not recorded."""
    each = first_op(reduce=spelling)
    assert each == all_reduce(64, dtype="bf16", reduce=name, name="grad.0", source="train.py:88")


def test_a_stated_world_beats_the_callers() -> None:
    """The caller's size only fills a gap, and the program says where its size came from."""
    assert read(EXAMPLE, world=4).world_size == 8
    each = read(changed(["world_size"], ...), world=4)
    assert (each.world_size, each.world_source) == (4, "option")


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (["format"], "x", "format is 'x', not 'rankmuster.program/1'"),
        (["format"], ..., "the file needs 'format'"),
        (["create"], [], "create is reserved for a later version; remove it"),
        (["world_siz"], 1, "world_siz is not a key of the format; did you mean 'world_size'?"),
        (["world_size"], 0, "world_size is 0, not a whole number from 1 to 4294967295"),
        (["ops"], 3, "ops is 3, not a list"),
        (["ops", 0], [], "ops[0] is [], not an object"),
        (["ops", 0, "elemnts"], 1, "ops[0].elemnts is not a key of the format; did you mean"),
        (["ops", 0, "kind"], "all-reduce", "ops[0].kind is 'all-reduce'; did you mean 'all_red"),
        (["ops", 0, "kind"], ["x"], 'ops[0].kind is ["x"]'),
        (["ops", 0, "kind"], "permute", "ops[0].group has no meaning for permute; it needs"),
        (["ops", 0, "group"], ..., "ops[0] needs 'group', the number of the set"),
        (["ops", 0, "group"], 2, "ops[0].group is 2, and replica_groups holds 2; count from 0"),
        (["ops", 1, "pairs"], 1, "ops[1].pairs is 1, and src_target_pairs holds 1; count from 0"),
        (["ops", 0, "pairs"], 0, "ops[0] has both 'group' and 'pairs'"),
        (["ops", 0, "elements"], ..., "ops[0] needs 'elements'"),
        (["ops", 0, "elements"], 1.0, "ops[0].elements is 1.0, not a whole number"),
        (["ops", 0, "elements"], True, "ops[0].elements is true, not a whole number"),
        (["ops", 0, "elements"], [1], "ops[0] has a list in one of 'elements' and 'dtype'"),
        (["ops", 0, "dtype"], "bf61", "ops[0].dtype is 'bf61'; did you mean 'bf16'?"),
        (["ops", 0, "dtype"], 7, "ops[0].dtype is 7, not the name of a type"),
        (["ops", 0, "reduce"], ..., "ops[0] needs 'reduce'"),
        (["ops", 0, "reduce"], "summ", "ops[0].reduce is 'summ'; did you mean 'sum'?"),
        (["ops", 0, "reduce"], 0, "ops[0].reduce is 0, not the name of a reduce op"),
        (["ops", 1, "reduce"], "add", "ops[1].reduce has no meaning for permute; remove it"),
        (["ops", 0, "peer"], 1, "ops[0].peer has no meaning for all_reduce"),
        (["ops", 0, "name"], 1, "ops[0].name is 1, not a string"),
        (["ops", 0, "input_splits"], [0, -1], "ops[0].input_splits[1] is -1, not a whole number"),
        (["ops", 0, "stream"], "0", "ops[0].stream is '0', not a whole number"),
        (["ops", 2, "trips"], ..., "ops[2] needs 'trips'"),
        (["ops", 2, "body", 0, "group"], 9, "ops[2].body[0].group is 9"),
        (["ops", 3, "on"], "mood", "ops[3].on is 'mood', not 'rank' or 'data'"),
        (["ops", 3, "bodies", 1], {}, "ops[3].bodies[1] is {}, not a list"),
        (["replica_groups"], {}, "replica_groups is {}, not a list: replica_groups holds sets"),
        (["replica_groups", 0, 1], 7, "replica_groups[0][1] is 7, not a list"),
        (["replica_groups", 0, 1, 1], 10**12, "replica_groups[0][1][1] is 1000000000000, not a d"),
        (["replica_groups", 0, 1, 1], -1, "replica_groups[0][1][1] is -1, not a device id"),
        (["src_target_pairs", 0, 1], [1], "src_target_pairs[0][1] is [1], not a pair [source"),
    ],
)
def test_a_wrong_program_says_what_where_and_what_to_do(
    path: list[str | int], value: Any, reason: str
) -> None:
    """Messages name the path, quote the value and offer what is near."""
    assert refusal(changed(path, value)).startswith(reason)


def test_messages_need_a_peer() -> None:
    """On a group nobody could tell where a message goes."""
    entry = {"kind": "send", "group": 0, "elements": 1, "dtype": "f32"}
    assert refusal(changed(["ops"], [entry])).startswith("ops[0] needs 'peer'")


def test_operands_need_a_count_and_a_type_each() -> None:
    """Lists of different lengths, or of none, describe no operands."""
    both = {"elements": [1, 2], "dtype": ["f32"]}
    with pytest.raises(InvalidProgram, match="2 elements and 1 dtypes"):
        first_op(**both)
    with pytest.raises(InvalidProgram, match="0 elements and 0 dtypes"):
        first_op(elements=[], dtype=[])


def test_a_fault_is_found_in_the_text() -> None:
    """The message stands where the value stands, strings with brackets notwithstanding."""
    text = EXAMPLE.replace(b'"grad.0"', b'"]}\\"{, :"').replace(b'"group": 1,', b'"group": 9,')
    with pytest.raises(InvalidProgram) as caught:
        read(text, where="step.json")
    column = text.splitlines()[6].index(b"9,") + 1
    assert (caught.value.line, caught.value.column) == (7, column)
    assert str(caught.value).startswith(f"step.json:7:{column}: ops[2].body[0].group is 9")


def test_a_long_text_is_not_searched_for_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond some length the path alone says where the fault is."""
    monkeypatch.setattr("rankmuster.formats.json_text.SEARCHED_BYTES", 10)
    with pytest.raises(InvalidProgram) as caught:
        read(changed(["ops"], 3), where="step.json")
    assert str(caught.value) == "step.json: ops is 3, not a list"


def test_another_version_is_known_but_not_read() -> None:
    """A newer file asks for a newer release."""
    with pytest.raises(UnsupportedFormat, match=r"new.json:1:12: format is .*/2"):
        read(changed(["format"], "rankmuster.program/2"), where="new.json")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a": 1,}', "not JSON: trailing comma in object"),
        (b'{"a"', "not JSON: Input data was truncated"),
        (b'{"a": "\xff"}', "not JSON: Invalid UTF-8"),
        (b'{"a": 1e999}', "not JSON: Number out of range"),
        (b'{"a": ' * 10_000, "more than 64 loops and branches"),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "more than 64 loops and branches"),
    ],
)
def test_bytes_that_are_no_json_are_refused(data: bytes, reason: str) -> None:
    """Nothing but an InvalidProgram comes of junk, however deep."""
    assert refusal(data).startswith(reason)


@pytest.mark.parametrize("depth", [65, 10_000])
def test_nesting_has_a_bound(depth: int) -> None:
    """Too many loops inside one another are an error, not a crash."""
    head, tail = b'[{"kind": "loop", "trips": 1, "body": ', b"}]"
    text = b'{"format": "rankmuster.program/1", "ops": ' + head * depth + b"[]" + tail * depth
    assert "more than 64 loops and branches" in refusal(text + b"}")


def test_a_file_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text beyond the bound is refused unread."""
    monkeypatch.setattr(json_program, "MAX_BYTES", 100)
    assert refusal(EXAMPLE).endswith("takes at most 100 bytes")


def test_a_mapped_file_and_a_byte_order_mark_read_alike() -> None:
    """Where the bytes come from makes no difference."""
    with tempfile.TemporaryFile() as file:
        file.write(b"\xef\xbb\xbf" + EXAMPLE)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert sniff(mapped) == "json"
            assert read(mapped) == read(EXAMPLE)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b'"ops"', b'"ops": [], "ops"', "'ops' twice: {"),
        (
            b'"elements"',
            b'"elements": 3, "elements"',
            """'elements' twice: {"kind":"all_reduce\"""",
        ),
        (b'"trips"', b'"trips": 3, "trips"', "'trips' twice: {"),
        (b'"trips"', b'"trips" : 3, "trips"\r\n', "'trips' twice: {"),
    ],
)
def test_a_key_twice_is_refused(before: bytes, after: bytes, told: str) -> None:
    """The last would win, and the rest of the program be lost without a word."""
    text = EXAMPLE.replace(before, after, 1)
    assert text != EXAMPLE
    assert f"the file holds an object with {told}" in refusal(text)


def test_what_looks_like_a_key_in_a_string_is_none() -> None:
    """Quotes and colons may stand in names."""
    name = json.dumps('a":"b\\": {"')
    text = EXAMPLE.replace(b'"grad.0"', name.encode())
    assert next(read(text).walk()).name == 'a":"b\\": {"'


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x02", b"[1, 2]", b"hello"])
def test_unknown_content_lists_the_known_formats(data: bytes) -> None:
    """What no reader claims is refused with what would be read."""
    assert refusal(data).endswith("known formats: json, hlo, neff")


@given(programs())
def test_a_written_program_reads_back(each: Program) -> None:
    """Writing and reading invert each other."""
    assert read(json_program.write(each)) == each


def test_writing_has_the_bound_of_reading() -> None:
    """What could not be read back is not written."""
    deep: Node = barrier()
    for _ in range(66):
        deep = loop(1, deep)
    with pytest.raises(ValueError, match="more than 64 loops"):
        json_program.write(program(deep, groups=[[[0]]]))


def small_changes(data: bytes) -> list[Callable[[int, int], bytes]]:
    return [
        lambda at, _: data[:at],
        lambda at, byte: data[:at] + bytes([byte]) + data[at + 1 :],
        lambda at, byte: data[:at] + bytes([byte]) + data[at:],
        lambda at, byte: data[:at] + data[at + byte % 40 :],
    ]


@given(
    st.sampled_from(small_changes(EXAMPLE)), st.integers(0, len(EXAMPLE) - 1), st.integers(0, 255)
)
def test_any_bytes_give_a_program_or_a_refusal(
    change: Callable[[int, int], bytes], at: int, byte: int
) -> None:
    """A damaged file is read or refused, and nothing else."""
    with suppress(InvalidProgram):
        assert isinstance(json_program.read(change(at, byte)), Program)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


@given(
    st.sampled_from([[], ["ops", 0], ["ops", 2], ["ops", 3, "bodies", 1, 0]]),
    st.text(max_size=2),
    json_values,
)
def test_any_key_of_any_value_is_refused_with_its_place(
    path: list[str | int], key: str, value: Any
) -> None:
    """A key that the format does not know, one without a letter too, is found in the text."""
    with pytest.raises(InvalidProgram, match="is not a key of the format") as caught:
        read(changed([*path, key], value))
    assert caught.value.line == 1
    assert caught.value.column
