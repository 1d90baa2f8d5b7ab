"""The ops table: offsets are identities, and the three generations fill it as S4 says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rankmuster.arch import cayman, inventory, mariana, sunda
from rankmuster.arch.chip import Chip, Forward, Generation, chip_for
from rankmuster.arch.common import NotPublished, Unpublished
from rankmuster.arch.driver import DRIVER_BYTES, DRIVER_SLOTS, NUM_TPB_OFFSET
from rankmuster.arch.fabric import TRN1_TORUS, TRN2_TORUS, TRN3_SWITCH
from rankmuster.arch.slots import KNOWN, SLOTS, TABLE_BYTES, OpsTable, SlotUnset
from rankmuster.errors import InvariantError, UnknownGeneration

CITED = {  # S4 §1, §5 and facts §1.6 [M+]
    112: "get_p2p_port_alloc_tbl_entry",
    120: "get_p2p_port",
    136: "get_pds_address",
    200: "get_resource_pool",
    304: "get_apb_bcast_m2s_offsets",
    368: "get_max_links_per_pod_port",
    496: "get_ncfw_configs_sz",
    504: "max_mesh_events",
    520: "ctrl_spad_offset",
    528: "slot_spad_offset",
    616: "get_seng_rel_devid",
    640: "get_die_idx_from_tpb_idx",
    664: "get_switch_exit_port",
    736: "get_mesh_max_folds",
}
TABLES = {
    Generation.SUNDA: sunda.table(TRN1_TORUS),
    Generation.CAYMAN: cayman.table(TRN2_TORUS),
    Generation.MARIANA: mariana.table(TRN3_SWITCH),
}
FABRICS = {
    Generation.SUNDA: TRN1_TORUS,
    Generation.CAYMAN: TRN2_TORUS,
    Generation.MARIANA: TRN3_SWITCH,
}


def chip(generation: Generation, core_size: int = 1) -> Chip:
    return chip_for(generation, FABRICS[generation], core_size=core_size)


def test_offsets_lie_in_the_table() -> None:
    """Offsets are unique, multiples of 8 and below 744, the size of 93 pointers."""
    assert len(KNOWN) == len(dataclasses.fields(OpsTable))
    assert [each for each in KNOWN if each % 8 or not 0 <= each < TABLE_BYTES] == []
    assert (TABLE_BYTES, SLOTS) == (744, 93)


def test_cited_slots_stand_where_they_are_cited() -> None:
    """Every slot that the seeds cite has the offset that they give."""
    assert {offset: KNOWN[offset].name for offset in CITED} == CITED


def test_peer_rid_is_marked_as_our_choice() -> None:
    """The one slot whose offset is not public says so, and lies in the routing band."""
    chosen = [each for each in KNOWN.values() if each.evidence == "choice"]
    assert [each.name for each in chosen] == ["get_peer_rid"]
    assert 112 <= chosen[0].offset <= 296


def renamed(table: OpsTable, old: str, new: str) -> Any:
    """The same table with one slot under another name."""
    fields = [
        (f.name.replace(old, new), Any, dataclasses.field(metadata=f.metadata))
        for f in dataclasses.fields(OpsTable)
    ]
    namespace = {"at": OpsTable.at, "missing": OpsTable.missing}
    other = dataclasses.make_dataclass("Renamed", fields, kw_only=True, namespace=namespace)
    return other(
        **{f.name.replace(old, new): getattr(table, f.name) for f in dataclasses.fields(OpsTable)}
    )


def test_dispatch_goes_by_offset() -> None:
    """A slot under another name answers the same accessor."""
    plain = chip(Generation.CAYMAN)
    table = renamed(plain.ops, "get_num_sb_ports", "anything")
    assert not hasattr(table, "get_num_sb_ports")
    assert Chip(table, plain.layout, plain.fabric).num_sb_ports() == plain.num_sb_ports() == 16


def test_switch_v1_address_is_the_pds_slot() -> None:
    """The alias reads the slot at +136, whose name is another one (S4 §1)."""
    alias = vars(Chip)["switch_v1_address"]
    assert alias.accessor == "encd_arch_get_switch_v1_address"
    assert KNOWN[alias.offset].name == "get_pds_address"
    assert chip(Generation.MARIANA).switch_v1_address == Unpublished("get_pds_address")


@pytest.mark.parametrize(
    "name", ["get_ncfw_configs_sz", "max_mesh_events", "ctrl_spad_offset", "slot_spad_offset"]
)
def test_shared_bodies_are_one_object(name: str) -> None:
    """The firmware's four sizes come from one body in all three tables (S4 §1)."""
    assert len({id(getattr(table, name)) for table in TABLES.values()}) == 1


def test_firmware_sizes() -> None:
    """The four shared sizes are those of S4."""
    here = chip(Generation.SUNDA)
    sizes = (here.ncfw_configs_sz(), here.max_mesh_events())
    assert sizes == (0x4280, 108)
    assert (here.ctrl_spad_offset(), here.slot_spad_offset()) == (17104, 17056)


def test_null_slots() -> None:
    """Only guarded slots are NULL, and only on sunda."""
    null = {
        generation.name: {
            f.name for f in dataclasses.fields(OpsTable) if getattr(t, f.name) is None
        }
        for generation, t in TABLES.items()
    }
    guarded = {each.name for each in KNOWN.values() if each.guard}
    assert null == {"SUNDA": guarded, "CAYMAN": set(), "MARIANA": set()}


