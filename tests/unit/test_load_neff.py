"""NEFF on disk: checked end to end, with ops from beside it, packed or unpacked."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from rankmuster.checking import check
from rankmuster.errors import UnreadableInput
from rankmuster.formats.json_program import write
from rankmuster.load import Loaded, LoadOptions, load, process_path, read_path
from rankmuster.program import OpKind
from rankmuster.report import Report
from rankmuster.testing.build import all_reduce, program, send
from rankmuster.testing.neff import archive, definition, manifests, neff

HALVES, STRIDED = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]
OPS = program(all_reduce(8), groups=[HALVES], pairs=[RING], world_size=4)


def loaded(*paths: object, **options: object) -> Loaded:
    (only,) = load([str(path) for path in paths], LoadOptions(**options))
    return only


def judged(found: Loaded) -> Report:
    return check(found.copies, found.world, findings=found.findings, absent=found.absent)


def codes(report: Report) -> set[str]:
    return {each.code for each in report.findings}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.neff"
    path.write_bytes(neff([HALVES], [RING]))
    return path


def unpack(folder: Path, tar: bytes) -> Path:
    with tarfile.open(fileobj=io.BytesIO(tar)) as held:
        held.extractall(folder, filter="data")
    return folder


def test_a_neff_alone_is_undecided(model: Path) -> None:
    """Its groups are fine, and nobody knows its ops: exit code 3."""
    report = judged(loaded(model))
    assert (report.verdict, report.exit_code()) == ("undecided", 3)
    assert codes(report) == {"RM706", "RM312", "RM704"}
    assert [row.communicators for row in report.groups] == [2, 1]


def test_its_groups_are_checked_all_the_same(model: Path) -> None:
    """Ids out of the world, repeated ids and too many sets are errors without any op."""
    model.write_bytes(neff([[[0, 1], [1, 9]]], [[[0, 1], [0, 2]]], **{"#rank_world_size": 4}))
    assert {"RM101", "RM102", "RM201"} <= codes(judged(loaded(model)))
    model.write_bytes(neff([HALVES] * 13))
    report = judged(loaded(model))
    assert "RM106" in codes(report)
    assert report.exit_code() == 1


def test_two_that_form_other_groups_differ(tmp_path: Path) -> None:
    """Membership is compared between NEFFs of several processes."""
    for number, groups in enumerate((HALVES, STRIDED)):
        (tmp_path / f"{number}.neff").write_bytes(neff([groups]))
    report = judged(loaded(tmp_path, world=4))
    assert (report.verdict, "RM308" in codes(report)) == ("differ", True)


def test_a_program_beside_it_supplies_the_ops(model: Path) -> None:
    """model.neff.json makes the NEFF a whole program, of its own chips and sizes."""
    Path(f"{model}.json").write_bytes(write(OPS))
    found = read_path(str(model))
    assert (found.format, found.ops, found.target) == ("neff", OPS.ops, "cayman")
    assert (found.world_size, found.world_source) == (4, "file")
    assert (found.findings, found.not_recorded) == ((), frozenset())
    assert judged(loaded(model)).verdict == "agree"


def test_a_folder_takes_the_pair_as_one(model: Path) -> None:
    """The program beside a NEFF is no rank of its own."""
    Path(f"{model}.json").write_bytes(write(OPS))
    (copy,) = loaded(model.parent).copies
    assert (copy.path, copy.program.ops) == (str(model), OPS.ops)


def test_both_named_on_the_command_line_are_one(model: Path) -> None:
    """A shell that expands * names the companion too; a packed NEFF has the same one."""
    Path(f"{model}.json").write_bytes(write(OPS))
    assert [copy.path for copy in loaded(model, f"{model}.json").copies] == [str(model)]
    Path(f"{model}.gz").write_bytes(gzip.compress(model.read_bytes()))
    model.unlink()
    (copy,) = loaded(f"{model}.gz", f"{model}.json").copies
    assert copy.program.ops == OPS.ops


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        (
            program(all_reduce(8), groups=[STRIDED], pairs=[RING]),
            "the JSON program beside the NEFF has other replica_groups than it",
        ),
        (
            program(all_reduce(8), groups=[HALVES]),
            "the JSON program beside the NEFF has other src_target_pairs than it",
        ),
        (
            program(all_reduce(8), groups=[HALVES], pairs=[RING], world_size=8),
            "the NEFF is for 4 devices, the JSON program beside it for 8",
        ),
    ],
)
def test_a_program_that_contradicts_it_is_told(model: Path, beside: object, message: str) -> None:
    """Other sets or another world are RM006, and the NEFF stays without ops."""
    model.write_bytes(neff([HALVES], [RING], **{"#rank_world_size": 4}))
    Path(f"{model}.json").write_bytes(write(beside))
    report = judged(loaded(model))
    assert [each.message for each in report.errors] == [message]
    assert report.errors[0].code == "RM006"
    assert report.programs[0].ops == 0


def test_a_broken_program_beside_it_is_named(model: Path) -> None:
    """The message names the JSON file, not the NEFF."""
    Path(f"{model}.json").write_text("{")
    (found,) = loaded(model).findings
    assert (found.code, "model.neff.json:1:2: not JSON" in found.message) == ("RM701", True)


def test_an_unpacked_folder_reads_the_same(tmp_path: Path, model: Path) -> None:
    """A folder with neff.json in it is one program, however it is named to us."""
    files = manifests([definition([HALVES], [RING])])
    folder = unpack(tmp_path / "ranks" / "0", archive(files))
    for path in (folder, folder.parent, folder.parent / "{rank}"):
        (copy,) = loaded(path).copies
        assert copy.program.replica_groups == read_path(str(model)).replica_groups
    assert process_path(str(folder), 5) == str(folder)
    folder.with_name("0.json").write_bytes(write(OPS))
    assert read_path(f"{folder}/").ops == OPS.ops


def test_folders_of_several_processes(tmp_path: Path) -> None:
    """Each unpacked folder inside a folder is one process's program."""
    for number in range(2):
        unpack(tmp_path / f"rank{number}", archive(manifests([definition([[[0, 1]]])])))
    copies = loaded(tmp_path).copies
    assert [(copy.process, copy.devices) for copy in copies] == [(0, (0,)), (1, (1,))]


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    """An unpacked folder is not followed to elsewhere."""
    files = manifests([definition([HALVES])])
    (tmp_path / "outside.json").write_bytes(files.pop("sg00/def.json"))
    folder = unpack(tmp_path / "model", archive(files))
    (folder / "sg00").mkdir()
    (folder / "sg00" / "def.json").symlink_to("../../outside.json")
    (found,) = loaded(folder).findings
    assert "'sg00/def.json' is a link out of the folder" in found.message


def test_a_folder_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """An empty folder is no NEFF."""
    with pytest.raises(UnreadableInput, match="no program in this folder"):
        loaded(tmp_path)


def test_evidence_without_ops_is_no_evidence_of_a_difference(tmp_path: Path) -> None:
    """A NEFF beside a program that posts ops and messages leaves the verdict open."""
    (tmp_path / "0.neff").write_bytes(neff([HALVES]))
    other = program(send(0), all_reduce(8), groups=[HALVES], world_size=4)
    (tmp_path / "1.json").write_text(json.dumps(json.loads(write(other))))
    ranks = (((0, 2, 3), str(tmp_path / "0.neff")), ((1,), str(tmp_path / "1.json")))
    report = judged(loaded(ranks=ranks))
    assert (report.verdict, report.errors) == ("undecided", ())
    undecided = [each for each in report.findings if each.code == "RM706" and each.values]
    assert [each.field for each in undecided] == ["kind"]
    assert [each.value for each in undecided[0].values] == [None, OpKind.ALL_REDUCE]
