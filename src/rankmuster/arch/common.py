"""Bodies that the generations share, and the leaves that the wiring decides.

A shared body is the same object in every table (S4 §1). May not know a generation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from rankmuster.arch.devices import ResourcePools
from rankmuster.arch.fabric import Fabric
from rankmuster.arch.slots import OpsTable
from rankmuster.errors import MusterError

HW_PORT_INVALID = 12  # TDRV_HW_PORT_INVALID
SBUF_WINDOW_BYTES = 0x2000000
QUEUE_INDEX = {0xB: 0, 0xC: 1, 0xD: 2, 0xF: 3}  # 0xE is missing


class NotPublished(MusterError):
    """The generation fills this slot, but no public source says with what."""


@dataclass(frozen=True, slots=True)
class Unpublished:
    """The leaf of a slot that is filled with something nobody has published."""

    name: str

    def __call__(self, *_: object) -> NoReturn:
        """Say so: an invented answer would look like a fact."""
        raise NotPublished(f"no public source says what {self.name} answers")


def arch_common_get_ncfw_configs_sz() -> int:
    """Bytes of the firmware's configuration block."""
    return 0x4280


def arch_common_max_mesh_events() -> int:
    """Events that a mesh may use."""
    return 108


def arch_common_ctrl_spad_offset() -> int:
    """Offset of the control scratchpad."""
    return 17104


def arch_common_slot_spad_offset() -> int:
    """Offset of the slot scratchpad."""
    return 17056


def num_sb_ports() -> int:
    """Ports of the state buffer."""
    return 16


def num_sbuf_partitions() -> int:
    """Partitions of the state buffer, an unsigned byte in the original."""
    return 128


def seng_idx_from_tpb_idx(tpb: int) -> int:
    """Two cores share a sequencer engine."""
    return tpb >> 1


def die_idx_from_tpb_idx(tpb: int) -> int:
    """Four cores share a die."""
    return tpb >> 2


def rel_queue_idx(queue: int) -> int | None:
    """A hardware queue's place in its engine; None where the original answers NRT_INVALID."""
    return QUEUE_INDEX.get(queue)


def queue_bundle_id_for_qset(qset: int) -> int:
    """Queue sets above 3 live in the second bundle."""
    return 4 * (qset > 3)


def inter_rdh_dma_id(engines: tuple[int, int, int]) -> Callable[[int], int]:
    """The DMA engine that joins two reduction halves; -1 beyond the third."""
    return lambda index: engines[index] if 0 <= index < len(engines) else -1


@dataclass(frozen=True, slots=True)
class Constant:
    """A leaf that answers `value` whatever it is asked."""

    value: int

    def __call__(self, *_: object) -> int:
        """The value."""
        return self.value


def sbuf_windows(bases: tuple[int, ...]) -> Callable[[int], bool]:
    """Whether an address lies in one of the state buffer's windows."""
    return lambda address: any(base <= address < base + SBUF_WINDOW_BYTES for base in bases)


def p2p_port(fabric: Fabric) -> Callable[[int, int, int], int]:
    """The port by which chip *source* reaches chip *target* directly, 12 where none does."""

    def port(_local: int, source: int, target: int) -> int:
        found = fabric.port_to(source, target)
        return HW_PORT_INVALID if found is None else found

    return port


SHARED = OpsTable(
    get_ncfw_configs_sz=arch_common_get_ncfw_configs_sz,
    max_mesh_events=arch_common_max_mesh_events,
    ctrl_spad_offset=arch_common_ctrl_spad_offset,
    slot_spad_offset=arch_common_slot_spad_offset,
    get_num_sb_ports=num_sb_ports,
    get_num_sbuf_partitions=num_sbuf_partitions,
    get_seng_idx_from_tpb_idx=seng_idx_from_tpb_idx,
    get_rel_queue_idx=rel_queue_idx,
    get_queue_bundle_id_for_qset=queue_bundle_id_for_qset,
    get_inter_rdh_fold_n=Constant(2),
    **{
        name: Unpublished(name)
        for name in (
            *("get_p2p_port_fold_n", "get_p2p_port_alloc_tbl_entry", "get_pds_address"),
            *("set_peer_rid", "get_mesh_dma_engine_id_from_tbl", "get_dma_alloc_bitmap"),
            *("get_max_dma_queue_bundles", "get_apb_bcast_m2s_offsets", "get_evt_accel_addr"),
            *("get_pod_port", "get_barrier_sem_mapping", "get_switch_exit_port"),
        )
    },
)


def wired(fabric: Fabric) -> dict[str, Any]:
    """The leaves that the wiring of the node decides, for any generation.

    In the original they ask global state for the instance family; here the table is made for one
    fabric, so that two nodes can live in one process.
    """
    return {
        "get_p2p_port": p2p_port(fabric),
        "get_peer_rid": fabric.peer_rid,
        "get_resource_pool": ResourcePools().of,
    }
