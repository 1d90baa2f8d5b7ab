"""What each op posts: kind, elements, type, reduce, root, dimension, source."""

from __future__ import annotations

import pytest
from hlo_modules import ADD, all_reduce, codes, kinds, module, only_op, program

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo import read
from rankmuster.program import Op, OpKind

G = "replica_groups={{0,1,2,3}}"
D = "dimensions={0}"
SWAP = "source_target_pairs={{0,1},{1,0}}"
FOUR = "replica_count=4"


def posted(*lines: str, header: str = FOUR) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
    op = only_op(program(*lines, header=header))
    return op.kind.value, op.elements, op.dtype


def test_an_all_reduce_is_read_whole() -> None:
    """Every field that the text gives is in the op."""
    meta = ', metadata={op_name="jit(f)/psum" source_file="/app/train.py" source_line=88}'
    found = program("ROOT " + all_reduce("{{0,1,2,3,4,5,6,7}}") + meta)
    assert only_op(found) == Op(
        kind=OpKind.ALL_REDUCE,
        group=0,
        elements=(64,),
        dtype=("f32",),
        reduce="add",
        name="ar",
        source="/app/train.py:88",
    )
    assert (found.format, found.name, found.world_size, found.world_source) == (
        "hlo",
        "m",
        8,
        "header",
    )
    assert found.findings == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"a = f32[256] all-gather(p), {G}, dimensions={{0}}", ("all_gather", (64,), ("f32",))),
        (
            f"a = (f32[64], f32[256]) all-gather-start(p), {G}, dimensions={{0}}",
            ("all_gather", (64,), ("f32",)),
        ),
        (
            f"a = ((f32[64], f32[64]), (f32[256], f32[256])) all-gather-start(p, p), {G}, {D}",
            ("all_gather", (64, 64), ("f32", "f32")),
        ),
        (
            f"a = f32[16] reduce-scatter(p), {G}, dimensions={{0}}, to_apply=add",
            ("reduce_scatter", (16,), ("f32",)),
        ),
        (
            f"a = ((f32[64]), f32[16]) reduce-scatter-start(p), {G}, {D}, to_apply=add",
            ("reduce_scatter", (16,), ("f32",)),
        ),
        (f"a = f32[64] all-to-all(p), {G}, dimensions={{0}}", ("all_to_all", (16,), ("f32",))),
        (
            f"a = (f32[64], f32[64], f32[64], f32[64]) all-to-all(p, p, p, p), {G}",
            ("all_to_all", (64,) * 4, ("f32",) * 4),
        ),
        (f"a = f32[64] all-reduce(p), {G}, to_apply=add", ("all_reduce", (64,), ("f32",))),
        (f"a = f32[64] all-reduce-start(p), {G}, to_apply=add", ("all_reduce", (64,), ("f32",))),
        (
            f"a = (f32[64], /*index=1*/f32[64]{{0:T(128)}}) all-reduce(p, p), {G}, to_apply=add",
            ("all_reduce", (64, 64), ("f32", "f32")),
        ),
        (f"a = all-reduce(p), {G}, to_apply=add", ("all_reduce", (64,), ("f32",))),
        (f"a = f32[64] all-reduce(f32[64] p), {G}, to_apply=add", ("all_reduce", (64,), ("f32",))),
        (f"a = f32[64] collective-broadcast(p), {G}", ("broadcast", (64,), ("f32",))),
        (
            f"a = f32[64] collective-permute(p), {SWAP}",
            ("permute", (64,), ("f32",)),
        ),
        (
            f"a = (f32[64], f32[64], u32[], u32[]) collective-permute-start(p), {SWAP}",
            ("permute", (64,), ("f32",)),
        ),
        (
            f"a = f32[64] ragged-all-to-all(p, p, p, p, p, p), {G}",
            ("all_to_all_v", (0,), ("f32",)),
        ),
        (f"a = f99[64] all-reduce(p), {G}, to_apply=add", ("all_reduce", (64,), ("unknown",))),
    ],
)
def test_elements_count_as_the_runtime_counts(
    line: str, expected: tuple[str, tuple[int, ...], tuple[str, ...]]
) -> None:
    """Elements are one rank's input, output or chunk, by kind (facts E4)."""
    assert posted(f"ROOT {line}") == expected


def test_the_operand_of_an_all_gather_may_stand_far_above() -> None:
    """A shape that the instruction does not repeat is found in the computation."""
    padding = [f"n{i} = f32[64] negate(p)" for i in range(2000)]
    line = f"ROOT a = f32[256] all-gather(q), {G}, dimensions={{0}}"
    start = "q = f32[2,32] reshape(p)"
    found = program(start, *padding, line, header=FOUR + ", is_scheduled=true")
    assert codes(found) == ["RM105"]
    assert only_op(found).elements == (64,)


