"""Headers, counts, computations, order and calls."""

from __future__ import annotations

import random

import pytest
from hlo_modules import ADD, all_reduce, codes, kinds, module, program

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo import read, sniff
from rankmuster.program import Branch, Loop

CONTROL = "control-predecessors={{{1}}}"
FLAT = "channel_id=1, use_global_device_ids=true"
EIGHT = "[1,8]<=[8]"


def names(text: bytes) -> list[str]:
    return [op.name for op in read(text).walk()]


@pytest.mark.parametrize(
    ("data", "is_hlo"),
    [
        (b"HloModule m\n", True),
        (b"\n// a comment\n/* and\nanother */ HloModule m, x=1", True),
        (b"module @jit_f {", False),
        (b"", False),
        (b"HloModuleX", False),
    ],
)
def test_sniffing_looks_past_comments(data: bytes, *, is_hlo: bool) -> None:
    """HLO text begins with HloModule, after blanks and comments."""
    assert sniff(data) is is_hlo


@pytest.mark.parametrize(
    ("header", "options", "expected"),
    [
        ("replica_count=2, num_partitions=4", {}, (8, "header")),
        ("replica_count=2", {}, (2, "header")),
        ("replica_count=2", {"replicas": 4}, (4, "option")),
        ("", {"partitions": 16}, (16, "option")),
        ("", {}, (8, "inferred")),
    ],
)
def test_counts_come_from_the_caller_else_the_header_else_the_ids(
    header: str, options: dict[str, int], expected: tuple[int, str]
) -> None:
    """The caller goes before the header; what nobody states is inferred and said (RM704)."""
    found = read(module("ROOT " + all_reduce(EIGHT), header=header), **options)
    assert (found.world_size, found.world_source) == expected
    assert ("RM704" in codes(found, "info")) is (expected[1] == "inferred")


def test_an_unscheduled_module_has_one_order() -> None:
    """Order follows the graph from ROOT: any legal text order and any names give the same."""
    lines = [
        "{0} = f32[64] negate(p)",
        "{1} = f32[64] all-reduce({0}), replica_groups=[1,8]<=[8], to_apply=add",
        "{2} = f32[64] collective-permute(p), source_target_pairs={{{{0,1}}}}",
        "{3} = f32[512] all-gather({2}), replica_groups=[1,8]<=[8], dimensions={{0}}, " + CONTROL,
        "{4} = f32[64] all-reduce(p), replica_groups=[2,4]<=[8], to_apply=add",
        "{5} = f32[64] negate({4})",
        "{6} = f32[64] collective-broadcast(p), replica_groups=[2,4]<=[8]",
    ]
    root = "ROOT t = (f32[64], f32[512], f32[64]) tuple({1}, {3}, {2})"
    seen = set()
    rng = random.Random(7)
    for _ in range(40):
        order = sorted(range(7), key=lambda i: (rng.random() < 0.5, rng.random(), i))
        done: list[int] = []
        while len(done) < 7:  # the first line that is ready in a random order
            needs = {1: {0}, 3: {1, 2}, 5: {4}}
            done.append(
                next(i for i in order if i not in done and needs.get(i, set()) <= set(done))
            )
        labels = [f"{rng.choice('abc')}.{rng.randrange(10**6)}_{i}" for i in range(7)]
        text = [lines[i].format(*labels) for i in done]
        body = [*text, root.format(*labels)]
        ops = program(*body, header="replica_count=8").walk()
        seen.add(tuple((op.kind.value, op.elements, op.reduce) for op in ops))
    (order_of_ops,) = seen
    assert [kind for kind, _, _ in order_of_ops[:3]] == ["all_reduce", "permute", "all_gather"]
    assert len(order_of_ops) == 5


def test_a_scheduled_module_keeps_its_lines() -> None:
    """is_scheduled=true makes the order of lines the order of execution."""
    lines = ("ROOT t = f32[64] negate(a)",)
    first = (all_reduce(EIGHT, name="b"), all_reduce(EIGHT, name="a"))
    scheduled = module(*first, *lines, header="is_scheduled=true, num_partitions=8")
    assert names(scheduled) == ["b", "a"]
    assert names(module(*first, *lines)) == ["a", "b"]


WHILE = """cond {
  c = (f32[64]) parameter(0)
  ROOT lt = pred[] constant(true)
}
body {
  b = (f32[64]) parameter(0)
  g = f32[64] get-tuple-element(b), index=0
  inner = f32[64] all-reduce(g), replica_groups=[1,8]<=[8], to_apply=add
  ROOT r = (f32[64]) tuple(inner)
}
"""


