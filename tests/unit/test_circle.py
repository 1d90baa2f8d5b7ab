"""Circles over three communicators or more: nobody moves, though no two devices disagree."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rankmuster.compare import circle, compare
from rankmuster.copies import ProgramCopy
from rankmuster.finding import Finding
from rankmuster.program import Node
from rankmuster.report import verdict
from rankmuster.testing.build import all_reduce, branch, loop, permute, program


def circles(copies: Sequence[ProgramCopy]) -> list[Finding]:
    """What is found but for the note that the programs differ where nobody shares anything."""
    size = sum(len(each.devices) for each in copies)
    return [each for each in compare(copies, size) if each.code != "RM310"]


def ring(size: int, orders: Sequence[Sequence[Node]]) -> list[Finding]:
    """What is found where set i joins device i and the next one, and device i posts orders[i]."""
    groups = [[[n, (n + 1) % size]] for n in range(size)]
    copies = [ProgramCopy(program(*o, groups=groups), (d,)) for d, o in enumerate(orders)]
    return circles(copies)


def ahead_first(size: int) -> list[list[Node]]:
    """Every device meets the next one, and then the one before it."""
    return [[all_reduce(8, group=n), all_reduce(8, group=(n - 1) % size)] for n in range(size)]


def test_three_devices_in_a_circle_are_told_with_what_each_waits_in() -> None:
    """No two share two communicators; all the same nobody moves, and that is a difference."""
    [found] = ring(3, ahead_first(3))
    assert (found.code, found.ranks, found.field, verdict([found])) == (
        *("RM503", (0, 1, 2), "order"),
        "differ",
    )
    assert found.message == (
        "device 0 waits in all_reduce of 8 f32 on 0-1 for "
        "device 1, which waits in all_reduce of 8 f32 on 1-2, for "
        "device 2, which waits in all_reduce of 8 f32 on 0,2, for device 0 again (op 0 of 2)"
    )
    assert [(each.ranks, each.value) for each in found.values] == [
        ((0,), "all_reduce of 8 f32 on 0-1"),
        ((1,), "all_reduce of 8 f32 on 1-2"),
        ((2,), "all_reduce of 8 f32 on 0,2"),
    ]


@pytest.mark.parametrize("size", [3, 4, 7, 40])
def test_one_device_that_turns_round_sets_the_others_free(size: int) -> None:
    """Whoever meets the one before it first opens the circle."""
    orders = ahead_first(size)
    assert [each.ranks for each in ring(size, orders)] == [tuple(range(size))]
    orders[size // 2].reverse()
    assert ring(size, orders) == []


def test_a_circle_in_the_first_turn_of_a_loop_is_one() -> None:
    """Who cannot enter an op the first time never will."""
    orders = [[loop(9, *order)] for order in ahead_first(3)]
    assert [each.code for each in ring(3, orders)] == ["RM503"]
    assert ring(3, [[loop(0, *order)] for order in ahead_first(3)]) == []


def test_those_behind_a_circle_are_not_part_of_it() -> None:
    """Device 3 waits as well, but nobody of the circle waits for it."""
    groups = [[[0, 1]], [[1, 2]], [[0, 2]], [[2, 3]]]
    orders = [(0, 2), (1, 0), (2, 1, 3), (3,)]
    held = [program(*(all_reduce(8, group=n) for n in order), groups=groups) for order in orders]
    [found] = circles([ProgramCopy(each, (d,)) for d, each in enumerate(held)])
    assert found.ranks == (0, 1, 2)


def test_nothing_is_claimed_where_ops_may_not_run_or_do_not_block() -> None:
    """Branches choose, and an exchange on pairs blocks none but the two ends of a pair."""
    orders: list[list[Node]] = [[branch(order, [])] for order in ahead_first(3)]
    assert "RM503" not in [each.code for each in ring(3, orders)]
    pairs = [[(n, (n + 1) % 3)] for n in range(3)]
    held = [program(permute(pairs=n), permute(pairs=(n - 1) % 3), pairs=pairs) for n in range(3)]
    assert circles([ProgramCopy(each, (d,)) for d, each in enumerate(held)]) == []


def test_devices_alike_stand_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand devices in three stages are judged by what few of them enter."""
    seen = []
    monkeypatch.setattr(circle, "stuck", lambda turns: seen.append(len(turns)) or {})
    across = [[n, n + 700, n + 1400] for n in range(700)]
    stages = [list(range(n, n + 700)) for n in (0, 700, 1400)]
    held = [
        program(all_reduce(8, group=0), all_reduce(n, group=1), groups=[across, [stage]])
        for n, stage in enumerate(stages, 1)
    ]
    copies = [ProgramCopy(each, tuple(stage)) for each, stage in zip(held, stages, strict=True)]
    assert circles(copies) == []
    assert seen == [3]
