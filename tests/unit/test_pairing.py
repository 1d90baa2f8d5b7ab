"""Sends meet receives, splits meet splits, and the ledger adds up where they do."""

from __future__ import annotations

from typing import Any

import pytest

from rankmuster.copies import ProgramCopy
from rankmuster.finding import Finding, OpRef, Severity, Value
from rankmuster.pairing import ledger, pair
from rankmuster.program import Op, Program
from rankmuster.resolve import Resolved
from rankmuster.testing.build import branch, loop, op, program, recv, send

PAIR = [[[0, 1]]]
FOUR = [[[0, 1, 2, 3]]]


def paired(*programs: Program) -> tuple[Finding, ...]:
    """What pairing one program per device finds."""
    copies = [ProgramCopy(each, (device,)) for device, each in enumerate(programs)]
    return pair(copies, len(programs))


def ends(sender: list[Any], receiver: list[Any], groups: Any = PAIR) -> tuple[Finding, ...]:
    """What pairing device 0 and device 1 finds."""
    return paired(program(*sender, groups=groups), program(*receiver, groups=groups))


def total(*programs: Program) -> int:
    """The sum of all ledgers."""
    sums = (ledger(Resolved(each), [device]) for device, each in enumerate(programs))
    return sum(sums) % (1 << 128)


def uneven(inputs: tuple[int, ...] | None, outputs: tuple[int, ...] | None) -> Op:
    """An all-to-all with splits."""
    return op("all_to_all_v", 8, input_splits=inputs, output_splits=outputs)


def test_messages_pair_in_order() -> None:
    """Each send meets its receive, whatever else both ends do in between."""
    assert ends([send(1, 8), send(1, 9)], [recv(0, 8), send(0, 4), recv(0, 9)])[1:] == ()
    assert ends([send(1, 8), recv(1, 4), send(1, 9)], [recv(0, 8), send(0, 4), recv(0, 9)]) == ()


