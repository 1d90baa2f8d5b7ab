"""Large texts are read only where it matters: what is found there is what whole reading finds."""

from __future__ import annotations

import random

import pytest
from hlo_modules import ADD

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo import read
from rankmuster.formats.hlo.edges import read_edges
from rankmuster.formats.hlo.module import SMALL, Module, parse_module
from rankmuster.formats.hlo.sites import behind, find_all, scan_by_arrays

EIGHT = "channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true"
AFTER = "ROOT %r = f32[8]{0} negate(%q)"
HELD = f"""%held.1 (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %ar = f32[8]{{0}} all-reduce(%p), {EIGHT}, to_apply=%add
}}

"""


def padding(count: int = 1500) -> str:
    """Computations without collectives, which nothing calls: enough to make a text large."""
    line = '  %n = f32[8]{0} negate(%p), metadata={op_name="a/all-reduce(b)"}\n'
    return "".join(
        f"%pad.{i} (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n{line}"
        "  ROOT %r = f32[8]{0} negate(%n)\n}\n\n"
        for i in range(count)
    )


def text(*lines: str, before: str = "", header: str = "") -> bytes:
    """A large module whose ENTRY holds *lines* behind the parameter %p."""
    entry = "".join(f"  {line}\n" for line in ("%p = f32[8]{0} parameter(0)", *lines))
    start = f"HloModule big, num_partitions=8{header}\n\n{ADD}\n{before}{padding()}"
    return f"{start}ENTRY %main (p: f32[8]) -> f32[8] {{\n{entry}}}\n".encode()


def tangle(rng: random.Random, count: int = 400) -> list[str]:
    """A body of ops, some collective, on whatever stands above, with one ROOT that uses a few."""
    names, lines = ["%p"], []
    for i in range(count):
        used = rng.choices(names[-30:], k=rng.choice((1, 1, 1, 2, 3)))
        kind = rng.choice(["add", "add", "all-reduce", "collective-permute", "tuple", "reduce"])
        rest = {
            "all-reduce": f", {EIGHT}, to_apply=%add",
            "collective-permute": f", channel_id=1, source_target_pairs={{{{0,{i % 7 + 1}}}}}",
            "reduce": ", dimensions={0}, to_apply=%add",
        }.get(kind, "")
        if rng.random() < 0.2:
            rest += f', metadata={{op_name="jit(f)/({rng.choice(names)}, %x.1)"}}'
        shape = f"(f32[8]{{0}}, /*index=1*/f32[{i + 1}])" if kind == "tuple" else f"f32[{i + 1}]"
        name = rng.choice(["%x", "%x", "%x", "%x_that_was_given_a_long_name_by_somebody"])
        lines.append(f"{name}.{i} = {shape} {kind}({', /*index=5*/'.join(used)}){rest}")
        names.append(f"{name}.{i}")
    root = ", ".join(rng.sample(names, 3 if rng.random() < 0.5 else 200))
    return [*lines, f"ROOT %r = f32[8]{{0}} custom-call({root})"]


@pytest.mark.parametrize("seed", range(12))
def test_the_quick_order_is_that_of_the_whole_graph(seed: int) -> None:
    """A comment makes the reader take the whole graph; it changes no op and no order."""
    lines = tangle(random.Random(seed))
    quick, whole = read(text(*lines)), read(text("// whole", *lines))
    assert quick == whole
    assert len(list(quick.walk())) > 30
    assert read_edges(["".join(f"  {line}\n" for line in lines).encode()]) is not None


