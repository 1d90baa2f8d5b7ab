"""The report as text: what its first lines say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankmuster.checking import check
from rankmuster.copies import ProgramCopy
from rankmuster.finding import Finding, Value, finding
from rankmuster.program import Node
from rankmuster.render import text
from rankmuster.report import Report
from rankmuster.testing.build import all_gather, all_reduce, op, program, recv, send
from rankmuster.world import World

WORLD = World(size=2, source="option")


def first_lines(*lists: list[Node]) -> list[str]:
    """The report on a world where device n posts the n-th list."""
    copies = [
        ProgramCopy(program(*ops, groups=[[list(range(len(lists)))]]), (device,))
        for device, ops in enumerate(lists)
    ]
    return text(check(copies, World(size=len(lists), source="option"))).splitlines()


@pytest.mark.parametrize(
    ("one", "other", "title"),
    [
        (op("broadcast", root=0), op("broadcast", root=1), "root differs"),
        (all_gather(dimension=0), all_gather(dimension=1), "dimension differs"),
    ],
)
def test_the_first_line_names_the_field(one: Node, other: Node, title: str) -> None:
    """RM305 is of several fields, and the first line says which."""
    told = first_lines([one], [other])[0]
    assert told == f"differ: {title} (RM305) between device 0 and device 1 of 2"


def test_who_lacks_an_op_holds_nothing() -> None:
    """A side without the op is no lack of evidence."""
    lines = first_lines([all_reduce(8)], [all_reduce(8)], [])
    assert "    device 2     nothing" in lines


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (finding("RM706", "", field="reduce"), "not recorded"),
        (finding("RM308", "", field="members"), "no such group"),
        (finding("RM206", "", field="label"), "none"),
    ],
)
def test_what_a_side_without_a_value_holds(found: Finding, held: str) -> None:
    """Nothing, none and not recorded are three things."""
    sides = (Value(ranks=(0,), value=None), Value(ranks=(1,), value="x"))
    shown = text(Report(world=WORLD, findings=(replace(found, values=sides),)))
    assert f"    device 0  {held}" in shown.splitlines()


def test_one_device_is_no_two_sides() -> None:
    """A send to oneself is about one device."""
    assert first_lines([send(0)], [])[0].endswith("(RM206) on device 0 of 2")


def test_messages_are_no_part_of_what_the_table_compares() -> None:
    """Programs that differ in messages alone share a row, under the name of what they share."""
    lines = first_lines([all_reduce(8), send(1)], [all_reduce(8), recv(0)])
    assert ["devices", "format", "ops", "collectives", "program"] in map(str.split, lines)
