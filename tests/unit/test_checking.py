"""The whole check: one report, with everything that the JSON promises."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rankmuster.checking import check
from rankmuster.copies import ProgramCopy
from rankmuster.finding import Severity, finding
from rankmuster.program import Program
from rankmuster.report import Report
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import communicator_digest, program_digest
from rankmuster.signature.libnrt import sign
from rankmuster.testing.build import (
    all_gather,
    all_reduce,
    barrier,
    loop,
    op,
    permute,
    program,
    recv,
    send,
)
from rankmuster.world import World

EVERYBODY = [[[0, 1, 2, 3]]]


def checked(*programs: Program, **rest: Any) -> Report:
    """The report on one program per device."""
    copies = [ProgramCopy(each, (device,)) for device, each in enumerate(programs)]
    return check(copies, World(size=len(programs), source="option"), **rest)


def test_one_program_for_all_is_said_to_be_assumed() -> None:
    """The report tells a file that stands for everybody from files that were compared."""
    whole = program(all_reduce(8), groups=EVERYBODY)
    report = check([ProgramCopy(whole, (0, 1, 2, 3))], World(size=4, source="file"))
    assert (report.verdict, report.basis) == ("agree", "one program")
    assert checked(whole, whole, whole, whole).basis == "compared"


def test_programs_and_groups_are_listed() -> None:
    """One row per copy; every set with its expanded members, used or not."""
    whole = program(
        all_reduce((8, 4), group=0),
        permute(4),
        groups=[[[0, 1], [2, 3]], [[3, 2, 1, 0]]],
        pairs=[[(2, 3), (0, 1), (1, 0)]],
    )
    copies = [ProgramCopy(whole, (2, 3), 1, "b.json"), ProgramCopy(whole, (0, 1), 0, "a.json")]
    shown = check(copies, World(size=4, source="option")).to_dict()
    digest = program_digest(Resolved(whole)).hex()
    assert shown["programs"] == [
        {
            "ranks": ranks,
            "process": process,
            "path": path,
            "format": "json",
            "ops": 3,
            "digest": digest,
        }
        for ranks, process, path in (("0-1", 0, "a.json"), ("2-3", 1, "b.json"))
    ]
    assert shown["groups"] == [
        {
            "id": 0,
            "kind": "replica_groups",
            "members": [[0, 1], [2, 3]],
            "ops": 2,
            "communicators": 2,
        },
        {
            "id": 1,
            "kind": "replica_groups",
            "members": [[3, 2, 1, 0]],
            "ops": 0,
            "communicators": 1,
        },
        {
            "id": 2,
            "kind": "source_target_pairs",
            "pairs": [[0, 1], [1, 0], [2, 3]],
            "members": [[0, 1], [2, 3]],
            "ops": 1,
            "communicators": 2,
        },
    ]


def test_groups_of_most_devices_are_shown() -> None:
    """Where tables differ, the one that most devices hold stands for the world."""
    usual, odd = program(barrier(), groups=EVERYBODY), program(barrier(), groups=[[[3, 2, 1, 0]]])
    assert checked(odd, usual, usual, usual).groups[0].members == ((0, 1, 2, 3),)


def test_signatures_of_every_device() -> None:
    """Both projections, by group id and by member list; outside every set there is none."""
    whole = program(all_reduce(8), groups=[[[0, 1]]])
    resolved, shown = Resolved(whole), checked(whole, whole, whole).to_dict()["signatures"]
    signed = sign(resolved, 1)
    assert signed.whole
    assert shown["libnrt"]["1"] == {
        "whole": signed.whole.hex(),
        "groups": {"0": signed.groups[0].hex()},
    }
    assert shown["libnrt"]["2"] == {"whole": None, "groups": {}}
    assert shown["canonical"]["1"] == {
        "program": program_digest(resolved).hex(),
        "communicators": {"0,1": communicator_digest(resolved, (0, 1)).hex()},
    }


def test_large_worlds_sign_one_device_per_program() -> None:
    """Above 64 devices the lowest of each program is signed, unless all are asked for."""
    whole = program(barrier(), groups=[[list(range(100))]])
    copies = [ProgramCopy(whole, tuple(range(50))), ProgramCopy(whole, tuple(range(50, 100)))]
    world = World(size=100, source="option")
    assert sorted(check(copies, world).signatures) == [0, 50]
    assert len(check(copies, world, all_signatures=True).signatures) == 100


def test_own_findings_name_the_devices_and_are_told_once() -> None:
    """A mistake in a program that several hold is one finding about them all."""
    wrong = program(barrier(), groups=[[[0, 1, 1]]])
    right = program(barrier(), groups=[[[0, 1]]])
    report = checked(wrong, wrong, right)
    [found] = [each for each in report.findings if each.code == "RM102"]
    assert report.verdict == "invalid"
    assert set(found.ranks) <= {0, 1}


def test_what_reading_found_is_told_of_the_devices() -> None:
    """A reader's finding names no devices; the report does."""
    whole = program(
        barrier(), groups=EVERYBODY, findings=(finding("RM703", "constants are elided"),)
    )
    report = check([ProgramCopy(whole, (0, 1, 2, 3))], World(size=4, source="option"))
    assert [(each.code, each.ranks) for each in report.findings] == [("RM703", (0, 1, 2, 3))]
    assert report.verdict == "undecided"