def test_broadcast_has_the_first_member_as_root() -> None:
    """The first id of each group is the source; a dynamic root is not recorded (RM706)."""
    static = program(f"ROOT a = f32[64] collective-broadcast(p), {G}", header=FOUR)
    dynamic = program(
        f"ROOT a = f32[64] collective-broadcast(p, p), {G}, has_dynamic_root=true", header=FOUR
    )
    assert (only_op(static).root, only_op(dynamic).root) == (0, None)
    assert codes(dynamic, "warning") == ["RM706"]


@pytest.mark.parametrize(
    ("opcode", "name"),
    [
        ("add", "add"),
        ("multiply", "mul"),
        ("maximum", "max"),
        ("minimum", "min"),
        ("and", "and"),
        ("or", "or"),
        ("xor", "xor"),
    ],
)
def test_standard_reductions_have_names(opcode: str, name: str) -> None:
    """A binary computation of one opcode is a reduce op by name, in either operand order."""
    before = ADD.replace("add(x, y)", f"{opcode}(y, x)")
    assert only_op(program("ROOT " + all_reduce("[1,8]<=[8]"), before=before)).reduce == name


def test_other_reductions_keep_their_text_without_names() -> None:
    """Another computation is compared by its own text, whatever its names and line order."""
    body = "add {{\n  {0} = f32[] parameter(0)\n  {1} = f32[] parameter(1)\n{2}}}\n"
    one = body.format("x", "y", "  n = f32[] negate(y)\n  ROOT s = f32[] add(x, n)\n")
    two = body.format("b", "a", "  m = f32[] negate(a)\n  ROOT r = f32[] add(b, m)\n")
    line = "ROOT " + all_reduce("[1,8]<=[8]")
    first, second = (only_op(program(line, before=text)).reduce for text in (one, two))
    assert (
        first
        == second
        == ("custom:f32[] parameter(0);f32[] parameter(1);f32[] negate(1);f32[] add(0,2)")
    )


def test_stack_frames_give_the_source_line() -> None:
    """stack_frame_id= leads through the module's tables, before or behind the computations."""
    tables = (
        'FileNames\n1 "app/step.py"\n\nFunctionNames\n1 "step"\n\nFileLocations\n'
        "3 {file_name_id=1 function_name_id=1 line=36 end_line=36 column=1 end_column=9}\n\n"
        "StackFrames\n9 {file_location_id=3 parent_frame_id=9}\n\n"
    )
    line = "ROOT " + all_reduce("[1,8]<=[8]") + ', metadata={op_name="a" stack_frame_id=9}'
    before = program(line, before=tables + ADD)
    behind = read(module(line) + b"\n" + tables.encode())
    assert only_op(before).source == only_op(behind).source == "app/step.py:36"


SEND_RECV = (
    "t = token[] after-all()",
    "s = (f32[64], u32[], token[]) send(p, t), channel_id=1, frontend_attributes={{{0}}}",
    "sd = token[] send-done(s), channel_id=1",
    "r = (f32[64], u32[], token[]) recv(sd), channel_id=2, frontend_attributes={{{0}}}",
    "ROOT rd = (f32[64], token[]) recv-done(r), channel_id=2",
)


@pytest.mark.parametrize("quote", ['"', ""])
def test_sends_and_receives_stand_on_their_pairs(quote: str) -> None:
    """The frontend attribute gives the pairs, with quotes or without."""
    pairs = f"_xla_send_recv_source_target_pairs={quote}{{{{0,1}},{{1,2}}}}{quote}"
    found = program(*[line.format(pairs) for line in SEND_RECV], header="num_partitions=4")
    assert [(op.kind.value, op.pairs, op.elements) for op in found.walk()] == [
        ("send", 0, (64,)),
        ("recv", 0, (64,)),
    ]
    assert found.src_target_pairs[0].pairs == ((0, 1), (1, 2))
    assert found.findings == ()


def test_transfers_to_the_host_are_no_ops() -> None:
    """is_host_transfer=true leaves the world of devices; nothing is left to compare."""
    lines = [
        line.format("").replace("channel_id", "is_host_transfer=true, channel_id")
        for line in SEND_RECV
    ]
    found = program(*lines)
    assert found.ops == ()
    assert codes(found, "warning") == ["RM312"]


def test_sends_without_pairs_say_so() -> None:
    """A send whose peer no text names cannot be compared (RM706)."""
    found = program(*[line.format("") for line in SEND_RECV])
    assert codes(found, "warning") == ["RM706", "RM706", "RM312"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"a = f32[128] all-gather(p), {G}, dimensions={{0}}", "holds 2 times f32"),
        (f"a = f32[64] all-gather(p), {G}, dimensions={{1}}", "out of range"),
        (f"a = f32[16] reduce-scatter(p, p), {G}, dimensions={{0}}, to_apply=add", "2 operands"),
        (f"a = f32[64] all-to-all(p), {G}, dimensions={{3}}", "out of range"),
        (f"a = f32[63] all-to-all(p), {G}, dimensions={{0}}", "does not divide"),
        (f"a = (f32[64]) all-to-all(p), {G}", "sends 1 chunks"),
        (f"a = f32[64] ragged-all-to-all(p, p), {G}", "takes 6 operands"),
    ],
)
def test_shapes_that_do_not_fit_their_groups(line: str, message: str) -> None:
    """Group size against operand shapes is RM105, with both numbers."""
    found = program(f"ROOT {line}", header=FOUR)
    assert [(f.code, message in f.message) for f in found.findings] == [("RM105", True)]


