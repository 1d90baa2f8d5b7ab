"""Any bytes at all: a Program or an InvalidProgram, nothing else, in bounded time."""

from __future__ import annotations

import mmap
import random
from pathlib import Path

import pytest
from hlo_modules import ADD, all_reduce, codes, module, program
from hypothesis import given, settings
from hypothesis import strategies as st

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo import read
from rankmuster.formats.hlo.module import Module, parse_module
from rankmuster.formats.hlo.sites import scan_by_arrays, scan_by_search
from rankmuster.program import Program

EXAMPLE = module(
    "t = token[] after-all()",
    's = (f32[64], u32[], token[]) send(p, t), channel_id=1, frontend_attributes={_x="{a"}',
    all_reduce("{{0,1,2,3},{4,5,6,7}}", name="a")
    + ', metadata={op_name="jit(f)/\\"q\\"" source_file="a.py" source_line=3}',
    all_reduce("mesh['x'=2,'y'=4], device_ids=([8]) {'y':(1)2}", name="b"),
    "g = (f32[64]{0:T(8,128)(2,1)}, f32[512]) all-gather-start(a), replica_groups=[1,8]<=[8], "
    "dimensions={0} // more",
    "gd = f32[512] all-gather-done(g), control-predecessors={b}",
    "c = f32[64] collective-permute(a),\n    source_target_pairs={{0,1},{1,0}}",
    "ROOT r = (f32[512], /*index=1*/f32[64]) tuple(gd, c), sharding={{replicated}, {replicated}}",
)


def outcome(data: bytes) -> Program | InvalidProgram:
    try:
        return read(data)
    except InvalidProgram as error:
        return error


def test_the_example_reads() -> None:
    """The text that the fuzzers start from is a good one."""
    found = read(EXAMPLE)
    assert [op.name for op in found.walk()] == ["a", "g", "b", "c"]


@pytest.mark.parametrize("end", range(0, len(EXAMPLE), 7))
def test_a_truncated_module_is_never_a_program(end: int) -> None:
    """Text cut off anywhere before its last brace is refused with a place."""
    error = outcome(EXAMPLE[:end])
    assert isinstance(error, InvalidProgram)
    assert error.line is not None


@settings(max_examples=150)
@given(st.data())
def test_mutated_text_is_a_program_or_an_error(data: st.DataObject) -> None:
    """Bytes changed, dropped, doubled or moved never escape as another exception."""
    text = bytearray(EXAMPLE)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        piece = data.draw(
            st.sampled_from(
                [b"", b"{", b"}", b'"', b"(", b")", b",", b"=", b"%", b"\n", b"9", b"//"]
            )
        )
        text[at : at + data.draw(st.integers(0, 3))] = piece
    outcome(bytes(text))


@settings(max_examples=50)
@given(st.binary(max_size=200), st.sampled_from([b"", b"HloModule m\n"]))
def test_junk_is_an_error(junk: bytes, head: bytes) -> None:
    """Binary junk, with or without the right first word, has no program."""
    assert isinstance(outcome(head + junk), InvalidProgram)


@pytest.mark.parametrize(
    "line",
    [
        "ROOT t = " + "(" * 10_000 + "f32[]" + ")" * 10_000 + " tuple(p)",
        "ROOT t = " + "(" * 10_000 + "f32[]" + ")" * 10_000 + " all-reduce(p), to_apply=add",
        "ROOT t = f32[64] all-reduce(" + "(" * 10_000 + ")" * 10_000 + "), to_apply=add",
        "ROOT t = f32[64] add(p, p), metadata={" + "{" * 10_000,
        "ROOT t = f32[64] add(p, p)), x",
        "ROOT t = f32[64] add(p, missing)",
        "ROOT t = f32[64] add(p, p) trailing [words]]",
        "p = f32[64] negate(p)",
        "ROOT t = f32[64] call(p), to_apply=nowhere",
        "ROOT t = f32[64] call(p), to_apply=main",
    ],
)
def test_hostile_lines_are_refused_with_their_place(line: str) -> None:
    """Deep nesting, unbalanced brackets and undefined names end quickly, with line and column."""
    error = outcome(module(all_reduce("[1,8]<=[8]", name="first"), line))
    assert isinstance(error, InvalidProgram)
    assert (error.line or 0) >= 9
    assert error.column is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EXAMPLE + EXAMPLE, "second HloModule"),
        (EXAMPLE.replace(b"ENTRY main", b"ENTRY add"), "defined twice"),
        (EXAMPLE.replace(b"add {", b"ENTRY add {"), "second ENTRY"),
        (EXAMPLE.replace(b"=8\n", b"=0\n"), "is not a count"),
        (EXAMPLE.replace(b"=8\n", b"=1000000000000\n"), "runs on"),
        (b"HloModule m, entry_computation_layout={()->()}\n" + ADD.encode(), "cut off"),
        (b"", "no HloModule"),
    ],
)
def test_modules_that_are_none_say_why(text: bytes, message: str) -> None:
    """Several modules, a missing end and impossible counts are named."""
    error = outcome(text)
    assert message in str(error)


def test_the_last_computation_is_the_entry_where_none_is_marked() -> None:
    """XLA's parser takes it so; text that XLA printed always has a marked one."""
    text = module("ROOT " + all_reduce("[1,8]<=[8]")).replace(b"ENTRY ", b"")
    assert [op.name for op in read(text).walk()] == ["ar"]