def test_findings_of_the_caller_come_first() -> None:
    """What loading found stands before what checking finds."""
    usual, odd = program(all_reduce(8), groups=EVERYBODY), program(all_reduce(9), groups=EVERYBODY)
    inferred = finding("RM704", "inferred")
    report = checked(usual, usual, usual, odd, findings=[inferred], absent=[7])
    assert [each.code for each in report.findings] == ["RM704", "RM302"]
    assert report.absent == (7,)


def test_fields_that_evidence_lacks() -> None:
    """What a format never records is named, and agreement is agreement in the rest."""
    silent = program(
        op("all_reduce", 8, reduce=None), groups=EVERYBODY, not_recorded=frozenset({"root"})
    )
    report = checked(silent, silent, silent, silent)
    assert report.not_recorded == ("reduce", "root")
    assert "reduce" not in report.compared
    assert "elements" in report.compared
    assert report.verdict == "agree"


def test_field_that_part_of_the_evidence_lacks_is_undecided() -> None:
    """One side without the reduce op leaves the question open, exit code 3."""
    usual = program(all_reduce(8), groups=EVERYBODY)
    silent = program(all_reduce(8, reduce=None), groups=EVERYBODY)
    report = checked(usual, usual, usual, silent)
    assert (report.verdict, report.exit_code()) == ("undecided", 3)


def test_a_loop_of_another_count_is_told_once() -> None:
    """Messages in the loop are not a second cause."""
    groups = [[[0, 1]]]
    one = program(loop(3, barrier(), send(1)), groups=groups)
    other = program(loop(4, barrier(), recv(0)), groups=groups)
    assert [each.code for each in checked(one, other).findings] == ["RM311"]


def test_pipelines_differ_and_agree() -> None:
    """Each stage sends to the next: other programs, one world, and the report says so."""
    stages = [
        program(*([recv(n - 1)] if n else []), *([send(n + 1)] if n < 3 else []), groups=EVERYBODY)
        for n in range(4)
    ]
    report = checked(*stages)
    assert report.verdict == "agree"
    assert [(each.code, each.severity) for each in report.findings] == [("RM310", Severity.INFO)]


def test_same_demands_equal_programs() -> None:
    """With `same`, what nobody shares must be equal too."""
    groups = [[[0, 1]], [[0], [1]]]
    one = program(barrier(), groups=groups)
    other = program(barrier(), all_gather(8, group=1), groups=groups)
    assert checked(one, other).verdict == "agree"
    assert checked(one, other, same=True).verdict == "differ"


def test_report_is_json() -> None:
    """The report of a difference encodes as it is."""
    usual, odd = program(all_reduce(8), groups=EVERYBODY), program(permute(8), pairs=[[(0, 1)]])
    shown = checked(usual, usual, usual, odd).to_dict()
    assert json.loads(msgspec.json.encode(shown)) == shown


def test_large_worlds_are_fast_enough_to_run_here() -> None:
    """A hundred thousand devices with one program, ring included, are a matter of a second."""
    size = 98304
    groups = [[list(range(n, n + 8)) for n in range(0, size, 8)], [list(range(size))]]
    ring = [[(n, (n + 1) % size) for n in range(size)]]
    ops = [all_reduce(n + 1, group=n % 2) for n in range(200)]
    messages = [send(None, 8, pairs=0), recv(None, 8, pairs=0)]
    whole = program(*ops, permute(8), *messages, groups=groups, pairs=ring)
    report = check([ProgramCopy(whole, tuple(range(size)))], World(size=size, source="option"))
    assert report.verdict == "agree"
