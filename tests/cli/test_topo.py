"""`rankmuster topo` and `rankmuster chips`: drawings, pictures, tables and their JSON."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from rankmuster.cli import run

PROGRAM = """{"format": "rankmuster.program/1", "world_size": 12,
 "replica_groups": [[[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]],
 "ops": [{"kind": "all_reduce", "group": 0, "elements": 8, "dtype": "f32", "reduce": "add"}]}"""
RING = """\
inf2.48xlarge:1: 1 node, 12 chips each (ring of 12), 2 devices a chip at LNC 1, 24 devices in all

   [ 0 AA]--[ 1 AA]--[ 2 AA]--[ 3 BB]--[ 4 BB]--[ 5 B.]
      |                                            |
   [11 ..]--[10 ..]--[ 9 ..]--[ 8 ..]--[ 7 ..]--[ 6 ..]

node 0: devices 0 to 23, in chip order
letters: the 2 groups of set 0, . for none
"""
TORUS = """\
    *     *     *     *
    |     |     |     |
*--[ 0]--[ 1]--[ 2]--[ 3]--*
    |     |     |     |
*--[ 4]--[ 5]--[ 6]--[ 7]--*
    |     |     |     |
*--[ 8]--[ 9]--[10]--[11]--*
    |     |     |     |
*--[12]--[13]--[14]--[15]--*
    |     |     |     |
    *     *     *     *
"""


@pytest.fixture
def said(tmp_path: Path) -> str:
    path = tmp_path / "program.json"
    path.write_text(PROGRAM)
    return str(path)


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(arguments)
    return code, *capsys.readouterr()


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, _ = ran(capsys, "--format", "json", *arguments)
    assert code == 0
    return json.loads(out)


def test_torus(capsys: pytest.CaptureFixture[str]) -> None:
    """A torus is a grid whose outer links end in stars."""
    code, out, _ = ran(capsys, "topo", "trn1")
    assert code == 0
    assert TORUS in out
    assert "*- is a wrap-around link" in out


def test_groups_on_a_ring(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """With a program, each device shows the letter of its group."""
    code, out, _ = ran(capsys, "topo", "inf2", "--groups", said)
    assert code == 0
    assert out.startswith(RING)
    assert "on inf2.48xlarge:1, steps of each ring or permute:" in out


def test_a_world_that_does_not_fit(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """A program that the cluster cannot hold is drawn, named and exit code 1."""
    code, out, _ = ran(capsys, "topo", "generic:1x8", "--groups", said)
    assert code == 1
    assert "error RM002" in out


@pytest.mark.parametrize(
    ("world", "code", "word"), [("24", 0, "RM404"), ("33", 1, "RM002"), ("32", 0, "")]
)
def test_a_world_alone(
    capsys: pytest.CaptureFixture[str], world: str, code: int, word: str
) -> None:
    """Whether a world fits can be asked before there is a program."""
    assert run(["topo", "trn1", "--world", world]) == code
    shown = capsys.readouterr().out
    assert word in shown
    assert word or "RM" not in shown


def test_json(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """The JSON holds each chip's ports, routing id and distances, and the placement."""
    found = answer(capsys, "topo", "trn2:2", "--groups", said)
    assert found["schema"] == "rankmuster.topo/1"
    assert found["chips"][1]["ports"] == [0, 13, 5, 2]
    assert found["chips"][1]["routing_id"] == 8
    assert found["chips"][0]["hops"][10] == 4
    assert found["placement"]["groups"][0]["id"] == 0
    assert found["cluster"]["devices"] == 128


def texts(picture: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(picture).iter() if node.text]


@pytest.mark.parametrize("name", ["trn2:4", "inf2", "inf2.24xlarge", "trn3:2", "generic:3x8"])
def test_svg(capsys: pytest.CaptureFixture[str], said: str, name: str) -> None:
    """The picture is well-formed, stands alone, and shows every device once."""
    code, out, _ = ran(capsys, "topo", name, "--groups", said, "--svg", "-")
    assert code == 0
    shown = answer(capsys, "topo", name)["cluster"]["devices"]
    numbers = [text for text in texts(out) if text.startswith("device ")]
    assert len(numbers) == shown
    assert "http" not in out.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "device 6: group 1" in texts(out)


def test_svg_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A picture goes to a file, and a large cluster says what it leaves out."""
    path = tmp_path / "topo.svg"
    code, out, err = ran(capsys, "topo", "trn2:20", "--svg", str(path))
    assert (code, out) == (0, "")
    assert str(path) in err
    assert "nodes 16 to 19 are not drawn" in path.read_text()


def test_svg_into_nowhere(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A picture that cannot be written is wrong use, in one line."""
    code, _, err = ran(capsys, "topo", "trn2", "--svg", str(tmp_path / "no" / "topo.svg"))
    assert code == 2
    assert "No such file" in err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("topo", "trn2.48xlarg"), "did you mean 'trn2.48xlarge'?"),
        (("topo", "trn2", "--node", "1"), "node 1 is not one of the 1"),
        (("topo", "no.json"), "no.json"),
        (("topo", "--groups", "step.json"), "say which CLUSTER"),
        (("topo", "--svg", "topo.svg"), "say which CLUSTER"),
        (("topo", "trn2", "--set", "1"), "--groups PROGRAM"),
        (("chips", "caymn"), "did you mean 'cayman'?"),
        (("chips", "5"), "known: cayman, mariana, sunda"),
    ],
)
def test_wrong_use(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], what: str
) -> None:
    """Wrong names exit with 2 and offer the right ones."""
    code, out, err = ran(capsys, *arguments)
    assert (code, out) == (2, "")
    assert what in err


