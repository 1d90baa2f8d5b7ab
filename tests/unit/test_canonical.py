from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_strategies import WORLD, programs

from rankmuster.program import Loop, Node, Op, Program
from rankmuster.resolve import Resolved
from rankmuster.signature import canonical, sign
from rankmuster.testing.build import (
    all_gather,
    all_reduce,
    branch,
    loop,
    op,
    permute,
    program,
    recv,
    send,
)

PAIR = (0, 1)


def digests(each: Program, members: tuple[int, ...] = PAIR) -> tuple[str, str]:
    """The digests of the program and of one communicator."""
    resolved = Resolved(each)
    communicator = canonical.communicator_digest(resolved, members)
    return str(canonical.program_digest(resolved)), str(communicator)


def of(*nodes: Node) -> tuple[str, str]:
    """The digests of ops on one communicator of two."""
    return digests(program(*nodes, groups=[[PAIR]], pairs=[[PAIR]]))


PLAIN = op("broadcast", 64, root=0, dimension=0)


@pytest.mark.parametrize(
    "other",
    [
        op("gather", 64, root=0, dimension=0),
        op("broadcast", 65, root=0, dimension=0),
        op("broadcast", [64, 64], root=0, dimension=0),
        op("broadcast", 64, "bf16", root=0, dimension=0),
        op("broadcast", 64, root=1, dimension=0),
        op("broadcast", 64, root=None, dimension=0),
        op("broadcast", 64, root=0, dimension=1),
        loop(1, PLAIN),
        loop(2, PLAIN),
        loop(None, PLAIN),
        branch([PLAIN], []),
        branch([], [PLAIN]),
    ],
)
def test_every_field_that_ranks_must_share_counts(other: Node) -> None:
    """A change of any one of them changes both digests."""
    assert all(ours != theirs for ours, theirs in zip(of(PLAIN), of(other), strict=True))


@pytest.mark.parametrize("reduce", ["max", None, "custom:(a*b)", "custom:(a+b)"])
def test_the_reduce_op_counts(reduce: str | None) -> None:
    """Standard ops, computations by their text, and one that is not recorded all differ."""
    others = {"max", None, "custom:(a*b)", "custom:(a+b)", "add"} - {reduce}
    mine = of(all_reduce(reduce=reduce))
    assert all(of(all_reduce(reduce=other))[1] != mine[1] for other in others)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"source": "model.py:9"},
        {"stream": 3},
        {"label": "tag"},
    ],
)
def test_what_ranks_need_not_share_does_not_count(change: dict[str, Any]) -> None:
    """Names, sources, streams and labels leave both digests alone."""
    assert of(msgspec.structs.replace(PLAIN, **change)) == of(PLAIN)


def test_splits_are_transposed_not_compared() -> None:
    """With splits neither they nor the counts that follow from them count (RM305)."""
    first = op("all_to_all_v", 64, input_splits=(1, 63), output_splits=(1, 5))
    second = op("all_to_all_v", 8, input_splits=(5, 3), output_splits=(63, 3))
    assert of(first) == of(second)


def test_sends_and_receives_are_paired_not_compared() -> None:
    """Messages, and loops that hold nothing else, leave no trace."""
    assert of(send(1), PLAIN, loop(5, branch([recv(0)], []))) == of(PLAIN)


def test_order_counts() -> None:
    """Two ops swapped are another program."""
    first, second = of(all_reduce(), all_gather()), of(all_gather(), all_reduce())
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_loops_and_branches_vanish_where_they_hold_nothing() -> None:
    """A communicator does not see control flow that is about other devices."""
    elsewhere = loop(3, branch([all_reduce(group=1)], [loop(2)]))
    groups = [[PAIR], [(2, 3)]]
    alone, with_others = (program(*ops, groups=groups) for ops in ([PLAIN], [elsewhere, PLAIN]))
    assert digests(alone)[0] != digests(with_others)[0]
    assert digests(alone)[1] == digests(with_others)[1]


def test_other_sets_do_not_count_in_a_communicator() -> None:
    """Set ids shift with other sets; what a member list does stays the same."""
    shifted = program(all_reduce(group=1), groups=[[(2, 3)], [PAIR]])
    assert digests(shifted)[1] == of(all_reduce())[1]


def test_ids_of_sets_do_not_count() -> None:
    """Tables in another order are the same program."""
    first = program(all_reduce(group=0), all_gather(group=1), groups=[[PAIR], [(2, 3)]])
    second = program(all_reduce(group=1), all_gather(group=0), groups=[[(2, 3)], [PAIR]])
    assert digests(first) == digests(second)


def test_sets_with_equal_lists_are_told_apart() -> None:
    """The same op on the second of two equal sets is another communicator's."""
    groups = [[PAIR], [PAIR]]
    first, second = (program(all_reduce(group=number), groups=groups) for number in (0, 1))
    assert all(a != b for a, b in zip(digests(first), digests(second), strict=True))


def test_sub_groups_may_stand_in_any_order_members_may_not() -> None:
    """The order of sub-groups means nothing, the order of members says who is shard 0."""
    first = digests(program(PLAIN, groups=[[PAIR, (2, 3)]]))
    assert digests(program(PLAIN, groups=[[(2, 3), PAIR]])) == first
    assert digests(program(PLAIN, groups=[[PAIR, (3, 2)]]))[0] != first[0]
    assert digests(program(PLAIN, groups=[[(1, 0), (2, 3)]]), (1, 0))[1] != first[1]


