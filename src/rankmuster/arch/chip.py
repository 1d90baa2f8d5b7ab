"""All that the rest of the library may ask a chip: accessors of four shapes (S4 §1).

A: straight through the table. B: the network pseudo-device is refused first. C: the slot may be
NULL. D: past the table, into the virtual layout. Nothing above this package names a generation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rankmuster.arch import cayman, driver, mariana, sunda
from rankmuster.arch.driver import DriverTable
from rankmuster.arch.fabric import Fabric
from rankmuster.arch.layout import Mla, SyncProcessor, VirtualLayout
from rankmuster.arch.slots import KNOWN, OpsTable, SlotUnset
from rankmuster.errors import InvariantError, NoSyncProcessor, UnknownGeneration

NETWORK_DEVICE = 0xFFFF_FFFF  # NEC_NET_MLA_DEV: stands for the network, not for a core


def asserting(accessor: str, line: int | None) -> str:
    """Where the original asserts, with the line where that is public."""
    return f"arch.c:{line}: {accessor}" if line else f"arch.c: {accessor}"


def refuse_network_device(nec_dev: int, accessor: str, *, line: int | None = None) -> None:
    """Raise InvariantError for the network pseudo-device, in the words of the original's assert."""
    if nec_dev == NETWORK_DEVICE:
        raise InvariantError(f"{asserting(accessor, line)}: nec_dev_id != NEC_NET_MLA_DEV")


class Forward:
    """An accessor that answers from one slot. The offset decides, never the name.

    *by_device* refuses the network pseudo-device before the look-up (shape B); *name* is the
    original accessor where it is not `encd_arch_get_` and ours; *line* that of its assert.
    """

    __slots__ = ("accessor", "by_device", "line", "offset")

    def __init__(
        self, offset: int, *, by_device: bool = False, name: str = "", line: int | None = None
    ) -> None:
        assert offset in KNOWN, f"no slot is known at +{offset}"
        self.offset, self.by_device, self.line = offset, by_device, line
        self.accessor = name

    def __set_name__(self, owner: type, name: str) -> None:
        self.accessor = self.accessor or f"encd_arch_get_{name}"

    def __get__(self, chip: Chip | None, owner: type[Chip]) -> Any:
        if chip is None:  # asked of the class, as documentation tools do
            return self
        return self._guarded(chip.ops) if self.by_device else self._leaf(chip.ops)

    def _leaf(self, ops: OpsTable) -> Callable[..., Any]:
        try:
            return ops.at(self.offset)
        except SlotUnset as error:
            raise SlotUnset(f"{asserting(self.accessor, self.line)}: {error}") from None

    def _guarded(self, ops: OpsTable) -> Callable[..., Any]:
        def ask(nec_dev: int, *arguments: Any) -> Any:
            refuse_network_device(nec_dev, self.accessor, line=self.line)
            return self._leaf(ops)(nec_dev, *arguments)

        return ask

    @property
    def shape(self) -> str:
        """A, B or C, as S4 §1 names them."""
        return "B" if self.by_device else "C" if KNOWN[self.offset].guard else "A"