def test_no_such_set(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """A set that the program has not is wrong use."""
    code, _, err = ran(capsys, "topo", "inf2", "--groups", said, "--set", "3")
    assert code == 2
    assert "1 group sets, and no set 3" in err


def test_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a cluster, those that are known are listed."""
    names = [each["name"] for each in answer(capsys, "topo")]
    assert {"trn2.48xlarge", "trn3-gen2-ultraserver", "inf2.24xlarge"} <= set(names)
    assert "generic:8x8" in ran(capsys, "topo")[1]


def test_catalogue_says_how_pods_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    """Pods of chip links come whole or in parts, others in one way only."""
    modes = {each["name"]: each["pod_modes"] for each in answer(capsys, "topo")}
    assert modes["trn2-ultraserver"] == ["unset", "x4", "x2h", "x2v", "x1"]
    assert modes["trn2.48xlarge"] == modes["trn3.48xlarge"] == ["unset"]


@pytest.mark.parametrize(("name", "share"), [("trn2", 50), ("trn2:1:lnc=1", 25), ("inf2", 0)])
def test_network_share(capsys: pytest.CaptureFixture[str], name: str, share: int) -> None:
    """The network of a node is shared out to its devices (facts §3.1)."""
    assert answer(capsys, "topo", name)["cluster"]["network_gbps_per_device"] == share


def test_a_listing_is_held_against_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a program, too, a drawing says where a server contradicts its name."""
    one = {"neuron_device": 0, "connected_to": None, "nc_count": 2, "memory_size": 32 << 30}
    (tmp_path / "node0.json").write_text(json.dumps([one]))
    out = ran(capsys, "topo", f"trn1:1:ls={tmp_path / 'node0.json'}")[1]
    assert "RM404" in out
    assert "1 chips where trn1.32xlarge has 16" in out


def test_chips(capsys: pytest.CaptureFixture[str]) -> None:
    """Every known slot with what each generation answers, and the driver's counts beside it."""
    found = answer(capsys, "chips")
    slots = {each["slot"]: each for each in found["known"]}
    assert (found["slots"], found["table_bytes"], len(slots)) == (93, 744, 34)
    assert slots["get_max_links_per_pod_port"]["answers"] == {
        "sunda": "NULL",
        "cayman": "1",
        "mariana": "2",
    }
    assert slots["get_peer_rid"]["evidence"] == "choice"
    assert found["driver"]["cayman"]["num_tpb"] == 8


def test_one_generation(capsys: pytest.CaptureFixture[str]) -> None:
    """One generation's column stands alone."""
    out = ran(capsys, "chips", "2")[1]
    assert "0x30000" in out
    assert "0x38000" not in out


def test_check_on_a_cluster(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """`check --cluster` puts placement and screen into the report."""
    found = answer(capsys, "check", said, "--cluster", "trn2:1")
    assert found["world"]["cluster"] == "trn2.48xlarge:1"
    assert found["placement"]["groups"][0]["shapes"][0]["size"] == 6
    assert "32 local ranks" not in found["screen"]["because"][0]
    assert "12 local ranks" in found["screen"]["because"][0]


def test_check_on_a_cluster_too_small(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """A program that the cluster cannot hold is an error."""
    code, out, _ = ran(capsys, "check", said, "--cluster", "generic:1x8")
    assert code == 1
    assert "RM002" in out
    assert "generic:1x8 holds 8" in out


def test_check_names_the_nearest_cluster(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """A misspelt cluster is wrong use."""
    code, _, err = ran(capsys, "check", said, "--cluster", "trn2.48xlarg:2")
    assert code == 2
    assert "did you mean 'trn2.48xlarge'?" in err
