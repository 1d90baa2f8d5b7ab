"""The pages on memory images and NEFF: what they show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rankmuster.abi import STRUCTS
from rankmuster.abi.memory import Memory
from rankmuster.abi.pack import pack
from rankmuster.cli import run
from rankmuster.formats.json_program import write
from rankmuster.testing.build import all_reduce, program
from rankmuster.testing.neff import neff

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text() for name in ("memory-images.md", "neff.md"))
COMMANDS = re.findall(r"```console\n\$ rankmuster (.*)\n((?:.*\n)*?)```", TEXT)
CODE = re.findall(r"```python\n((?:.*\n)*?)```", TEXT)
SETS = [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]
GROUP = {
    "rank": 1,
    "rank_n": 2,
    "group_id": 3,
    "src_target_pairs_id": -1,
    "num_ops": 7,
    "nccl_mesh_supported": True,
    "signature": bytes(range(16)),
    "participants": (4, 9),
    "bootstrap_participants": (4, 9),
    "bootstrap_rank": 1,
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image = pack(STRUCTS["enc_replica_group_info"], GROUP, Memory())
    Path("group.img").write_bytes(image)
    Path("model.neff").write_bytes(neff(SETS, [RING]))
    Path("with_ops").mkdir()
    Path("with_ops/model.neff").write_bytes(neff(SETS, [RING]))
    ops = program(all_reduce(), groups=SETS, pairs=[RING], world_size=4)
    Path("with_ops/model.neff.json").write_bytes(write(ops))


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
@pytest.mark.usefixtures("files")
def test_commands(command: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command of the pages prints what stands below it; … stands for any lines."""
    run(shlex.split(command))
    pattern = re.escape(shown).replace("…\\\n", "(?:.*\n)*")
    assert re.fullmatch(pattern, capsys.readouterr().out)


@pytest.mark.parametrize("code", CODE)
def test_code(code: str) -> None:
    """The Python of the pages runs, and its assertions hold."""
    exec(compile(code, "docs", "exec"), {})


def test_pages_show_something() -> None:
    """Nothing is left out by a slip in the fences."""
    assert (len(COMMANDS), len(CODE)) == (4, 2)