class Chip:
    """One node's chips of one generation, wired one way, with one logical-core size."""

    p2p_port_fold_n = Forward(16)
    p2p_port_alloc_tbl_entry = Forward(112)
    p2p_port = Forward(120)
    peer_rid = Forward(128)
    switch_v1_address = Forward(136)  # alias on purpose: the slot is get_pds_address
    set_peer_rid = Forward(144, name="encd_arch_set_peer_rid")
    mesh_dma_engine_id_from_tbl = Forward(152)
    resource_pool = Forward(200, by_device=True, line=131)
    dma_alloc_bitmap = Forward(280, by_device=True)
    max_dma_queue_bundles = Forward(288)
    apb_bcast_m2s_offsets = Forward(304)
    queue_bundle_id_for_qset = Forward(336)
    max_links_per_pod_port = Forward(368, line=267)
    evt_accel_addr = Forward(384)
    is_address_in_sbuf = Forward(392, name="encd_arch_is_address_in_sbuf")
    num_sb_ports = Forward(424)
    pod_port = Forward(432)
    ncfw_configs_sz = Forward(496)
    max_mesh_events = Forward(504)
    ctrl_spad_offset = Forward(520)
    slot_spad_offset = Forward(528)
    inter_rdh_fold_n = Forward(544)
    inter_rdh_dma_id = Forward(552)
    valid_sbuf_partition_size = Forward(560)
    num_sbuf_partitions = Forward(576)
    num_sengines_per_mla = Forward(584)
    barrier_sem_mapping = Forward(600)
    seng_rel_devid = Forward(616)
    rel_queue_idx = Forward(632)
    die_idx_from_tpb_idx = Forward(640)
    seng_idx_from_tpb_idx = Forward(648)
    switch_exit_port = Forward(664, by_device=True)
    max_devs = Forward(680, by_device=True)
    mesh_max_folds = Forward(736, by_device=True)

    def __init__(self, ops: OpsTable, layout: VirtualLayout, fabric: Fabric) -> None:
        if missing := ops.missing():
            raise InvariantError(f"required slots are NULL: {', '.join(missing)}")
        self.ops = ops
        self.layout = layout
        self.fabric = fabric

    def num_workers_per_mla(self) -> int:
        """Workers of one chip (`encd_arch_get_num_workers_per_mla`, shape D)."""
        return self.layout.num_vcores_per_mla()

    def num_topsp_per_worker(self) -> int:
        """Sync processors of one worker (`encd_arch_get_num_topsp_per_worker`, shape D)."""
        return self.layout.num_topsp_per_vcore()

    def mla_device(self, nec_dev: int) -> Mla:
        """The chip that owns a core (`encd_arch_get_mla_device`, shape D with the guard)."""
        refuse_network_device(nec_dev, "encd_arch_get_mla_device")
        return self.layout.mla(nec_dev)

    def mla_device_idx(self, nec_dev: int) -> int:
        """That chip's index (`encd_arch_get_mla_device_idx`, shape D with the guard)."""
        refuse_network_device(nec_dev, "encd_arch_get_mla_device_idx")
        return self.layout.mla_idx(nec_dev)

    def worker_idx_rel_mla(self, nec_dev: int) -> int:
        """A core's number inside its chip (`encd_arch_get_worker_idx_rel_mla`, shape D)."""
        refuse_network_device(nec_dev, "encd_arch_get_worker_idx_rel_mla")
        return self.layout.vcoreid_rel_mla(nec_dev)

    def topsp_idx_for_worker(self, nec_dev: int, rel_topsp_idx: int) -> int:
        """A worker's n-th sync processor on its chip (`encd_arch_get_topsp_idx_for_worker`)."""
        refuse_network_device(nec_dev, "encd_arch_get_topsp_idx_for_worker")
        return self.layout.topsp_idx(nec_dev, rel_topsp_idx)

    def topsp_for_worker(self, nec_dev: int, rel_topsp_idx: int) -> SyncProcessor:
        """That sync processor itself (`encd_arch_get_topsp_for_worker`).

        The one forwarder that can fail for a caller: raises NoSyncProcessor (NRT_FAILURE), which a
        bring-up handles, where all others break an invariant (S4 §2).
        """
        refuse_network_device(nec_dev, "encd_arch_get_topsp_for_worker", line=177)
        found = self.layout.topsp(nec_dev, rel_topsp_idx)
        if found is None:
            raise NoSyncProcessor(f"[nec_dev {nec_dev}] failed to get topsp")
        return found


class Generation(IntEnum):
    """What `al_hal_tpb_get_arch_type` answers."""

    SUNDA = 2
    CAYMAN = 3
    MARIANA = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Silicon:
    install: Callable[[Fabric], OpsTable]
    driver: DriverTable


_SILICON = {
    Generation.SUNDA: _Silicon(install=sunda.table, driver=driver.SUNDA),
    Generation.CAYMAN: _Silicon(install=cayman.table, driver=driver.CAYMAN),
    Generation.MARIANA: _Silicon(install=mariana.table, driver=driver.MARIANA),
}


def silicon(arch: int) -> _Silicon:
    """The two tables of a generation. Raises UnknownGeneration (`arch_init`)."""
    if arch not in _SILICON:
        raise UnknownGeneration(f"Architecture not found {arch}")
    return _SILICON[Generation(arch)]


def chip_for(arch: int, fabric: Fabric, *, core_size: int = 1) -> Chip:
    """Install the tables of generation *arch* for a node wired like *fabric*.

    Raises UnknownGeneration for an architecture number that nobody knows, and InvalidCluster for a
    logical-core size that does not fit.
    """
    found = silicon(arch)
    layout = VirtualLayout(driver=found.driver, core_size=core_size, chips=fabric.chips)
    return Chip(found.install(fabric), layout, fabric)
