"""What no reader reads is called by its name, with what to give instead."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from rankmuster import formats
from rankmuster.errors import InvalidProgram
from rankmuster.formats import foreign, neuron_ls

RING = Path(__file__).parents[2] / "examples" / "ring.json"
STEP = Path(__file__).parents[2] / "examples" / "step.hlo"
RECORD = {"collective_seq_id": 1, "profiling_name": "gloo:all_reduce", "state": "scheduled"}
DUMP = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [RECORD]}
MLIR = b"module @jit_f attributes {mhlo.num_partitions = 8 : i32} {\n}\n"


def refusal(data: bytes) -> InvalidProgram:
    with pytest.raises(InvalidProgram) as caught:
        formats.read(data, where="x")
    return caught.value


@pytest.mark.parametrize("path", [RING, STEP])
def test_a_mark_before_utf_8_changes_nothing(path: Path) -> None:
    """Some editors, and PowerShell, set one."""
    data = path.read_bytes()
    assert formats.read(b"\xef\xbb\xbf" + data) == formats.read(data)


def test_a_mark_before_a_listing_changes_nothing() -> None:
    """A server's own listing is read as programs are."""
    device = {"neuron_device": 0, "connected_to": None, "nc_count": 2, "memory_size": 1}
    data = json.dumps([device]).encode()
    assert neuron_ls.read(b"\xef\xbb\xbf" + data) == neuron_ls.read(data)


@pytest.mark.parametrize("path", [RING, STEP])
@pytest.mark.parametrize(
    ("codec", "name"),
    [
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16LE"),
        ("utf-16-be", "UTF-16BE"),
        ("utf-32", "UTF-32"),
    ],
)
def test_other_encodings_are_named(path: Path, codec: str, name: str) -> None:
    """Text that is not UTF-8 is told apart from what is no program."""
    error = refusal(path.read_text().encode(codec))
    assert error.what == f"x: not a program: it is {name} text"
    assert error.fix == f"save it as UTF-8: iconv -f {name} -t UTF-8"


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (pickle.dumps(DUMP, protocol=2), foreign.RECORDER),
        (pickle.dumps([RECORD]), foreign.RECORDER),  # as versions before 2.0 wrote them
        (json.dumps([RECORD]).encode(), foreign.RECORDER),
        (pickle.dumps({"weights": 1}), foreign.PICKLE),
        (b"// a comment\n\n" + MLIR, foreign.MLIR),
        (b'#loc = loc("x")\n' + MLIR, foreign.MLIR),
        (b'sdy.mesh @mesh = <["a"=2]>\n' + MLIR, foreign.MLIR),
        (b"ML\xefR\x01\x00", foreign.MLIR),
        (b"\n\xd0\x05\n\x05jit_f\x12\x04main\x1a\x10", foreign.HLO_PROTO),
        (b'[{"neuron_device": 0}]', foreign.LISTING),
        (b"\x28\xb5\x2f\xfd\x24", foreign.Foreign("packed with zstd", foreign.UNPACK)),
    ],
)
def test_what_other_tools_write_is_named(data: bytes, known: foreign.Foreign) -> None:
    """The beginning tells what it is, and the fix what to give instead."""
    error = refusal(data)
    assert (error.what, error.fix) == (f"x: not a program: it is {known.what}", known.fix)


@pytest.mark.parametrize("kept", [["version", "pg_config"], ["entries", "pg_status"]])
def test_a_recorders_json_is_named_whatever_it_lacks(kept: list[str]) -> None:
    """Its version and its entries may be missing, or be any."""
    error = refusal(json.dumps({key: DUMP[key] for key in kept}).encode())
    what = "the file is no program: it is a Flight Recorder dump of PyTorch"
    assert (error.reason, error.fix) == (what, foreign.RECORDER.fix)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ({"nodes": [], "arg_nodes": [], "heads": []}, "the manifest of an unpacked NEFF"),
        ({"schema": "1.1.0", "nodes": []}, "an execution trace"),
        ({"schema": "rankmuster.report/1", "verdict": "agree"}, "a report of ours"),
    ],
)
def test_other_json_is_named(text: dict, what: str) -> None:
    """An object that says no format may be known by its keys."""
    assert refusal(json.dumps(text).encode()).reason == f"the file is no program: it is {what}"


def test_a_program_without_its_format_is_told_the_line_to_add() -> None:
    """A file like those of nccom-test lacks only that."""
    error = refusal(b'{"replica_groups": [[[0, 1]]]}')
    assert error.reason == "the file needs 'format'"
    assert error.fix.startswith('add "format": "rankmuster.program/1"')
