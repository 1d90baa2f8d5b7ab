"""Whole runs of the command line: answers, exit codes and what a tired person reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import Rankmuster

from rankmuster.cli import output, run
from rankmuster.cli import root as root_module
from rankmuster.rules import RULES


def program(elements: int = 8, **rest: object) -> str:
    def reduced(n: int, name: str) -> dict[str, object]:
        return {
            "kind": "all_reduce",
            "group": 0,
            "elements": n,
            "dtype": "f32",
            "reduce": "add",
            "name": name,
            "source": "model.py:9",
        }

    gathered = {"kind": "all_gather", "group": 1, "elements": 3, "dtype": "bf16"}
    value = {
        "format": "rankmuster.program/1",
        "world_size": 4,
        "replica_groups": [[[0, 1, 2, 3]], [[0, 1], [2, 3]]],
        "src_target_pairs": [[[0, 1], [1, 2], [2, 3], [3, 0]]],
        "ops": [reduced(4, "before"), reduced(elements, "grad"), gathered],
    }
    return json.dumps(value | rest)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with good.json, bad.json and d/, where process 2 of four holds the bad one."""
    (tmp_path / "d").mkdir()
    (tmp_path / "good.json").write_text(program())
    (tmp_path / "bad.json").write_text(program(9))
    for process in range(4):
        (tmp_path / "d" / f"{process}.json").write_text(program(9 if process == 2 else 8))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_alone_it_prints_the_three_most_useful_lines(rankmuster: Rankmuster) -> None:
    """Without a command there are three lines to start from."""
    ran = rankmuster()
    assert (ran.code, len(ran.out.splitlines()), ran.err) == (0, 3, "")


def test_version(rankmuster: Rankmuster) -> None:
    """--version names the program and its version."""
    assert rankmuster("--version").out.startswith("rankmuster, version ")


def test_every_command_in_the_table_loads(rankmuster: Rankmuster) -> None:
    """Each command answers --help, and takes --format and --quiet behind its name."""
    for name in root_module.COMMANDS:
        ran = rankmuster(name, "--help")
        assert (ran.code, name, "--quiet" in ran.out) == (0, name, True)


@pytest.mark.parametrize("name", root_module.COMMANDS)
def test_every_option_has_a_place_of_its_own(name: str) -> None:
    """No two options of a command store their values under one name."""
    command = root_module.root.get_command(click.Context(root_module.root), name)
    names = [parameter.name for parameter in command.params]
    assert list(dict.fromkeys(names)) == names


