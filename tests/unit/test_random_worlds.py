"""No false alarm in any legal world, and no single change that goes unnamed."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_strategies import WORLD, programs
from worlds import Change, World, changed, draw

from rankmuster import world as worlds
from rankmuster.checking import check
from rankmuster.copies import ProgramCopy
from rankmuster.finding import Finding, Severity
from rankmuster.pairing import ledger
from rankmuster.program import Program
from rankmuster.report import Report
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import communicator_digest

SEEDS = st.integers(0, 10**9)


def report_of(world: World) -> Report:
    """The report on one program per device."""
    copies = [ProgramCopy(each, (device,)) for device, each in enumerate(world.programs)]
    return check(copies, worlds.World(size=world.size, source="file"))


def assert_agrees(world: World) -> None:
    """Nothing but remarks, one digest per communicator, and a ledger that adds up."""
    report = report_of(world)
    assert (report.verdict, report.errors) == ("agree", ())
    assert {each.severity for each in report.findings} <= {Severity.INFO}
    held = [Resolved(each) for each in world.programs]
    for device, resolved in enumerate(held):
        for members in resolved.communicators(device):
            assert len({communicator_digest(held[each], members) for each in members}) == 1
    assert sum(ledger(each, [device]) for device, each in enumerate(held)) % (1 << 128) == 0


def assert_named(world: World, change: Change) -> None:
    """The process, an op and the field of the change are named by an error."""
    report = report_of(world)
    assert report.verdict == "differ"
    assert any(names(each, change) for each in report.errors), (change, report.errors)
    held = [Resolved(each) for each in world.programs]
    if all(each.code in {"RM206", "RM208"} for each in report.errors):
        assert sum(ledger(each, [device]) for device, each in enumerate(held)) % (1 << 128)


def names(found: Finding, change: Change) -> bool:
    """Whether the finding is about this change; a missing message shows as another count."""
    fields = {
        "splits": {"input_splits", "output_splits"},
        "op": {"op", "count", "input_splits", "output_splits"},
        "elements": {"elements", "order"},
    }.get(change.field, {change.field})
    return change.device in found.ranks and found.op is not None and found.field in fields


@given(SEEDS)
@settings(max_examples=300)
def test_every_legal_world_agrees(seed: int) -> None:
    """Programs that are parts of one schedule never raise an alarm."""
    assert_agrees(draw(seed))


@given(SEEDS)
@settings(max_examples=400)
def test_every_single_change_is_named(seed: int) -> None:
    """One thing changed in one program is found with that process, op and field."""
    if (found := changed(seed)) is not None:
        assert_named(*found)


@given(st.lists(programs(), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=6))
@settings(max_examples=100)
def test_any_world_gets_an_answer(drawn: list[Program], choice: list[int]) -> None:
    """Programs that belong together in no way: "agree" keeps its promises, and nothing breaks."""
    picked = [drawn[each % len(drawn)] for each in choice[:WORLD]]
    report = report_of(World(WORLD, random.Random(0), programs=picked))
    held = [Resolved(each) for each in picked]
    alike = all(
        len({digest_of(held[each], members) for each in members}) == 1
        for device, resolved in enumerate(held)
        for members in resolved.communicators(device)
    )
    total = sum(ledger(each, [device]) for device, each in enumerate(held)) % (1 << 128)
    if report.verdict == "agree":
        assert alike
        assert total == 0
    assert msgspec.json.encode(report.to_dict())


def digest_of(resolved: Resolved, members: tuple[int, ...]) -> bytes | None:
    """The communicator's digest, None where the program has no such communicator."""
    known = members in resolved.sets_by_members
    return communicator_digest(resolved, members) if known else None


@pytest.mark.nightly
def test_ten_thousand_legal_worlds_agree() -> None:
    """Not one false alarm in ten thousand schedules."""
    for seed in range(10_000):
        assert_agrees(draw(seed))


@pytest.mark.nightly
def test_ten_thousand_single_changes_are_named() -> None:
    """Not one change overlooked in ten thousand."""
    for seed in range(10_000):
        if (found := changed(seed)) is not None:
            assert_named(*found)
