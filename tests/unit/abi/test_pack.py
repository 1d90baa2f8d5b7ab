"""Images of our own values: what is packed is what is unpacked, and nothing else is followed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.abi import STRUCTS
from rankmuster.abi.decode import rows
from rankmuster.abi.memory import Memory
from rankmuster.abi.pack import pack, unpack
from rankmuster.arch.devices import DeviceMaps
from rankmuster.errors import InvalidProgram

GROUP = STRUCTS["enc_replica_group_info"]
PAIRS = STRUCTS["enc_src_target_pairs_info"]
IDS = st.integers(0, 2**32 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
MEMBERS = st.lists(IDS, max_size=20).map(tuple)
SIGNATURE = st.binary(min_size=16, max_size=16)
GROUPS = st.fixed_dictionaries(
    {
        "rank": I32,
        "num_ops": IDS,
        "sendrecv": st.booleans(),
        "signature": SIGNATURE,
        "participants": MEMBERS,
        "bootstrap_participants": MEMBERS,
    }
)
PAIR_SETS = st.fixed_dictionaries(
    {"pairs": st.lists(MEMBERS, max_size=5).map(tuple), "signature": SIGNATURE, "rank": I32}
)


@given(GROUPS)
def test_groups_round_trip(values: dict[str, Any]) -> None:
    """Numbers, flags, raw bytes and vectors come back as they went in."""
    memory = Memory()
    assert unpack(GROUP, pack(GROUP, values, memory), values, memory) == values


@given(PAIR_SETS)
def test_vectors_of_vectors_round_trip(values: dict[str, Any]) -> None:
    """So does a vector of vectors."""
    memory = Memory()
    assert unpack(PAIRS, pack(PAIRS, values, memory), values, memory) == values


def test_packed_values_decode() -> None:
    """What is packed is what `decode` reads."""
    values = {"rank": 1, "src_target_pairs_id": -1, "participants": (4, 9)}
    image = pack(GROUP, values, Memory())
    found = {row.field: (row.value, row.note) for row in rows(GROUP, image)}
    assert found["rank"][0] == 1
    assert found["src_target_pairs_id"][0] == -1
    assert found["participants"] == (2, "2 x u32, behind the pointer 0x7f0000000000")
    assert found["bootstrap_participants"] == (0, "empty")


def test_paths_reach_deep() -> None:
    """A path may lead through structs and arrays; arrays take all their elements."""
    world = STRUCTS["enc_glb_comm"]
    memory = Memory()
    values = {
        "comm.ring.channels[3].id": 7,
        "comm.ci.enable_pod": True,
        "inter_rdh_devmem_res": (1, 2, 3, 4),
        "root_comm_id": "10.0.0.1:46820",
    }
    image = pack(world, values, memory)
    found = unpack(world, image, values, memory)
    assert found["id"] == 7
    assert found["enable_pod"] is True
    assert found["inter_rdh_devmem_res"] == (1, 2, 3, 4)
    assert memory.get_text(found["root_comm_id"]) == "10.0.0.1:46820"


def test_numbers_wrap_as_in_c() -> None:
    """-1 and the largest u32 are the same bytes; what needs more is a ValueError."""
    assert pack(GROUP, {"rank": -1}, Memory()) == pack(GROUP, {"rank": 2**32 - 1}, Memory())
    with pytest.raises(ValueError, match="4294967296 does not fit 4 bytes"):
        pack(GROUP, {"rank": 1 << 32}, Memory())
    with pytest.raises(ValueError, match="signature of enc_replica_group_info takes 16 bytes"):
        pack(GROUP, {"signature": b"short"}, Memory())


@pytest.mark.parametrize(
    ("image", "path", "error"),
    [
        (bytes(95), "rank", "enc_replica_group_info takes 96 bytes, not 95"),
        (bytes(20) + b"\2" + bytes(75), "sendrecv", "sendrecv of .*: 2 is neither 0 nor 1"),
        (bytes(40) + b"\1" + bytes(55), "participants", "participants of .*: no vector"),
        (bytes(48) + b"\4" + bytes(7) + b"\4" + bytes(39), "participants", "not part of this"),
    ],
)
def test_other_images_are_refused(image: bytes, path: str, error: str) -> None:
    """Another size, a truth value that is none, and pointers that lead out."""
    with pytest.raises(InvalidProgram, match=error):
        unpack(GROUP, image, [path], Memory())


def test_device_maps_decode() -> None:
    """The chip layer's own image decodes member by member, sentinels and all."""
    image = DeviceMaps(built=True, mla_to_rid=(5, *[None] * 31)).pack()
    found = {row.field: row.value for row in rows(STRUCTS["device_id_maps"], image)}
    assert found["device_id_maps_build"] is True
    assert found["mla_to_rid"] == [5] + [-4] * 31
    assert found["rid_to_mla"] == [-3] * 32
    assert found["port_map"] == [-2] * 128


def test_memory_keeps_no_more_than_its_bound() -> None:
    """Objects without bytes get an address; there is an end to how much is kept."""
    memory = Memory()
    thing = object()
    assert memory.stands_for(memory.stand_in(thing)) is thing
    assert (memory.stand_in(None), memory.put(b""), memory.get(0, 0)) == (0, 0, b"")
    assert (memory.stands_for(5), memory.get_text(0)) == (None, "")
    with pytest.raises(InvalidProgram, match="no text at 0x5"):
        memory.get_text(5)
    memory._next += 1 << 31
    with pytest.raises(InvalidProgram, match="more than"):
        memory.put(b"x")