def test_an_op_on_pairs_counts_all_pairs_sorted() -> None:
    """A component that looks the same differs if another part of the set does."""
    first = digests(program(permute(), pairs=[[(1, 0), (0, 1)]]))
    assert digests(program(permute(), pairs=[[(0, 1), (1, 0)]])) == first
    assert digests(program(permute(), pairs=[[(0, 1), (1, 0), (2, 3)]]))[1] != first[1]
    assert digests(program(permute(), pairs=[[(0, 1)]]))[1] != first[1]


def test_a_posting_is_the_structured_list_behind_the_digest() -> None:
    """Tokens tell ops with their places, and where loops and branches start, turn and end."""
    nodes = (send(1), loop(7, all_reduce([1, 2]), branch([], [permute()])))
    resolved = Resolved(program(*nodes, groups=[[PAIR]], pairs=[[PAIR]]))
    tokens = canonical.posting(resolved, PAIR)
    assert [token.key[0] for token in tokens] == [
        *("loop", "op", "branch", "next", "op", "end", "end")
    ]
    assert [(t.index, t.in_group, t.group) for t in tokens if t.op] == [(1, 1, 0), (3, 0, 1)]
    assert tokens[0].key == ("loop", 7)
    named = dict(zip(canonical.OP_FIELDS, tokens[4].key[1:], strict=True))
    assert (named["kind"], named["ordinal"]) == ("permute", 1)


def test_content_sees_all_but_names_and_sources() -> None:
    """Programs that any check could tell apart have different content digests."""

    def content(*nodes: Node, **rest: Any) -> str:
        each = program(*nodes, groups=[[PAIR]], **rest)
        return str(canonical.content_digest(Resolved(each)))

    plain = content(send(1))
    assert content(send(1, name="x", source="y"), rank=3) == plain
    different = [send(1, label="x"), send(1, 8), send(1, stream=1), recv(1), loop(2, send(1))]
    assert plain not in map(content, different)
    assert content(send(1), world_size=2) != plain
    assert content(branch([PLAIN], on="rank")) != content(branch([PLAIN], on="data"))


def test_deep_nesting_costs_no_stack() -> None:
    """Ten thousand loops inside one another sign like any program."""
    node: Node = PLAIN
    for _ in range(10_000):
        node = Loop(trips=2, body=(node,))
    assert of(node) != of(PLAIN)


@given(programs(messages=False))
def test_members_of_one_program_agree(each: Program) -> None:
    """With one program all members of a communicator have equal digests in both projections."""
    resolved = Resolved(each)
    signed = {device: sign(resolved, device).groups for device in range(WORLD)}
    for group in (group for device in range(WORLD) for group in resolved.groups_of(device)):
        assert len({signed[member][group.id] for member in group.members}) == 1


def libnrt_of(resolved: Resolved, members: tuple[int, ...]) -> list[bytes]:
    ids = resolved.sets_by_members.get(members, ())
    return [sign(resolved, members[0]).groups[number] for number in ids]


@given(programs(messages=False), st.data())
def test_equal_canonical_digests_imply_equal_libnrt_digests(each: Program, data: Any) -> None:
    """Without messages, whatever agrees in the projection that decides agrees in the other."""
    other = data.draw(variants(each))
    ours, theirs = Resolved(each), Resolved(other)
    for members in set(ours.sets_by_members) & set(theirs.sets_by_members):
        digest, other_digest = (
            canonical.communicator_digest(resolved, members) for resolved in (ours, theirs)
        )
        if digest == other_digest:
            pairs = zip(libnrt_of(ours, members), libnrt_of(theirs, members), strict=False)
            assert all(a == b for a, b in pairs)


def variants(each: Program) -> st.SearchStrategy[Program]:
    """Programs that may differ from *each* on some communicators only."""
    groups = list(each.replica_groups)

    def with_ops(nodes: tuple[Node, ...]) -> Program:
        return msgspec.structs.replace(each, ops=nodes)

    def change(node: Node) -> Node:
        if isinstance(node, Op) and node.elements:
            return msgspec.structs.replace(node, elements=tuple(n + 1 for n in node.elements))
        return node

    return (
        st.permutations(each.ops).map(tuple).map(with_ops)
        | st.integers(0, max(len(each.ops) - 1, 0)).map(
            lambda cut: with_ops((*each.ops[:cut], *map(change, each.ops[cut:])))
        )
        | st.permutations(groups).map(
            lambda order: msgspec.structs.replace(each, replica_groups=tuple(order))
        )
    )


@given(programs(), st.data())
def test_the_order_of_sub_groups_changes_nothing(each: Program, data: Any) -> None:
    """All digests of both projections survive shuffled sub-groups."""
    shuffled = msgspec.structs.replace(
        each,
        replica_groups=tuple(
            type(groups)(tuple(data.draw(st.permutations(groups.members))))
            for groups in each.replica_groups
        ),
    )
    ours, theirs = Resolved(each), Resolved(shuffled)
    assert canonical.program_digest(ours) == canonical.program_digest(theirs)
    for device in range(WORLD):
        assert sign(ours, device) == sign(theirs, device)
        for members in ours.communicators(device):
            assert canonical.communicator_digest(ours, members) == (
                canonical.communicator_digest(theirs, members)
            )
