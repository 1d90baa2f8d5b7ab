"""Images of our own records: what is packed is what is unpacked."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.abi import STRUCTS
from rankmuster.abi.decode import rows
from rankmuster.abi.memory import Memory
from rankmuster.abi.records import GroupRecord, PairsRecord
from rankmuster.arch.devices import DeviceMaps
from rankmuster.errors import InvalidProgram

IDS = st.integers(0, 2**32 - 1)
MEMBERS = st.lists(IDS, max_size=20).map(tuple)
INTS = st.integers(0, 2**31 - 1)
GROUPS = st.builds(
    GroupRecord,
    rank=INTS | st.none(),
    group_id=st.integers(0, 11),
    pairs_id=INTS | st.none(),
    num_ops=IDS,
    sendrecv=st.booleans(),
    nccl_mesh_supported=st.booleans(),
    must_use_ring_alg=st.booleans(),
    signature=st.binary(min_size=16, max_size=16),
    participants=MEMBERS,
    bootstrap_participants=MEMBERS,
    bootstrap_rank=INTS | st.none(),
)
PAIRS = st.builds(
    PairsRecord,
    pairs=st.lists(st.tuples(IDS, IDS), max_size=10).map(tuple),
    participants=MEMBERS,
    pairs_id=INTS,
    group_id=INTS,
    rank=INTS | st.none(),
    signature=st.binary(min_size=16, max_size=16),
)
RECORD = GroupRecord(
    rank=1,
    group_id=3,
    num_ops=2,
    signature=bytes(range(16)),
    participants=(4, 9),
    bootstrap_participants=(4, 9),
    bootstrap_rank=1,
)


@given(GROUPS)
def test_group_records_round_trip(record: GroupRecord) -> None:
    """Unpacking undoes packing."""
    memory = Memory()
    assert GroupRecord.unpack(record.pack(memory), memory) == record


@given(PAIRS)
def test_pairs_records_round_trip(record: PairsRecord) -> None:
    """Unpacking undoes packing, pairs and component included."""
    memory = Memory()
    assert PairsRecord.unpack(record.pack(memory), memory) == record


def test_a_group_record_decodes() -> None:
    """The image is one that `decode` reads, and the vectors count their members."""
    found = {
        row.field: row.value
        for row in rows(STRUCTS["enc_replica_group_info"], RECORD.pack(Memory()))
    }
    assert found == {
        "rank": 1,
        "rank_n": 2,
        "group_id": 3,
        "src_target_pairs_id": -1,
        "num_ops": 2,
        "sendrecv": False,
        "nccl_mesh_supported": False,
        "must_use_ring_alg": False,
        "signature": bytes(range(16)).hex(),
        "participants": 2,
        "bootstrap_participants": 2,
        "bootstrap_rank": 1,
    }


def test_foreign_pointers_are_refused() -> None:
    """An image whose pointers were not made here is not followed."""
    with pytest.raises(InvalidProgram, match="are not part of this image"):
        GroupRecord.unpack(RECORD.pack(Memory()), Memory())


def test_another_length_is_refused() -> None:
    """95 bytes are no record, and a count that the key does not bear out is none (D22)."""
    memory = Memory()
    image = RECORD.pack(memory)
    with pytest.raises(InvalidProgram, match="takes 96 bytes, not 95"):
        GroupRecord.unpack(image[:-1], memory)
    wrong = image[:4] + struct.pack("<i", 3) + image[8:]
    with pytest.raises(InvalidProgram, match="rank_n is 3, and 2 participants bootstrap"):
        GroupRecord.unpack(wrong, memory)


def test_an_odd_pair_is_refused() -> None:
    """A pair of three is no pair."""
    record = PairsRecord(pairs=((0, 1),), participants=(0, 1), pairs_id=0, group_id=0, rank=0)
    memory = Memory()
    image = replace(record, pairs=((0, 1, 2),)).pack(memory)  # type: ignore[arg-type] # on purpose
    with pytest.raises(InvalidProgram, match="not two members"):
        PairsRecord.unpack(image, memory)


def test_device_maps_decode() -> None:
    """The chip layer's own image decodes member by member, sentinels and all."""
    image = DeviceMaps(built=True, mla_to_rid=(5, *[None] * 31)).pack()
    found = {row.field: row.value for row in rows(STRUCTS["device_id_maps"], image)}
    assert found["device_id_maps_build"] is True
    assert found["mla_to_rid"] == [5] + [-4] * 31
    assert found["rid_to_mla"] == [-3] * 32
    assert found["port_map"] == [-2] * 128


def test_memory_is_bounded_and_stands_in() -> None:
    """Objects without bytes get an address; there is an end to how much is kept."""
    memory = Memory()
    thing = object()
    assert memory.stands_for(memory.stand_in(thing)) is thing
    assert (memory.stand_in(None), memory.put(b"")) == (0, 0)
    memory._next += 1 << 31
    with pytest.raises(InvalidProgram, match="more than"):
        memory.put(b"x")