@pytest.mark.parametrize(
    ("config", "trips"),
    [
        ("", None),
        (', backend_config={"known_trip_count":{"n":"7"},"known_init_step":{"init":"0"}}', 7),
    ],
)
def test_a_loop_is_kept_with_its_count(config: str, trips: int | None) -> None:
    """A while loop signs its body once and knows its trips where the text does."""
    found = program(
        "t = (f32[64]) tuple(p)",
        "ROOT w = (f32[64]) while(t), condition=cond, body=body" + config,
        before=ADD + WHILE,
    )
    (loop,) = found.ops
    assert isinstance(loop, Loop)
    assert (loop.trips, [op.name for op in found.walk()]) == (trips, ["inner"])


BRANCHES = """one {
  a = f32[64] parameter(0)
  ROOT ar = f32[64] all-reduce(a), replica_groups=[1,8]<=[8], to_apply=add
}
two {
  ROOT b = f32[64] parameter(0)
}
"""


@pytest.mark.parametrize(
    ("predicate", "on"),
    [
        (["k = pred[] constant(true)"], "data"),
        (["i = u32[] partition-id()", "k = pred[] convert(i)"], "rank"),
        (
            [
                "i = u32[] replica-id()",
                "c = u32[] constant(1)",
                "t = (u32[], u32[]) tuple(c, i)",
                "g = u32[] get-tuple-element(t), index=1",
                "k = pred[] convert(g)",
            ],
            "rank",
        ),
        (
            [
                "i = u32[] replica-id()",
                "c = u32[] constant(1)",
                "t = (u32[], u32[]) tuple(c, i)",
                "g = u32[] get-tuple-element(t), index=0",
                "k = pred[] convert(g)",
            ],
            "data",
        ),
        (
            [
                "i = f32[] partition-id()",
                "s = f32[] all-reduce(i), replica_groups=[1,8]<=[8], to_apply=add, " + FLAT,
                "k = pred[] convert(s)",
            ],
            "data",
        ),
        (
            [
                "i = f32[] partition-id()",
                "s = f32[] all-reduce(i), replica_groups=[2,4]<=[8], to_apply=add, " + FLAT,
                "k = pred[] convert(s)",
            ],
            "rank",
        ),
    ],
)
@pytest.mark.parametrize("scheduled", ["", ", is_scheduled=true"])
def test_a_branch_knows_who_decides_it(predicate: list[str], on: str, scheduled: str) -> None:
    """A predicate that comes from the rank may differ; data that all share may not."""
    call = "true_computation=one, false_computation=two"
    found = program(
        *predicate,
        f"ROOT r = f32[64] conditional(k, p, p), {call}",
        before=ADD + BRANCHES,
        header="num_partitions=8" + scheduled,
    )
    branch = found.ops[-1]
    assert isinstance(branch, Branch)
    assert (branch.on, [len(body) for body in branch.bodies]) == (on, [1, 0])


def test_a_predicate_is_followed_into_loops() -> None:
    """What a loop carries counts from its second trip on."""
    body = """looped {
  b = (u32[], f32[64]) parameter(0)
  k = u32[] get-tuple-element(b), index=0
  x = f32[64] get-tuple-element(b), index=1
  r = f32[64] conditional(k, x, x), branch_computations={one, two}
  n = u32[] partition-id()
  ROOT t = (u32[], f32[64]) tuple(n, r)
}
"""
    found = program(
        "z = u32[] constant(0)",
        "t = (u32[], f32[64]) tuple(z, p)",
        "ROOT w = (u32[], f32[64]) while(t), condition=cond, body=looped",
        before=ADD + WHILE + BRANCHES + body,
    )
    (loop,) = found.ops
    assert isinstance(loop, Loop)
    (branch,) = loop.body
    assert isinstance(branch, Branch)
    assert branch.on == "rank"


def test_an_elided_constant_matters_where_it_decides_a_branch() -> None:
    """Two processes may hold other numbers where both texts say {...} (RM703)."""
    lines = ("c = pred[64] constant({...})", "k = pred[] reduce(c)")
    branch = "ROOT r = f32[64] conditional(k, p, p), branch_computations={one, two}"
    found = program(*lines, branch, before=ADD + BRANCHES)
    unused = program(*lines, "ROOT " + all_reduce(EIGHT))
    assert (codes(found, "warning"), codes(unused, "warning")) == (["RM703"], [])


@pytest.mark.parametrize(
    "call",
    [
        "f32[64] call(p), to_apply=one",
        "f32[64] fusion(p), kind=kLoop, calls=one",
        '((f32[64]), f32[64], u32[]) async-start(p), calls=one, async_execution_thread="x"',
        'f32[64] custom-call(p), custom_call_target="t", called_computations={one}',
    ],
)
def test_collectives_are_found_through_calls(call: str) -> None:
    """A computation that another calls issues its collectives there."""
    found = program(f"ROOT r = {call}", before=ADD + BRANCHES)
    assert kinds(found) == ["all_reduce"]


