"""The command line on real dumps, read in place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankmuster.cli import run


@pytest.mark.parametrize(
    ("folder", "code", "verdict", "codes"),
    [
        ("mp_clean", 0, "agree", ["RM704"]),
        ("mp_shape", 1, "differ", ["RM302", "RM704"]),
        ("mp_order", 1, "differ", ["RM307", "RM704"]),
        ("all_ops", 0, "agree", []),
    ],
)
def test_jax_dumps(
    corpus: Path,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    code: int,
    verdict: str,
    codes: list[str],
) -> None:
    """Folders of XLA dumps are compared over their processes, two devices to each."""
    assert run(["check", str(corpus / "jax" / folder), "--format", "json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == verdict
    assert sorted(found["code"] for found in report["findings"]) == codes


def test_a_dump_that_is_cut_off(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A module without its end is malformed, and there is no verdict."""
    (first, *_) = sorted((corpus / "maxtext").rglob("*.txt")) or sorted(
        path for path in (corpus / "maxtext").rglob("*") if path.is_file()
    )
    assert run(["check", str(first), "--format", "json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "undecided"
    assert [found["code"] for found in report["findings"] if found["severity"] == "error"] == [
        "RM701"
    ]


def test_every_file_of_the_corpus_has_an_answer(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file of any kind ends in a traceback or an exit code that is not ours."""
    for path in sorted(path for path in corpus.rglob("*") if path.is_file()):
        assert run(["-q", "check", str(path)]) in {0, 1, 2, 3}, path
        ran = capsys.readouterr()
        assert ran.out or ran.err, path
