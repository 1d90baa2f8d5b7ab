"""`rankmuster decode`: images of structs, member by member, and never a traceback."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from command_line import Ran, Rankmuster

from rankmuster.abi import STRUCTS

Decode = Callable[..., Ran]


@pytest.fixture
def decode(rankmuster: Rankmuster) -> Decode:
    return partial(rankmuster, "decode")


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    path = tmp_path / "peer.bin"
    path.write_bytes(struct.pack("<iiiiQ", 3, 12, -1, 2, 1 << 40))
    return path


def test_fields_as_json(decode: Decode, peer: Path) -> None:
    """Field, offset, size and value of each member."""
    ran = decode("enc_peer_info", peer, "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    head = {key: ran.json[key] for key in ("schema", "struct", "size", "at", "bytes", "note")}
    assert head == {
        "schema": "rankmuster.image/1",
        "struct": "enc_peer_info",
        "size": 24,
        "at": 0,
        "bytes": 24,
        "note": "",
    }
    assert [(f["field"], f["offset"], f["size"], f["value"]) for f in ran.json["fields"]] == [
        ("neuron_dev", 0, 4, 3),
        ("rid", 4, 4, 12),
        ("tpb_index", 8, 4, -1),
        ("pod_node_id", 12, 4, 2),
        ("reservation_id", 16, 8, 1 << 40),
    ]


def test_fields_as_text(decode: Decode, peer: Path) -> None:
    """A line of what the struct is, then aligned columns."""
    assert decode("enc_peer_info", peer).out.splitlines() == [
        "enc_peer_info, 24 bytes: where a peer sits",
        "field           offset  size  value          note",
        "neuron_dev           0     4  3",
        "rid                  4     4  12",
        "tpb_index            8     4  -1",
        "pod_node_id         12     4  2",
        "reservation_id      16     8  1099511627776",
    ]


def test_a_struct_inside_a_dump(decode: Decode, tmp_path: Path, peer: Path) -> None:
    """--at says where it begins; what follows is counted, not read."""
    dump = tmp_path / "dump.bin"
    dump.write_bytes(b"\xff" * 7 + peer.read_bytes() + b"tail")
    ran = decode("enc_peer_info", dump, "--at", 7, "--format", "json")
    assert ran.json["note"] == "4 bytes after the struct are not read"
    assert (ran.code, ran.json["fields"][0]["value"], ran.json["fields"][0]["offset"]) == (0, 3, 0)


def test_a_truncated_image(decode: Decode, peer: Path) -> None:
    """The fields that are there, a note on the cut, and exit code 1."""
    peer.write_bytes(peer.read_bytes()[:10])
    ran = decode("enc_peer_info", peer)
    assert ran.code == 1
    assert "the image ends early: 10 of 24 bytes" in ran.out
    assert "cut off: 2 of 4 bytes, ffff" in ran.out
    assert decode("enc_peer_info", peer, "--at", 500).code == 1


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_random_bytes_print(decode: Decode, tmp_path: Path, name: str) -> None:
    """Whatever a file holds prints, in both formats."""
    image = tmp_path / "random.bin"
    image.write_bytes(b"\x1b[31m\xff\x80\x01" * 3000)
    for form in ("text", "json"):
        ran = decode(name, image, "--format", form)
        assert ran.err == ""
        assert "\x1b" not in ran.out


def test_without_a_file_the_layout(decode: Decode) -> None:
    """A struct alone prints its members; nothing at all prints the structs."""
    members = decode("enc_ring", "--format", "json").json["fields"]
    assert [(each["field"], each["type"]) for each in members] == [
        ("prev", "i32"),
        ("next", "i32"),
        ("user_ranks", "i32*"),
        ("duplicate", "bool"),
    ]
    assert "user_ranks" in decode("enc_ring").out
    listed = decode("--format", "json").json["structs"]
    assert {each["struct"]: each["size"] for each in listed}["enc_glb_comm"] == 564408
    assert "enc_glb_comm" in decode().out


def test_wrong_use_is_one_line(decode: Decode, tmp_path: Path, peer: Path) -> None:
    """An unknown struct, a missing and an empty file: a line that helps, exit code 2."""
    (tmp_path / "empty").touch()
    for arguments, words in (
        (("enc_pear_info", peer), "did you mean 'enc_peer_info'?"),
        (("enc_peer_info", tmp_path / "peer.bim"), "did you mean 'peer.bin'?"),
        (("enc_peer_info", tmp_path / "empty"), "the file is empty"),
        (("enc_peer_info", tmp_path), "Is a directory"),
    ):
        ran = decode(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert words in ran.err