def test_a_shared_computation_is_issued_at_each_call() -> None:
    """Two calls of one computation are two ops of one group."""
    found = program(
        "a = f32[64] call(p), to_apply=one",
        "ROOT b = f32[64] call(a), to_apply=one",
        before=ADD + BRANCHES,
    )
    assert (kinds(found), len(found.replica_groups)) == (["all_reduce"] * 2, 1)


def test_unreachable_sets_come_last_and_have_no_ops() -> None:
    """Sets that only uncalled computations name follow those that ENTRY reaches (facts E7)."""
    unreachable = BRANCHES.replace("[1,8]<=[8]", "[2,4]<=[8]")
    line = "ROOT " + all_reduce(EIGHT, rest=" ")
    found = program(line, before=ADD + unreachable, header="replica_count=8")
    assert [len(s.members) for s in found.replica_groups] == [1, 2]
    assert kinds(found) == ["all_reduce"]


def test_a_module_without_collectives_is_no_match() -> None:
    """Nothing to compare is said (RM312), never taken for agreement."""
    assert codes(program("ROOT n = f32[64] negate(p)"), "warning") == ["RM312"]


def test_a_thousand_calls_of_a_thousand_calls_are_refused() -> None:
    """Calls that multiply beyond the bound end in an error, not in memory."""
    chain = [BRANCHES]
    before = "one"
    for level in range(30):
        name = f"f{level}"
        chain.append(
            f"{name} {{\n  a = f32[64] parameter(0)\n  b = f32[64] call(a), to_apply={before}\n"
            f"  ROOT c = f32[64] call(b), to_apply={before}\n}}\n"
        )
        before = name
    with pytest.raises(InvalidProgram, match="more than"):
        program(f"ROOT r = f32[64] call(p), to_apply={before}", before=ADD + "".join(chain))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("send recv", []),
        ("recv send", []),
        ("send", ["RM206"]),
        ("send send", ["RM206"]),
        ("send all-reduce recv", ["RM206", "RM206"]),
        ("send-pipelined all-reduce", []),
        ("send-circle", ["RM206"]),
    ],
)
def test_a_schedule_lets_each_send_meet_its_receive(schedule: str, expected: list[str]) -> None:
    """No other collective stands between a send and its receive, and none is left open."""
    lines = ["t = token[] after-all()"]
    for i, what in enumerate(schedule.split()):
        kind, _, how = what.partition("-")
        if kind == "all":
            lines.append(all_reduce(EIGHT))
            continue
        pairs = "{{0,1},{1,0}}" if how == "circle" else "{{0,1}}"
        more = ',_xla_send_recv_pipeline="0"' if how == "pipelined" else ""
        lines.append(
            f"x{i} = (f32[64], u32[], token[]) {kind}({'p, ' if kind == 'send' else ''}t), "
            f'frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"{more}}}'
        )
    lines.append("ROOT r = f32[64] negate(p)")
    found = program(*lines, header="is_scheduled=true, num_partitions=8")
    assert codes(found) == expected


def test_a_done_must_close_a_start() -> None:
    """A done of something that was never started is malformed."""
    found = program("t = f32[64] negate(p)", "ROOT d = f32[64] collective-permute-done(t)")
    assert codes(found) == ["RM701"]


def test_a_send_has_one_consumer() -> None:
    """A send that two instructions use can be closed by neither (RM206)."""
    attrs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}'
    found = program(
        "t = token[] after-all()",
        f"s = (f32[64], u32[], token[]) send(p, t), {attrs}",
        "d = token[] send-done(s)",
        "ROOT r = ((f32[64], u32[], token[]), token[]) tuple(s, d)",
    )
    assert codes(found) == ["RM206"]


@pytest.mark.parametrize("index", ["x", "-1", "9" * 5000, "7"])
def test_a_nonsense_index_breaks_nothing(index: str) -> None:
    """An index that is none leaves a shape or a predicate unknown, and is no crash."""
    lines = (
        "t = (f32[64], pred[]) tuple(p, p)",
        f"g = get-tuple-element(t), index={index}",
        f"a = f32[512] all-gather(g), {FLAT}, replica_groups=[1,8]<=[8], dimensions={{0}}",
        "ROOT r = f32[64] conditional(g, p, p), branch_computations={one, two}",
    )
    assert sorted(kinds(program(*lines, before=ADD + BRANCHES))) == ["all_gather", "all_reduce"]