def test_other_size_names_both_ends() -> None:
    """A message that is sent and received in other sizes shows both."""
    assert ends([send(1, 8), send(1, 9, source="a.py:1")], [recv(0, 8), recv(0, 10)]) == (
        Finding(
            code="RM206",
            severity=Severity.ERROR,
            message="group 0: message 1 from device 0 to device 1 is sent as 9 f32 and received "
            "as 10 f32 (op 1 of 2, a.py:1)",
            ranks=(0, 1),
            group=0,
            op=OpRef(index=1, in_group=1, kind="send", source="a.py:1"),
            field="elements",
            values=(Value(ranks=(0,), value=9), Value(ranks=(1,), value=10)),
            fix="post one receive for each send, in the same order, with the same size and type",
            context=(
                "device 0:",
                "     0  send of 8 f32  to device 1  on group 0",
                ">    1  send of 9 f32  to device 1  on group 0  a.py:1",
                "device 1:",
                "     0  recv of 8 f32  from device 0  on group 0",
                ">    1  recv of 10 f32  from device 0  on group 0",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("sender", "receiver", "field", "values"),
    [
        ([send(1)], [], "count", (1, 0)),
        ([], [recv(0)], "count", (0, 1)),
        ([send(1, 8), send(1, 9), send(1, 8)], [recv(0, 8), recv(0, 8)], "count", (3, 2)),
        ([send(1, dtype="bf16")], [recv(0)], "dtype", ("bf16", "f32")),
        ([send(1, label="a")], [recv(0, label="b")], "label", ("a", "b")),
        ([loop(3, send(1))], [loop(2, recv(0))], "trips", (3, 2)),
        ([loop(3, send(1))], [recv(0)], "count", (3, 1)),
    ],
)
def test_what_does_not_pair(
    sender: list[Any], receiver: list[Any], field: str, values: tuple[Any, Any]
) -> None:
    """A message without another end, or with one of another kind, is named."""
    [found] = ends(sender, receiver)
    assert (found.code, found.field, found.ranks) == ("RM206", field, (0, 1))
    assert tuple(each.value for each in found.values) == values
    assert {"device 0:", "device 1:"} <= set(found.context)
    assert sum(line[0] == ">" for line in found.context) == 2
    assert "(op " in found.message


def test_wrong_peer_is_one_finding() -> None:
    """A send to the wrong device leaves two ends open; which of both is wrong nobody can tell."""
    ring = [program(send((n + 1) % 4, 8), recv((n - 1) % 4, 8), groups=FOUR) for n in range(4)]
    assert paired(*ring) == ()
    ring[1] = program(send(3, 8, name="act.0", source="p.py:9"), recv(0, 8), groups=FOUR)
    [found] = paired(*ring)
    assert (found.field, found.ranks, found.others, found.majority) == ("peer", (1, 2), (), False)
    assert found.message == (
        "group 0: device 1's 1st send (8 f32) goes to device 3, which does not receive it; "
        "device 2 waits for it (op 0 of 2, act.0, p.py:9)"
    )
    assert found.context == (
        "device 1:",
        ">    0  send of 8 f32  to device 3  on group 0  act.0  p.py:9",
        "     1  recv of 8 f32  from device 0  on group 0",
        "device 2:",
        "     0  send of 8 f32  to device 3  on group 0",
        ">    1  recv of 8 f32  from device 1  on group 0",
    )


def test_receive_from_the_wrong_peer_names_the_receiver() -> None:
    """Who waits for a device that sends nothing is named first, with whoever sends instead."""
    programs = [program(send(2), groups=FOUR), program(groups=FOUR)]
    [found] = paired(*programs, program(recv(1), groups=FOUR), program(groups=FOUR))
    assert (found.field, found.ranks, found.others) == ("peer", (0, 2), ())
    assert found.message.startswith("group 0: device 2's 1st receive (1024 f32) is from device 1,")


def test_other_communicator_is_named() -> None:
    """A message sent on one group and awaited on another never arrives."""
    groups = [[[0, 1, 2]], [[0, 1], [2]]]
    [found] = ends([send(1, group=0)], [recv(0, group=1)], groups)
    assert (found.code, found.field) == ("RM206", "members")
    assert [each.value for each in found.values] == [[0, 1, 2], [0, 1]]


def test_messages_that_cross_are_an_error() -> None:
    """The same messages in another order would meet in the wrong sizes."""
    [found] = ends([send(1, 8), send(1, 9)], [recv(0, 9), recv(0, 8)])
    assert (found.code, found.severity, found.field) == ("RM208", Severity.ERROR, "order")
    assert [each.value for each in found.values] == ["8 f32", "9 f32"]


def test_messages_that_cross_by_name_are_a_warning() -> None:
    """Sizes meet, but by their names other messages were meant; a label keeps them apart."""
    sends, receives = (
        [make(peer, name=n) for n in names]
        for make, peer, names in ((send, 1, "ab"), (recv, 0, "ba"))
    )
    [found] = ends(sends, receives)
    assert (found.code, found.severity) == ("RM208", Severity.WARNING)
    sends, receives = (
        [make(peer, name=n, label=n) for n in names]
        for make, peer, names in ((send, 1, "ab"), (recv, 0, "ba"))
    )
    assert ends(sends, receives) == ()


def test_loops_pair_with_what_they_unroll_to() -> None:
    """A loop of two turns sends what two receives await, in their order."""
    twice = [loop(2, send(1, 8), send(1, 9))]
    assert ends(twice, [recv(0, 8), recv(0, 9), recv(0, 8), recv(0, 9)]) == ()
    [found] = ends(twice, [recv(0, 8), recv(0, 8), recv(0, 9), recv(0, 9)])
    assert found.code == "RM208"


def test_loops_that_cannot_be_told_are_undecided() -> None:
    """Where a count is unknown, or too large to unroll, nobody can tell."""
    [found] = ends([loop(None, send(1))], [recv(0), recv(0)])
    assert (found.code, found.field) == ("RM706", "trips")
    [found] = ends([loop(10**9, send(1))], [loop(10**8, loop(10, recv(0)))])
    assert found.code == "RM706"
    assert ends([loop(10**9, send(1))], [loop(10**9, recv(0))]) == ()
    assert ends([loop(None, send(1))], [loop(None, recv(0))]) == ()


def test_branches_pair_body_by_body() -> None:
    """A message in one body of a branch meets one in the same body."""
    there, elsewhere = branch([recv(0)], []), branch([], [recv(0)])
    assert ends([branch([send(1)], [])], [there]) == ()
    [found] = ends([branch([send(1)], [])], [elsewhere])
    assert found.code == "RM206"


def test_one_peer_for_several_devices() -> None:
    """A file that stands for several devices cannot name the peer of each."""
    [found] = pair([ProgramCopy(program(send(1), recv(1), groups=PAIR), (0, 1))], 2)
    assert (found.code, found.field, found.ranks) == ("RM206", "peer", (0, 1))


def test_pairs_give_every_device_its_own_peers() -> None:
    """On a pairs set one program serves all: each sends to its target."""
    ring = [[(n, (n + 1) % 8) for n in range(8)]]
    whole = program(send(None, pairs=0), recv(None, pairs=0), pairs=ring)
    assert pair([ProgramCopy(whole, tuple(range(8)))], 8) == ()
    assert ledger(Resolved(whole), range(8)) == 0


def test_what_all_edges_lack_is_told_once() -> None:
    """Eight sends that nobody receives have one cause."""
    whole = program(send(None, pairs=0), pairs=[[(n, (n + 1) % 8) for n in range(8)]])
    [found] = pair([ProgramCopy(whole, tuple(range(8)))], 8)
    assert (found.code, found.ranks) == ("RM206", tuple(range(8)))
    assert "and 7 more edges do the same" in found.message


def test_absent_devices_are_not_missed() -> None:
    """Of the other end of a message, if it is absent, nothing can be told."""
    assert pair([ProgramCopy(program(send(1), groups=PAIR), (0,))], 2) == ()


def test_splits_are_transposed() -> None:
    """What one rank sends to another is what that one expects: matrices, not equal lists."""
    rows = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]
    programs = [
        program(uneven(row, column), groups=[[[0, 1, 2]]])
        for row, column in zip(rows, zip(*rows, strict=True), strict=True)
    ]
    assert paired(*programs) == ()
    assert total(*programs) == 0
    programs[2] = program(uneven(rows[2], (3, 7, 9)), groups=[[[0, 1, 2]]])
    assert total(*programs) != 0
    assert paired(*programs) == (
        Finding(
            code="RM305",
            severity=Severity.ERROR,
            message="group 0: device 1 sends 6 elements to device 2, which expects 7 of it "
            "(input_splits) (op 0 of 1)",
            ranks=(1, 2),
            group=0,
            op=OpRef(index=0, in_group=0, kind="all_to_all_v"),
            field="input_splits",
            values=(Value(ranks=(1,), value=6), Value(ranks=(2,), value=7)),
            fix="make root, dimension and splits agree on every rank",
        ),
    )


def test_a_rank_whose_splits_fit_nobody_is_named() -> None:
    """If several others expect something else of one rank, that one is out of line."""
    even = program(uneven((2, 2, 2), (2, 2, 2)), groups=[[[0, 1, 2]]])
    odd = program(uneven((3, 2, 3), (2, 2, 2)), groups=[[[0, 1, 2]]])
    [found] = paired(even, odd, even)
    assert (found.ranks, found.others, found.field) == ((1,), (0, 2), "input_splits")


def test_splits_of_the_wrong_length() -> None:
    """Splits name every rank of the group once."""
    [found] = pair([ProgramCopy(program(uneven((1, 1, 1), (1, 1)), groups=PAIR), (0, 1))], 2)
    assert (found.code, found.field) == ("RM305", "input_splits")


def test_splits_that_one_side_does_not_record() -> None:
    """Then nobody can tell, and the finding shows that it is only part of the evidence."""
    [found] = ends([uneven((1, 1), (1, 1))], [uneven(None, None)])
    assert (found.code, found.ranks, bool(found.values)) == ("RM706", (1,), True)


@pytest.mark.parametrize(
    "receiver",
    [[], [recv(0, 9)], [recv(0, 8, dtype="bf16")], [recv(0, 8, label="x")], [recv(0, 8)] * 2],
)
def test_the_ledger_shows_what_does_not_pair(receiver: list[Op]) -> None:
    """Whatever pairing would find leaves the world's sum other than zero."""
    sender = program(send(1, 8), groups=PAIR)
    assert total(sender, program(recv(0, 8), groups=PAIR)) == 0
    assert total(sender, program(*receiver, groups=PAIR)) != 0
