"""The virtual layout: which chip, worker and sync processors a virtual core stands for (S4 §2).

Plain arithmetic, alike on every generation (`nec_vil_*`); its counts come from the driver's table
and never from the fabric's.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankmuster.arch.driver import DriverTable
from rankmuster.errors import InvalidCluster, InvariantError

MAX_VIRTUAL_CORES = 256  # MAX_VIRTUAL_TPB, NEC_MAX_DEVICES
CORE_SIZES = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualCore:
    """`virtual_core_t`: a virtual core and the physical cores it is made of."""

    nec_dev: int
    tpbs: tuple[int, ...]  # device_tpb_idx of each, counted over all chips of the node


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """`mla_t`: one chip, by its index in the node."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncProcessor:
    """One TopSP, by its chip and its index on that chip."""

    mla: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualLayout:
    """How the virtual cores of a node map onto its chips.

    `core_size` physical cores make a virtual one (LNC). `first_host_core` is where a process that
    sees only some cores begins: it counts its own from 0. Raises InvalidCluster for sizes that
    cannot be.
    """

    driver: DriverTable
    core_size: int
    chips: int = 1
    first_host_core: int = 0

    def __post_init__(self) -> None:
        if self.core_size not in CORE_SIZES or self.driver.num_tpb % self.core_size:
            raise InvalidCluster(
                f"logical-core size {self.core_size} does not fit a chip of"
                f" {self.driver.num_tpb} cores",
                fix=f"use one of {', '.join(map(str, CORE_SIZES))}",
            )
        if self.chips < 1:
            raise InvalidCluster(f"a node has at least one chip, not {self.chips}")

    @property
    def num_vcores(self) -> int:
        """Virtual cores of the node."""
        return min(self.chips * self.num_vcores_per_mla(), MAX_VIRTUAL_CORES)

    def virtual_core(self, nec_dev: int) -> VirtualCore | None:
        """The virtual core, or None where the node has none of this id."""
        if not 0 <= nec_dev < self.num_vcores:
            return None
        first = nec_dev * self.core_size
        return VirtualCore(nec_dev=nec_dev, tpbs=tuple(range(first, first + self.core_size)))

    def _known_core(self, nec_dev: int) -> VirtualCore:
        vcore = self.virtual_core(nec_dev)
        if vcore is None:
            raise InvariantError(f"nec_vil.c: vcore != NULL, for virtual core {nec_dev}")
        return vcore

    def num_vcores_per_mla(self) -> int:
        """Virtual cores (workers) of one chip (`nec_vil_get_num_vcores_per_mla`)."""
        return self.driver.num_tpb // self.core_size

    def vcoreid_rel_mla(self, nec_dev: int) -> int:
        """A core's number inside its chip (`nec_vil_get_vcoreid_rel_mla`)."""
        first = self._known_core(nec_dev).tpbs[0]
        return (first // self.core_size) % self.num_vcores_per_mla()

    def mla_idx(self, nec_dev: int) -> int:
        """The chip that owns a core (`nec_vil_get_mla_idx`)."""
        return self._known_core(nec_dev).tpbs[0] // self.driver.num_tpb

    def mla(self, nec_dev: int) -> Mla:
        """The chip itself (`nec_vil_get_mla`)."""
        return Mla(index=self.mla_idx(nec_dev))

    def nec_dev_for_host_nec_dev(self, host_nec_dev: int) -> int:
        """A host-wide core id as this process counts (our reading of the name)."""
        nec_dev = host_nec_dev - self.first_host_core
        return self._known_core(nec_dev).nec_dev

    def num_topsp_per_vcore(self) -> int:
        """Sync processors of one worker (`nec_vil_get_num_topsp_per_vcore`, D53)."""
        return self.driver.num_topsp // self.num_vcores_per_mla()

    def topsp_idx(self, nec_dev: int, rel_topsp_idx: int) -> int:
        """A worker's n-th sync processor as an index on its chip (`nec_vil_get_topsp_idx`)."""
        return self.vcoreid_rel_mla(nec_dev) * self.num_topsp_per_vcore() + rel_topsp_idx

    def topsp(self, nec_dev: int, rel_topsp_idx: int) -> SyncProcessor | None:
        """That sync processor itself, None where the worker has no such (`nec_vil_get_topsp`)."""
        known = self.virtual_core(nec_dev) is not None
        if not known or not 0 <= rel_topsp_idx < self.num_topsp_per_vcore():
            return None
        index = self.topsp_idx(nec_dev, rel_topsp_idx)
        return SyncProcessor(mla=self.mla_idx(nec_dev), index=index)

    def num_dma_per_vcore(self) -> int:
        """DMA engines of one worker (`nec_vil_get_num_dma_per_vcore`, facts §3.2)."""
        return self.driver.dma_per_tpb * self.core_size