@pytest.mark.parametrize(
    "line",
    [
        "%y = f32[8]{0} add(%p, %p), control-predecessors={%r0}",
        "%y = f32[8]{0} add(p, p)",
        "%y = f32[8]{0} add(%p, p)",
        "%y = f32[8]{0} add(f32[8]{0} %p, f32[8]{0} %p)",
        "%y = f32[8]{0} add(%p,%p )",
        "y = f32[8]{0} add(%p, %p)",
        "%y = f32[8]{0} add(%p,\n  %p)",
        "%y = f32[8]{0} add(%p, %p) // and so on",
        "%y = f32[8]{0} negate(%p) /*\n  %z = f32[8]{0} negate(%y) */",
        f"%y{'y' * 256} = f32[8]{{0}} negate(%p)",
    ],
)
def test_another_spelling_is_read_whole(line: str) -> None:
    """What XLA spells otherwise, or not at all, has no edges by arrays, and the same order."""
    first = "%r0 = f32[8]{0} negate(%p)"
    *lines, root = tangle(random.Random(1))
    spelt = [first, *lines, line, root]
    body = "".join(f"  {line}\n" for line in spelt).encode()
    assert (read_edges([body]) is None) is ("//" not in line)
    assert list(read(text(*spelt)).walk()) == list(read(text(first, *lines, root)).walk())


@pytest.mark.parametrize(
    "call",
    [
        "call(%p), to_apply=%held.1",
        "fusion(%p), kind=kLoop, calls=%held.1",
        'custom-call(%p), custom_call_target="t", called_computations={%held.1}',
    ],
)
def test_collectives_are_found_through_calls_of_a_large_text(call: str) -> None:
    """A computation is found by its name among a thousand that nobody asks for."""
    for lines in ([f"ROOT %r = f32[8]{{0}} {call}"], [f"%q = f32[8]{{0}} {call}", AFTER]):
        found = read(text(*lines, before=HELD))
        assert [op.name for op in found.walk()] == ["ar"]


@pytest.mark.parametrize(
    ("lines", "before", "message"),
    [
        (["ROOT %r = f32[8]{0} call(%p), to_apply=%held.2"], HELD, "'held.2' is not defined"),
        (["ROOT %r = f32[8]{0} call(%p), to_apply=%held.1"], HELD + HELD, "defined twice"),
        ([f"ROOT %r = f32[8]{{0}} all-shuffle(%p), {EIGHT}"], HELD, "unknown collective"),
        (["ROOT %r = f32[8]{0} negate(%p)\n}\n\nHloModule x"], HELD, "second HloModule"),
        (["ROOT %r = f32[8]{0} negate(%p)\n"], HELD + "%open.1 () -> f32[] {\n", "not closed"),
    ],
)
def test_what_a_large_text_gets_wrong_is_named(lines: list[str], before: str, message: str) -> None:
    """Undefined and repeated names, unknown collectives, second modules, lost braces."""
    with pytest.raises(InvalidProgram, match=message) as caught:
        read(text(*lines, before=before))
    assert (caught.value.line or 0) > 1


def modules(data: bytes) -> tuple[Module, Module]:
    lines = scan_by_arrays(data).lines
    return parse_module(data, lines), parse_module(data, lines, arrays=True)


def test_names_are_looked_up_alike() -> None:
    """Reading all names, and those that begin as one asked for, find the same places."""
    whole, asked = modules(text("ROOT %r = f32[8]{0} negate(%p)", before=HELD))
    names = [b"add", b"held.1", b"pad.7", b"pad.1499", b"main", b"mai", b"pad.1500", b""]
    assert len(whole.text) > SMALL
    assert [asked.names.place(n) for n in names] == [whole.names.place(n) for n in names]
    assert whole.names.place(b"main") == whole.entry == asked.entry


def test_words_are_found_by_arrays_as_by_search() -> None:
    """Where words end, also across the borders of chunks."""
    words = (b" calls=", b"to_apply=", b"replica_groups=")
    for shift in range(0, 24, 5):
        data = b"HloModule m" + b" " * ((1 << 18) - 20 + shift) + b"x calls=a, to_apply=b " * 3
        found = sorted(p + len(w) for w in words for p in find_all(data, w))
        assert len(found) == 6
        assert behind(data, words) == found