def large(count: int = 300) -> bytes:
    rng = random.Random(5)
    parts = ["HloModule big, is_scheduled=true, num_partitions=8", "", ADD]
    for i in range(count):
        lines = [f"  %p{i} = f32[64]{{0}} parameter(0)"]
        for j in range(rng.randrange(6)):
            rest = ', metadata={op_name="a/all-reduce(b)=c"}'
            lines.append(f"  %n{i}.{j} = f32[64]{{0}} negate(%p{i}){rest}")
        if i % 7 == 0:
            lines.append("  %" + all_reduce("[2,4]<=[8]", name=f"ar{i}").replace("(p)", f"(%p{i})"))
        lines.append(f"  ROOT %r{i} = f32[64]{{0}} negate(%p{i})")
        head = (
            f"%f{i} (q: f32[64]) -> f32[64] {{"
            if i < count - 1
            else "ENTRY %main (q: f32[64]) -> f32[64] {"
        )
        parts.append("\n".join([head, *lines, "}", ""]))
    return "\n".join(parts).encode() + b"\n"


def frame(text: bytes) -> Module:
    return parse_module(text, scan_by_search(text).lines)


def test_both_scans_find_the_same() -> None:
    """Searching for words and comparing arrays of bytes are one function."""
    for text in (EXAMPLE, large(), large().replace(b"\n", b"\r\n"), EXAMPLE * 3):
        assert scan_by_search(text) == scan_by_arrays(text)


@settings(max_examples=100)
@given(st.lists(st.sampled_from([*EXAMPLE.split(), b"\n", b"\n}", b"{\n"]), max_size=60))
def test_both_scans_find_the_same_anywhere(words: list[bytes]) -> None:
    """... in any order of words."""
    text = b"HloModule m\n" + b" ".join(words)
    assert scan_by_search(text) == scan_by_arrays(text)


def test_both_frames_are_the_same() -> None:
    """Reading only the first column, and walking every bracket, give the same computations."""
    text = large(1200)
    indented = text.replace(b"\n%f7 ", b"\n %f7 ")  # no longer as XLA prints: walk the brackets
    columns, brackets = frame(text), frame(indented)
    assert len(text) > 1 << 17
    names = [[m.names.of(place) for place in range(len(m.headers))] for m in (columns, brackets)]
    assert names[0] == names[1]
    bodies = [
        [m.text[s:e] for s, e in zip(m.starts, m.ends, strict=True)] for m in (columns, brackets)
    ]
    assert bodies[0] == bodies[1]
    assert read(text) == read(indented)


def test_an_indented_computation_cannot_hide() -> None:
    """Text that only looks as XLA prints it is still read right."""
    text = large(1200).replace(b"\n}\n\nENTRY", b"\n  }\n\n  ENTRY").replace(b"q: f32", b"q: f32")
    assert [op.name for op in read(text).walk()] == [op.name for op in read(large(1200)).walk()]


def test_a_large_module_that_is_cut_off_is_refused() -> None:
    """The first column shows that the last computation is not closed."""
    text = large(1200)
    for end in (text.rindex(b"}"), text.rindex(b"ENTRY"), len(text) - 3_000):
        assert isinstance(outcome(text[:end]), InvalidProgram) or b"layout" not in text[:100]


def test_a_map_reads_like_bytes(tmp_path: Path) -> None:
    """A mapped file gives the same program and can be closed at once."""
    path = tmp_path / "big.hlo"
    path.write_bytes(large(1200))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        assert read(data) == read(large(1200))


def test_findings_are_bounded() -> None:
    """Many wrong sets give some findings and a count of the rest."""
    lines = [all_reduce(f"{{{{0,{i}}}}}", name=f"a{i}") for i in range(8, 208)]
    found = program(
        *lines, "ROOT r = f32[64] negate(p)", header="is_scheduled=true, num_partitions=8"
    )
    assert len(codes(found)) < 80
    assert "168 more findings of this kind" in [f.message for f in found.findings]


def test_instructions_may_share_a_line() -> None:
    """Line breaks mean nothing to XLA's lexer; the same words on one line are the same program."""
    lines = [all_reduce("[1,8]<=[8]", name=f"a{i}") for i in range(5)]
    end = "ROOT r = f32[64] negate(a0)"
    for header in ("num_partitions=8", "num_partitions=8, is_scheduled=true"):
        apart, together = (
            program(*lines, end, header=header),
            program(" ".join([*lines, end]), header=header),
        )
        assert apart == together


@pytest.mark.parametrize(
    "hiding", ['metadata={{op_name="{}"}}', "metadata={{}} // {}", "metadata={{}} /* {} */"]
)
def test_words_in_strings_and_comments_are_no_ops(hiding: str) -> None:
    """A hundred thousand opcodes that are none cost no more than their bytes."""
    words = " all-reduce( replica_groups= while(" * 30_000
    found = program(
        f"n = f32[64] negate(p), {hiding.format(words)}", "ROOT " + all_reduce("[1,8]<=[8]")
    )
    assert [op.name for op in found.walk()] == ["ar"]


def test_far_operands_are_found_in_bounded_time() -> None:
    """Operands defined far above their use are looked up once, not searched for each time."""
    count = 600
    lines = [f"q{i} = f32[8,{i + 1}] reshape(p)" for i in range(count)]
    lines += [f"n{i} = f32[64] negate(p)" for i in range(count)]
    groups = "replica_groups=[1,8]<=[8], channel_id=1, use_global_device_ids=true"
    lines += [
        f"g{i} = f32[64,{i + 1}] all-gather(q{i}), {groups}, dimensions={{0}}" for i in range(count)
    ]
    header = "num_partitions=8, is_scheduled=true"
    found = program(*lines, "ROOT r = f32[64] negate(p)", header=header)
    assert [op.elements for op in found.walk()] == [(8 * (i + 1),) for i in range(count)]
    assert found.findings == ()
