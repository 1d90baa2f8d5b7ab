"""Decoding: what an image holds, whatever the bytes."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.abi import STRUCTS
from rankmuster.abi.decode import Row, rows
from rankmuster.abi.groups import DISJOINT_SET, REPLICA_GROUP

SMALL = sorted(name for name, layout in STRUCTS.items() if layout.size < 70_000)


def by_field(name: str, image: bytes) -> dict[str, Row]:
    return {row.field: row for row in rows(STRUCTS[name], image)}


@given(st.sampled_from(SMALL), st.binary(max_size=200), st.integers(0, 70_000))
def test_any_bytes_decode(name: str, some: bytes, length: int) -> None:
    """Truncated, oversized and random images give rows that go out as JSON, and no error."""
    image = (some * (length // max(len(some), 1) + 1))[:length]
    found = list(rows(STRUCTS[name], image))
    assert msgspec.json.encode([row.to_dict() for row in found])
    assert all(0 <= row.offset < STRUCTS[name].size and row.size > 0 for row in found)


@pytest.mark.parametrize("name", SMALL)
def test_rows_cover_the_struct(name: str) -> None:
    """Rows follow each other without overlap, and leave out only what C pads."""
    end = 0
    for row in rows(STRUCTS[name], b"\1" * STRUCTS[name].size):
        assert 0 <= row.offset - end < 8
        end = row.offset + row.size
    assert 0 <= STRUCTS[name].size - end < 8


def test_a_truncated_image_gives_what_is_there() -> None:
    """Members before the cut have values, the one at it says how much is left."""
    found = by_field("enc_replica_group_info", struct.pack("<iiI", 1, 4, 7) + b"\2\0")
    assert (found["rank"].value, found["group_id"].value) == (1, 7)
    assert found["src_target_pairs_id"].note == "cut off: 2 of 4 bytes, 0200"
    assert found["participants"].note == "beyond the end of the image"


def test_vectors_say_what_lies_behind_them() -> None:
    """A vector shows its count and its address; a broken one shows its pointers."""
    image = bytearray(REPLICA_GROUP.size)
    struct.pack_into("<QQQ", image, 40, 0x1000, 0x1010, 0x1020)
    struct.pack_into("<QQQ", image, 64, 0x1000, 0xFFF, 0x1020)
    found = by_field("enc_replica_group_info", bytes(image))
    assert found["participants"].value == 4
    assert found["participants"].note == "4 x u32, behind the pointer 0x1000"
    broken = found["bootstrap_participants"]
    assert broken.value is None
    assert broken.note.startswith("no vector of 4-byte elements: begin 0x1000, end 0xfff")


def test_maps_say_what_lies_behind_them() -> None:
    """An unordered map shows its count, an inconsistent one why it is none."""
    image = bytearray(DISJOINT_SET.size)
    struct.pack_into("<QQQQ", image, 0, 0x2000, 13, 0x3000, 5)
    struct.pack_into("<QQQQ", image, 56, 0x2000, 13, 0, 5)
    found = by_field("disjoint_set", bytes(image))
    assert found["representative"].value == 5
    assert found["representative"].note == "5 entries in 13 buckets, behind the pointer 0x3000"
    assert found["rank"].note.startswith("no map:")


def test_empty_maps_and_special_numbers() -> None:
    """An empty map is empty; -1 says what it means where it means something."""
    assert by_field("disjoint_set", bytes(112))["rank"].note == "empty"
    record = by_field("enc_replica_group_info", b"\xff" * 4 + bytes(92))
    assert (record["rank"].value, record["rank"].note) == (-1, "not a member")


def test_values_read_as_what_they_are() -> None:
    """Signs, words for numbers, truth values, pointers and text."""
    image = bytearray(STRUCTS["enc_neuron_device_info"].size)
    struct.pack_into("<i", image, 16, -3)
    struct.pack_into("<i", image, 32, 2)
    image[48] = 9
    image[48 + 40 : 48 + 44] = b"/tmp"
    found = by_field("enc_neuron_device_info", bytes(image))
    assert found["routing_id"].value == -3
    assert (found["pod_type"].value, found["pod_type"].note) == (2, "SWITCH")
    assert found["histogram_config.enable"].note == "neither 0 nor 1"
    assert found["histogram_config.output_path"].value == "/tmp"
    node = by_field("enc_nccl_comm_node", struct.pack("<QQ", 0, 0xABC) + bytes(72))
    assert (node["nccl_comm"].value, node["nccl_comm"].note) == (None, "NULL")
    assert (node["key"].value, node["key"].type) == ("0xabc", "char*")


def test_zero_elements_fold() -> None:
    """Runs of zero elements are one row, and `whole` unfolds them."""
    image = bytearray(STRUCTS["enc_alg_metaring"].size)
    image[8 + 5 * 88] = 7  # channels[5].id
    layout = STRUCTS["enc_alg_metaring"]
    folded = [row.field for row in rows(layout, bytes(image)) if row.field.startswith("channels")]
    assert folded[0] == "channels[0..4]"
    assert folded[-1] == "channels[6..31]"
    assert "channels[5].id" in folded
    whole = [row.field for row in rows(layout, bytes(image), whole=True)]
    assert "channels[31].drv_channel" in whole
