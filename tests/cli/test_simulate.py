"""`rankmuster simulate`: options in, a verdict and the line that replays it out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankmuster.cli import run
from rankmuster.testing import rehearsed

EVERYTHING = (
    "simulate --world 24 --devices-per-process 2 --seed 7 --deadline 9 --rendezvous --kill 3@0.5 "
    "--stop 4@bootstrap --delay 5@step3+1.5 --duplicate 6@0.25 --stranger 9@0.125 --absent 1-2 "
    "--liar 7 --differ 8 --outsider 9 --claim 10=4 --size 11=48"
)


def said(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a command line, and what it printed as JSON."""
    code = run([*shlex.split(line), "--format", "json"])
    return code, msgspec.json.decode(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("options", "code", "verdict", "named"),
    [
        ("", 0, "agree", ""),
        ("--liar 5", 1, "invalid", "5"),
        ("--differ 5", 1, "differ", "5"),
        ("--kill 5@bootstrap", 1, "undecided", "5"),
        ("--stop 5@closing", 1, "undecided", "5"),
        ("--delay 5@read+3", 0, "agree", ""),
        ("--absent 5-6", 1, "undecided", "5-6"),
        ("--stranger 40@0.05", 0, "agree", ""),
    ],
)
def test_verdicts(
    capsys: pytest.CaptureFixture[str], options: str, code: int, verdict: str, named: str
) -> None:
    """Each fault gives its verdict and exit code, and names who is at fault."""
    got, answer = said(capsys, f"simulate --world 8 {options}")
    assert (got, answer["verdict"], answer["named"], answer["broken"]) == (code, verdict, named, [])


def test_the_replay_line_does_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    """All options survive the way out and in, and the end is the same."""
    _, first = said(capsys, EVERYTHING)
    assert first["replay"].removeprefix("rankmuster ") == EVERYTHING
    assert said(capsys, EVERYTHING)[1] == first


def test_a_fault_that_comes_too_late_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A world is up in a tenth of a second: what would have befallen it later did not."""
    line = "simulate --world 8 --kill 5@0.3 --stop 6@closing --kill 7@2"
    assert said(capsys, line)[1]["too_late"] == []  # all wait for 6 until then
    assert said(capsys, "simulate --world 8 --kill 5@0.3")[1]["too_late"] == ["--kill 5@0.3"]
    run(["simulate", "--world", "8", "--kill", "5@0.3", "--stop", "6@9"])
    assert "nothing came of --kill 5@0.3, --stop 6@9: the process had" in capsys.readouterr().out


def test_text_tells_what_it_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """Verdict, rounds, messages, bytes, the slowest path and the replay line."""
    assert run(["simulate", "--world", "4"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("agree: 4 devices in 4 processes")
    assert all(word in text for word in ("rounds", "messages", "bytes", "slowest path"))
    assert text.endswith("replay: rankmuster simulate --world 4 --seed 0\n")


def test_a_program_of_the_user(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its communicators are those that form."""
    file = tmp_path / "step.json"
    file.write_text(
        '{"format": "rankmuster.program/1", "world_size": 4, "replica_groups": [[[0, 1], [2, 3]]],'
        '"ops": [{"kind": "barrier", "group": 0}]}'
    )
    code, answer = said(capsys, f"simulate --world 4 --program {file}")
    assert (code, answer["verdict"]) == (0, "agree")
    answer = said(capsys, f"simulate --world 8 --program {file}")[1]
    assert (answer["verdict"], answer["broken"]) == ("invalid", [])


def test_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """--runs counts the verdicts of that many seeds."""
    code, answer = said(capsys, "simulate --world 3 --kill 2@0.06 --runs 20")
    assert (code, answer["runs"], answer["broken"]) == (0, 20, [])
    assert sum(answer["verdicts"].values()) == 20


def test_a_broken_promise_is_told_with_its_replay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks one ends the search, with exit code 1 and the line that shows it."""
    monkeypatch.setattr(rehearsed.Rehearsed, "broken", lambda _self: iter(["it hangs"]))
    assert run(["simulate", "--world", "3", "--seed", "5", "--runs", "20"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "BROKEN PROMISE: it hangs",
        "replay: rankmuster simulate --world 3 --seed 5",
    ]


def test_a_large_world_is_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Above a bound only the protocol of one group is run, and that is said."""
    code, answer = said(capsys, "simulate --world 5000 --liar 3")
    assert (code, answer["scope"], answer["named"]) == (1, "one group", "3")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--world 8 --claim 2=0", "--claim cannot move device 0"),
        ("--world 8 --claim 0=5", "--claim cannot move device 0"),
        ("--world 8 --kill 8@1", "there is no process 8; the last one is 7"),
        ("--world 8 --kill 1@lunch", "no second, no phase"),
        ("--world 8 --kill 1", "is not like 12@0.3"),
        ("--world 8 --delay 1@2", "is not like 12@0.3+2"),
        ("--world 8 --kill 1@nan", "no second, no phase"),
        ("--world 8 --duplicate 1@read", "say a second"),
        ("--world 8 --claim 5", "is not like 5=4"),
        ("--world 9 --devices-per-process 2", "do not make a world of 9"),
        ("--world 5000 --absent 3", "one group, which knows no absent"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], line: str, complaint: str) -> None:
    """Exit code 2, with what is wrong and what would be right."""
    assert run(["simulate", *line.split()]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())
