"""The ops table of the collectives fabric: which question stands at which byte offset.

The offset is a slot's identity (S4 §1); the name is for people. Only slots with evidence are
listed, each with its source. Knows no chip: the generations fill it in.
"""

# ruff: noqa: RUF009 a slot is a dataclass field that carries its offset
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rankmuster.errors import InvariantError

TABLE_BYTES = 744  # soc_struct_t: 93 pointers (S4 abstract, facts §1.6)
POINTER_BYTES = 8
SLOTS = TABLE_BYTES // POINTER_BYTES
assert SLOTS == 93

# seed: S4 cites the slot; wiki: the facts page alone has it; choice: its offset is not public.
Evidence = Literal["seed", "wiki", "choice"]
Leaf = Callable[..., Any] | None


class SlotUnset(InvariantError):
    """This chip generation leaves the slot NULL."""


def slot(offset: int, evidence: Evidence, *, guard: str = "", note: str = "") -> Any:
    """A member at a byte offset, NULL until a generation fills it.

    Only a slot with a *guard*, the expression that its accessor asserts, may stay NULL for a whole
    generation; any other is filled by the time a `Chip` is made from the table.
    """
    place = {"offset": offset, "evidence": evidence, "guard": guard, "note": note}
    return field(default=None, metadata=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsTable:
    """One generation's answers about the collectives fabric (`soc_struct_t`)."""

    get_p2p_port_fold_n: Leaf = slot(16, "wiki")
    get_p2p_port_alloc_tbl_entry: Leaf = slot(112, "seed")
    get_p2p_port: Leaf = slot(120, "seed", note="answers from the neighbour tables")
    get_peer_rid: Leaf = slot(128, "choice", note="offset not public; ours lies in +112..+296")
    get_pds_address: Leaf = slot(136, "seed", note="asked as switch_v1_address")
    set_peer_rid: Leaf = slot(144, "wiki")
    get_mesh_dma_engine_id_from_tbl: Leaf = slot(152, "wiki")
    get_resource_pool: Leaf = slot(200, "seed")
    get_dma_alloc_bitmap: Leaf = slot(280, "wiki")
    get_max_dma_queue_bundles: Leaf = slot(288, "wiki")
    get_apb_bcast_m2s_offsets: Leaf = slot(304, "seed")
    get_queue_bundle_id_for_qset: Leaf = slot(336, "wiki")
    get_max_links_per_pod_port: Leaf = slot(368, "seed", guard="s.get_max_links_per_pod_port")
    get_evt_accel_addr: Leaf = slot(384, "wiki")
    is_address_in_sbuf: Leaf = slot(392, "wiki")
    get_num_sb_ports: Leaf = slot(424, "wiki")
    get_pod_port: Leaf = slot(432, "wiki")
    get_ncfw_configs_sz: Leaf = slot(496, "seed")
    max_mesh_events: Leaf = slot(504, "seed")
    ctrl_spad_offset: Leaf = slot(520, "seed")
    slot_spad_offset: Leaf = slot(528, "seed")
    get_inter_rdh_fold_n: Leaf = slot(544, "wiki", note="sunda's value was not swept: a guess")
    get_inter_rdh_dma_id: Leaf = slot(552, "wiki")
    get_valid_sbuf_partition_size: Leaf = slot(560, "wiki")
    get_num_sbuf_partitions: Leaf = slot(576, "wiki", note="an unsigned byte: 128, not -128")
    get_num_sengines_per_mla: Leaf = slot(584, "wiki")
    get_barrier_sem_mapping: Leaf = slot(600, "wiki", note="a misprint elsewhere says +258 (D60)")
    get_seng_rel_devid: Leaf = slot(
        616, "seed", guard="s.get_seng_rel_devid", note="which generation lacks it is a guess"
    )
    get_rel_queue_idx: Leaf = slot(632, "wiki")
    get_die_idx_from_tpb_idx: Leaf = slot(
        640,
        "seed",
        guard="s.get_die_idx_from_tpb_idx",
        note="which generation lacks it is a guess: sunda has one die",
    )
    get_seng_idx_from_tpb_idx: Leaf = slot(648, "wiki")
    get_switch_exit_port: Leaf = slot(664, "seed")
    get_max_devs: Leaf = slot(680, "wiki")
    get_mesh_max_folds: Leaf = slot(736, "seed")

    def at(self, offset: int) -> Callable[..., Any]:
        """The leaf at *offset*. Raises SlotUnset with the slot's guard where it is NULL."""
        here = next(each for each in fields(self) if each.metadata["offset"] == offset)
        leaf: Leaf = getattr(self, here.name)
        if leaf is None:
            guard = here.metadata["guard"] or here.name
            raise SlotUnset(f"{guard}: +{offset} is NULL on this generation")
        return leaf

    def missing(self) -> tuple[str, ...]:
        """The slots that are NULL and may not be."""
        known = SlotInfo.of(type(self)).values()
        return tuple(s.name for s in known if not s.guard and getattr(self, s.name) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInfo:
    """What is known about one slot, whatever the generation."""

    offset: int
    name: str
    evidence: Evidence
    guard: str
    note: str

    @property
    def index(self) -> int:
        """The slot's number in the table."""
        return self.offset // POINTER_BYTES

    @staticmethod
    def of(table: type[OpsTable]) -> dict[int, SlotInfo]:
        """Every known slot of *table* by offset."""
        return {f.metadata["offset"]: SlotInfo(name=f.name, **f.metadata) for f in fields(table)}


KNOWN = SlotInfo.of(OpsTable)
assert len(KNOWN) == len(fields(OpsTable)), "two slots share an offset"
assert all(offset % POINTER_BYTES == 0 for offset in KNOWN)
assert all(0 <= offset < TABLE_BYTES for offset in KNOWN)