@pytest.mark.parametrize(
    "line",
    [
        f"a = f32[16] reduce-scatter(p), {G}, dimensions={{}}, to_apply=add",
        f"a = f32[64] all-reduce(p), {G}",
        f"a = f32[64] all-reduce(p), {G}, to_apply=missing",
        "a = f32[64] collective-permute(p)",
        f"a = <<TYPE>>[64] all-reduce(p), {G}, to_apply=add",
        f"a = f32[64] all-reduce(p), {G}, to_apply=add, {G}",
        f"a = f32[64] all-reduce(p), {G}, to_apply=add, channel_id=x",
        f"a = f32[64] all-reduce(p), {G}, to_apply=add, use_global_device_ids=maybe",
        f"a = f32[64] all-shuffle(p), {G}",
        f"a = f32[64] all-reduce(q), {G}, to_apply=add",
    ],
)
def test_what_cannot_be_an_op_is_refused_where_it_stands(line: str) -> None:
    """Missing or unreadable parts are errors of the line they stand in."""
    with pytest.raises(InvalidProgram) as caught:
        read(module(f"ROOT {line}", header=FOUR), where="step.hlo")
    assert (caught.value.where, caught.value.line) == ("step.hlo", 11)


def test_a_misspelt_collective_is_answered_by_the_nearest() -> None:
    """An opcode that nobody knows and that has groups would hide a difference."""
    line = f"ROOT a = f32[64] all_reduce(p), {G}, to_apply=add"
    with pytest.raises(InvalidProgram, match=r"unknown collective .*; did you mean 'all-reduce'"):
        read(module(line, header=FOUR))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("{{0,1},{0,2}}", ["RM201"]),
        ("{{0,2},{1,2}}", ["RM202"]),
        ("{{0,8}}", ["RM203"]),
        ("{{0,-1}}", ["RM203"]),
        ("{{0,1000000000000}}", ["RM203"]),
    ],
)
def test_wrong_pairs(pairs: str, expected: list[str]) -> None:
    """Sources and targets stand once each and inside the world."""
    line = f"ROOT a = f32[64] collective-permute(p), channel_id=1, source_target_pairs={pairs}"
    assert codes(program(line)) == expected


def test_no_pairs_are_a_warning() -> None:
    """A permute without pairs is legal and moves nothing (RM207)."""
    found = program("ROOT a = f32[64] collective-permute(p), source_target_pairs={}")
    assert codes(found, "warning") == ["RM207"]


def test_the_in_place_form_may_name_each_end_twice() -> None:
    """Two slices move at once: twice is legal, three times is not. Elements are the slices'."""
    line = (
        "ROOT a = f32[64] collective-permute(p, p, o, o), channel_id=1, "
        "source_target_pairs={{{{0,1}},{{0,2}}{}}}, slice_sizes={{{{8}},{{16}}}}"
    )
    start = "o = (s32[]) tuple(p)"
    twice, thrice = (program(start, line.format(more)) for more in ("", ",{0,3}"))
    assert only_op(twice).elements == (24,)
    assert (codes(twice), codes(thrice)) == ([], ["RM201"])


@pytest.mark.parametrize("rest", ["", ', frontend_attributes={x="true"}', ", metadata={op_name=c}"])
def test_a_call_may_say_more_than_its_callee(rest: str) -> None:
    """Attributes behind the callee change nothing, in whatever form they stand."""
    held = ADD + f"held {{\n  p = f32[64] parameter(0)\n  {all_reduce('{{0,1}}')}\n}}\n"
    plain = program("c = f32[64] call(p), to_apply=held", before=held)
    assert kinds(plain) == ["all_reduce"]
    assert program(f"c = f32[64] call(p), to_apply=held{rest}", before=held) == plain
    split = f"c = f32[64] call(p), to_apply=held{rest}\n    , sharding={{replicated}}"
    assert program(split, before=held) == plain


def test_a_channel_of_zero_is_no_other_channel() -> None:
    """Collectives that are alike but for a channel of 0 are not taken for each other."""
    like = (
        "ar.{0} = f32[64] all-reduce(p), channel_id={0}, replica_groups={{{{0,1}}}}, to_apply=add"
    )
    assert codes(program(*(like.format(n) for n in (1, 0, 2)))) == codes(program(like.format(0)))
    assert "RM108" in codes(program(like.format(0)))