def test_a_chip_needs_its_slots() -> None:
    """A table with a required slot at NULL makes no chip, and the error names the slot."""
    plain = chip(Generation.CAYMAN)
    table = dataclasses.replace(plain.ops, get_num_sb_ports=None)
    with pytest.raises(InvariantError, match="get_num_sb_ports"):
        Chip(table, plain.layout, plain.fabric)


GEOMETRY = {  # facts §1.6: ports, partition bytes, partitions, sengines, RDH engines, devs, folds
    Generation.SUNDA: (16, 0x30000, 128, 2, [0, 1, 0, -1], 16, 8),
    Generation.CAYMAN: (16, 0x38000, 128, 4, [4, 5, 0, -1], 16, 8),
    Generation.MARIANA: (16, 0x40000, 128, 4, [4, 5, 0, -1], 32, 16),
}


@pytest.mark.parametrize("generation", Generation)
def test_geometry(generation: Generation) -> None:
    """The geometry matrix is that of the facts; mariana's stands behind a switch here."""
    here = chip(generation)
    assert GEOMETRY[generation] == (
        here.num_sb_ports(),
        here.valid_sbuf_partition_size(),
        here.num_sbuf_partitions(),
        here.num_sengines_per_mla(),
        [here.inter_rdh_dma_id(index) for index in range(4)],
        here.max_devs(0),
        here.mesh_max_folds(0),
    )


def test_mariana_without_the_switch() -> None:
    """On the torus platform mariana sees 16 devices and folds 8 times."""
    here = chip_for(Generation.MARIANA, TRN2_TORUS)
    assert (here.max_devs(0), here.mesh_max_folds(0)) == (16, 8)


def test_small_tables() -> None:
    """Queues, bundles, engines, dies and buffer windows follow the published tables."""
    here = chip(Generation.CAYMAN)
    assert [here.rel_queue_idx(queue) for queue in range(0xA, 0x10)] == [None, 0, 1, 2, None, 3]
    assert [here.queue_bundle_id_for_qset(qset) for qset in (0, 3, 4)] == [0, 0, 4]
    assert [here.seng_idx_from_tpb_idx(tpb) for tpb in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [here.die_idx_from_tpb_idx(tpb) for tpb in (3, 4)] == [0, 1]
    windows = (0x2000000000, 0x2001FFFFFF, 0x2002000000, 0x807000000000)
    assert [here.is_address_in_sbuf(address) for address in windows] == [True, True, False, True]
    assert here.inter_rdh_fold_n("any", "arguments") == 2


def test_p2p_port() -> None:
    """The port to a neighbour is its place in the table; to anybody else it is 12, invalid."""
    here = chip(Generation.CAYMAN)
    assert [here.p2p_port(0, 0, target) for target in (12, 1, 3, 4, 5, 0)] == [0, 1, 2, 3, 12, 12]


def test_unpublished_slots_say_so() -> None:
    """A slot whose body is not public answers with its name, never with a number."""
    with pytest.raises(NotPublished, match="get_barrier_sem_mapping"):
        chip(Generation.CAYMAN).barrier_sem_mapping(0, 1)


def test_asked_of_the_class() -> None:
    """The class itself shows the descriptor, as documentation tools expect."""
    assert isinstance(Chip.resource_pool, Forward)


def test_every_slot_has_one_accessor() -> None:
    """The inventory lists each slot once, with the shape that S4 gives to its kind."""
    rows = {row.slot: row for row in inventory.rows()}
    assert set(rows) == {each.name for each in KNOWN.values()}
    assert rows["get_p2p_port"].shape == "A"
    assert rows["get_resource_pool"].shape == "B"
    assert rows["get_max_links_per_pod_port"].shape == "C"
    assert rows["get_mesh_max_folds"].answers["mariana"] == "8 (16 behind a switch)"
    assert rows["is_address_in_sbuf"].accessor == "encd_arch_is_address_in_sbuf"


def test_driver_table_is_another_object() -> None:
    """The driver's 61 slots are not the fabric's 93, and num_tpb is its slot 4."""
    assert (DRIVER_SLOTS, DRIVER_BYTES, NUM_TPB_OFFSET) == (61, 488, 32)
    drivers = {each.name: chip(each).layout.driver for each in Generation}
    assert {name: (d.num_tpb, d.num_topsp, d.num_seng) for name, d in drivers.items()} == {
        "SUNDA": (2, 6, 2),
        "CAYMAN": (8, 16, 4),
        "MARIANA": (8, 16, 4),
    }
    assert not isinstance(drivers["SUNDA"], OpsTable)


@pytest.mark.parametrize(("text", "generation"), [("Cayman", 3), ("4", 4), ("sunda", 2)])
def test_generation_by_name_or_number(text: str, generation: int) -> None:
    """A generation has a name and a number."""
    assert inventory.generation_named(text) == generation


def test_unknown_generation_names_the_nearest() -> None:
    """A misspelt generation is answered with the nearest name."""
    with pytest.raises(UnknownGeneration, match="did you mean 'mariana'"):
        inventory.generation_named("marianna")


def test_null_slot_quotes_its_guard() -> None:
    """A NULL slot raises the expression that its accessor guards with (D52)."""
    with pytest.raises(SlotUnset, match=r"s\.get_max_links_per_pod_port"):
        chip(Generation.SUNDA).max_links_per_pod_port()