def test_help_imports_next_to_nothing() -> None:
    """--help comes without the packages that reading, comparing and drawing need."""
    code = (
        "import sys; from rankmuster.cli import run; run(['--help']);"
        "print(sorted({'rich', 'numpy', 'msgspec', 'asyncio', 'json'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "module",
    ["rankmuster.streams", "rankmuster.cli.importing", "click", "rankmuster.cli.check", "msgspec"],
)
def test_ctrl_c_during_imports_is_no_traceback(module: str) -> None:
    """Who mistyped something presses it at once: the process ends with 130 and says nothing."""
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(name, *_):\n"
        "        if name == sys.argv[1]: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder)\n"
        "from rankmuster.cli import main\n"
        "main(['check', 'none.json'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_help_is_fast() -> None:
    """--help answers within a quarter of a second."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "rankmuster", "--help"], capture_output=True, check=True
        )
        times.append(time.perf_counter() - start)
    assert min(times) < 0.25


def test_programs_that_agree(rankmuster: Rankmuster, here: Path) -> None:
    """Equal programs agree, the first line says so, and the exit code is 0."""
    for process in range(4):
        (here / "d" / f"{process}.json").write_text(program())
    ran = rankmuster("check", "d")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == (
        "agree: 4 programs for 4 devices, identical in all collectives"
    )


def test_one_program_is_assumed_to_agree(rankmuster: Rankmuster, here: Path) -> None:
    """With one file nothing was compared, and both text and JSON say so."""
    assert "assumed, not compared" in rankmuster("check", "good.json").out.splitlines()[0]
    report = rankmuster("--format", "json", "check", "good.json").json
    assert (report["schema"], report["verdict"], report["basis"]) == (
        "rankmuster.report/1",
        "agree",
        "one program",
    )


def test_a_difference_is_named(rankmuster: Rankmuster, here: Path) -> None:
    """The device, the op, the field, both values and the source line come out."""
    ran = rankmuster("check", "d", "--format", "json")
    (found,) = [each for each in ran.json["findings"] if each["severity"] == "error"]
    assert (ran.code, ran.json["verdict"]) == (1, "differ")
    assert (found["code"], found["ranks"], found["others"]) == ("RM302", "2", "0-1,3")
    assert (found["field"], found["op"]["index"], found["op"]["source"]) == (
        "elements",
        1,
        "model.py:9",
    )
    assert sorted(each["value"] for each in found["values"]) == [8, 9]


def test_a_difference_reads_well(rankmuster: Rankmuster, here: Path) -> None:
    """The verdict stands first, then the finding with both values and what to do."""
    lines = rankmuster("check", "d").out.splitlines()
    assert lines[0] == "differ: element counts differ (RM302) on device 2 of 4"
    assert lines[1].startswith("error RM302: group 0: device 2 posts all_reduce of 9 f32 where")
    assert "    devices 0-1,3  8  (the majority)" in lines
    assert "    device 2       9" in lines
    assert f"    fix: {RULES['RM302'].fix}" in lines


def test_quiet_leaves_verdict_and_errors(rankmuster: Rankmuster, here: Path) -> None:
    """--quiet drops the tables, wherever it stands."""
    assert "collectives  " in rankmuster("check", "d").out
    assert "collectives  " not in rankmuster("-q", "check", "d").out
    assert "collectives  " not in rankmuster("check", "d", "--quiet").out


def test_quiet_leaves_what_reading_found_wrong(rankmuster: Rankmuster, here: Path) -> None:
    """`read` prints a program that is wrong all the same, and never without saying so."""
    permute = "collective-permute(p), source_target_pairs={{0,9}}"
    (here / "odd.hlo").write_text(
        "HloModule m, replica_count=8\n"
        f"ENTRY e {{\n  p = f32[4] parameter(0)\n  ROOT c = f32[4] {permute}\n}}\n"
    )
    ran = rankmuster("read", "-q", "odd.hlo")
    assert ran.err.startswith("error RM203: collective-permute: replica 9 out of range")


def test_absent_is_undecided(rankmuster: Rankmuster, here: Path) -> None:
    """A missing file leaves the verdict open; the error makes the exit code 1."""
    (here / "d" / "2.json").unlink()
    ran = rankmuster("check", "d/{rank}.json", "--format", "json")
    assert (ran.code, ran.json["verdict"], ran.json["world"]["absent"]) == (1, "undecided", "2")


def test_no_collectives_is_undecided(rankmuster: Rankmuster, here: Path) -> None:
    """A program without collectives is never a match: exit code 3."""
    (here / "good.json").write_text(program(ops=[]))
    ran = rankmuster("check", "good.json")
    assert (ran.code, ran.out.split(":")[0]) == (3, "undecided")


def test_strict_counts_warnings(rankmuster: Rankmuster, here: Path) -> None:
    """--strict lets a warning fail the check."""
    (here / "good.json").write_text(program(ops=[]))
    assert rankmuster("check", "good.json", "--strict").code == 1


def test_a_malformed_program_is_reported(rankmuster: Rankmuster, here: Path) -> None:
    """A truncated file is a finding with its place, and the exit code says unreadable."""
    (here / "d" / "1.json").write_text(program()[:80])
    ran = rankmuster("check", "d", "--format", "json")
    broken = [each for each in ran.json["findings"] if each["code"] == "RM701"]
    assert (ran.code, [each["ranks"] for each in broken]) == (2, ["1"])
    assert broken[0]["message"].startswith("d/1.json:1:")


@pytest.mark.parametrize("junk", ["", "\0\1\2", "{", "[[[[", "HloModule"])
def test_junk_alone(rankmuster: Rankmuster, here: Path, junk: str) -> None:
    """Whatever a file holds, there is an answer and no traceback."""
    (here / "junk.hlo").write_text(junk)
    ran = rankmuster("check", "junk.hlo")
    assert (ran.code, ran.out.split(":")[0]) == (2, "undecided")
    assert "junk.hlo" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chekc"], "did you mean 'check'?"),
        (["check", "--wrld", "8", "d"], "--world"),
        (["check"], "name a program"),
        (["check", "goood.json"], "did you mean 'good.json'?"),
        (["check", "good.json", "--world", "0"], "0 is not in the range"),
        (["check", "good.json", "--format", "jsn"], "did you mean 'json'?"),
        (["check", "--ranks", "good.json"], "is not like 0-3=a.hlo"),
        (["check", "--ranks", "3-1=good.json"], "runs backwards"),
        (["check", "d", "--devices", "0-1"], "--devices speaks for one file"),
        (["explain", "RM30"], "did you mean"),
        (["sign", "good.json", "--device", "9"], "outside a world of 4"),
        (["sign", "good.json"], "--device"),
        (["read", "d"], "say --device"),
        (["read", "good.json", "--as", "progam"], "did you mean 'program'?"),
    ],
)
def test_wrong_use(rankmuster: Rankmuster, here: Path, arguments: list[str], message: str) -> None:
    """Wrong use ends with exit code 2, the reason and the nearest name, on standard error."""
    ran = rankmuster(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_standard_input(rankmuster: Rankmuster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash reads a program from standard input."""
    command = [sys.executable, "-m", "rankmuster", "--format", "json", "check", "-"]
    done = subprocess.run(command, input=program(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["programs"][0]["path"] == "<stdin>"


def test_groups(rankmuster: Rankmuster, here: Path) -> None:
    """Sets are listed with global ids, pairs last; a device sees its own groups."""
    rows = rankmuster("groups", "good.json", "--format", "json").json
    assert [(row["id"], row["kind"], row["members"], row["ops"]) for row in rows] == [
        (0, "replica_groups", [[0, 1, 2, 3]], 2),
        (1, "replica_groups", [[0, 1], [2, 3]], 1),
        (2, "source_target_pairs", [[0, 1, 2, 3]], 0),
    ]
    own = rankmuster("groups", "good.json", "--device", "3", "--format", "json").json
    assert [(row["id"], row["rank"], row["size"]) for row in own] == [
        (0, 3, 4),
        (1, 1, 2),
        (2, 3, 4),
    ]
    assert "0,1  2,3" in rankmuster("groups", "good.json").out


def test_sign_and_check_print_the_same_digests(rankmuster: Rankmuster, here: Path) -> None:
    """Sign prints for a device what the report holds for it."""
    report = rankmuster("--format", "json", "check", "good.json").json["signatures"]
    signed = rankmuster("--format", "json", "sign", "good.json", "--device", "1").json
    assert signed == {
        "schema": "rankmuster.signatures/1",
        "device": 1,
        "libnrt": report["libnrt"]["1"],
        "canonical": report["canonical"]["1"],
    }


def test_show_views(rankmuster: Rankmuster, here: Path) -> None:
    """--show-views lists what is hashed: 20 bytes for each op, and the canonical tokens."""
    views = rankmuster(
        "--format", "json", "sign", "good.json", "--device", "0", "--show-views"
    ).json["views"]
    assert [len(view) for view in views["libnrt"]["0"]] == [40, 40]
    assert [token[1] for token in views["canonical"]["0,1"]] == ["all_gather"]
    told = rankmuster("sign", "good.json", "--device", "0", "--show-views").out.splitlines()
    assert told[-1].split()[0] == "all_gather"
    assert not any(mark in line for line in told for mark in ("(", "None"))


def test_read_prints_what_reads_back(rankmuster: Rankmuster, here: Path) -> None:
    """The printed program is one, with the same signatures."""
    (here / "again.json").write_text(rankmuster("read", "good.json", "--as", "program").out)
    assert rankmuster("sign", "good.json", "--device", "0") == rankmuster(
        "sign", "again.json", "--device", "0"
    )


def test_diff(rankmuster: Rankmuster, here: Path) -> None:
    """Diff names both files, A first, and shows no majority."""
    ran = rankmuster("diff", "good.json", "bad.json", "--format", "json")
    (found,) = ran.json
    assert (ran.code, found["code"], found["majority"], found["others"]) == (1, "RM302", False, "")
    assert found["values"] == [{"ranks": "0-3", "value": 8}, {"ranks": "0-3", "value": 9}]
    assert "good.json posts all_reduce of 8 f32 and bad.json posts" in found["message"]


def test_diff_of_order_across_groups(rankmuster: Rankmuster, here: Path) -> None:
    """Two ops of different groups in the other order are found, though each group agrees."""
    ops = json.loads(program())["ops"]
    (here / "turned.json").write_text(program(ops=[ops[0], ops[2], ops[1]]))
    (found,) = rankmuster("diff", "good.json", "turned.json", "--format", "json").json
    assert (found["code"], found["field"], found["op"]["index"]) == ("RM307", "order", 1)


def test_diff_of_membership(rankmuster: Rankmuster, here: Path) -> None:
    """Another member order is a difference of the group, with both lists."""
    (here / "other.json").write_text(program(replica_groups=[[[0, 1, 3, 2]], [[0, 1], [2, 3]]]))
    (found,) = rankmuster("diff", "good.json", "other.json", "--format", "json").json
    assert (found["code"], found["field"]) == ("RM308", "members")


@pytest.mark.parametrize(
    ("changes", "code", "codes"),
    [
        ({"replica_groups": [[[0, 1, 2, 3]], [[0, 2], [1, 3]]]}, 1, [("RM308", "error")]),
        ({"replica_groups": [[[0, 1, 2, 3]], [[2, 3], [0, 1]]]}, 0, [("RM310", "info")]),
        ({"ops": []}, 1, [("RM306", "error")]),
    ],
)
def test_diff_says_what_check_says(
    rankmuster: Rankmuster, here: Path, changes: Any, code: int, codes: list[tuple[str, str]]
) -> None:
    """Codes, severities and the exit code are those of a world where one device runs A."""
    (here / "other.json").write_text(program(**changes))
    ran = rankmuster("diff", "other.json", "good.json", "--format", "json")
    assert ran.code == code
    assert [(each["code"], each["severity"]) for each in ran.json][:1] == codes
    pattern = ["check", "--ranks", "0=other.json", "--ranks", "1-3=good.json", "--format", "json"]
    checked = rankmuster(*pattern)
    assert checked.code == code
    found = [(each["code"], each["severity"]) for each in checked.json["findings"]]
    assert codes[0] in found
    told = rankmuster("diff", "other.json", "good.json").out
    assert "device" not in told.replace("2 different programs", "")


def test_diff_cannot_tell_what_is_not_recorded(rankmuster: Rankmuster, here: Path) -> None:
    """A reduce op that one file leaves open is undecided; one that both do is said to be open."""
    ops = json.loads(program())["ops"]
    (here / "open.json").write_text(program(ops=[ops[0] | {"reduce": None}, *ops[1:]]))
    assert rankmuster("diff", "open.json", "good.json").code == 3
    same = rankmuster("diff", "open.json", "open.json")
    assert same.code == 0
    assert "not recorded: reduce" in same.out


def test_diff_of_programs_without_collectives(rankmuster: Rankmuster, here: Path) -> None:
    """Nothing beside nothing is no match."""
    (here / "none.json").write_text(program(ops=[]))
    ran = rankmuster("diff", "none.json", "none.json", "--format", "json")
    assert (ran.code, [each["code"] for each in ran.json]) == (3, ["RM312"])


def test_diff_of_equal_programs(rankmuster: Rankmuster, here: Path) -> None:
    """Equal programs are said to be identical, with exit code 0."""
    ran = rankmuster("diff", "good.json", "d/0.json")
    assert (ran.code, ran.out.split(":")[0]) == (0, "identical")


def test_explain(rankmuster: Rankmuster) -> None:
    """A code in any case is explained at length; without a code all are listed, one a line."""
    first, *rest = rankmuster("explain", "rm302").out.splitlines()
    assert first == "RM302 error: element counts differ"
    assert [line.split(":")[0] for line in rest if line[0] != " "] == [
        "meaning",
        "cause",
        "example",
        "fix",
    ]
    assert len(rankmuster("explain").out.splitlines()) == len(RULES)


def test_several_modules_are_a_line_each(rankmuster: Rankmuster, here: Path) -> None:
    """A dump folder with two modules gives a line for each and all reports in JSON."""
    for name, text in (("jit_a", program()), ("jit_b", program(ops=[]))):
        (here / f"module_0000.{name}.cpu_after_optimizations.txt").write_text(text)
    ran = rankmuster("check", ".")
    assert [line.split()[:2] for line in ran.out.splitlines()] == [
        ["agree", "jit_a:"],
        ["undecided", "jit_b:"],
    ]
    assert ran.code == 0
    assert list(rankmuster("check", ".", "--format", "json").json["modules"]) == ["jit_a", "jit_b"]


def test_names_cannot_drive_a_terminal(rankmuster: Rankmuster, here: Path) -> None:
    """Escape sequences in a file's names come out spelled."""
    (here / "bad.json").write_text(program(9).replace("grad", "\\u001b[31m"))
    ran = rankmuster("diff", "good.json", "bad.json")
    assert "\x1b" not in ran.out
    assert "\\x1b[31m" in ran.out


def reads_a_pipe(pid: int) -> bool:
    waits_in = Path(f"/proc/{pid}/wchan")  # some systems have none, some do not say
    return waits_in.exists() and "pipe_read" in waits_in.read_text()


def test_interrupt(here: Path) -> None:
    """Ctrl-C ends a command that waits for its input with 130 and no traceback."""
    command = [sys.executable, "-m", "rankmuster", "check", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        until = time.monotonic() + 3
        while not reads_a_pipe(child.pid) and time.monotonic() < until:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=5)
    assert (child.returncode, b"Traceback" in err) == (130, False)


def test_colour_only_on_a_terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets plain text; a terminal gets colour unless NO_COLOR says otherwise."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "shutil", Terminal)
    for is_terminal, no_color, colored in (
        (False, "", False),
        (True, "", True),
        (True, "1", False),
    ):
        monkeypatch.setattr(sys.stdout, "isatty", lambda answer=is_terminal: answer)
        monkeypatch.setenv("NO_COLOR", no_color)
        run(["check", "d"])
        assert ("\x1b[" in capsys.readouterr().out) is colored


class Terminal:
    """Stands for a terminal of 80 columns."""

    @staticmethod
    def get_terminal_size() -> os.terminal_size:
        return os.terminal_size((80, 24))
