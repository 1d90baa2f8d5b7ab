"""Virtual cores: each on one chip and worker, sync processors apart, every index covered."""

from __future__ import annotations

import pytest

from rankmuster.arch.chip import Generation, chip_for, silicon
from rankmuster.arch.fabric import INF2_RING, SINGLE, TRN1_TORUS, TRN2_TORUS, TRN3_SLED
from rankmuster.arch.layout import Mla, SyncProcessor, VirtualLayout
from rankmuster.errors import InvalidCluster, InvariantError

FABRICS = [TRN1_TORUS, TRN2_TORUS, INF2_RING, TRN3_SLED, SINGLE]
EVERY = [(generation, size) for generation in Generation for size in (1, 2)]


@pytest.mark.parametrize(("generation", "core_size"), EVERY)
def test_cores_cover_chips(generation: Generation, core_size: int) -> None:
    """Virtual cores and pairs of chip and worker are one to one, on every fabric."""
    for fabric in FABRICS:
        chip = chip_for(generation, fabric, core_size=core_size)
        workers = chip.num_workers_per_mla()
        cores = range(chip.layout.num_vcores)
        places = [(chip.mla_device_idx(core), chip.worker_idx_rel_mla(core)) for core in cores]
        assert places == [(mla, worker) for mla in range(fabric.chips) for worker in range(workers)]


@pytest.mark.parametrize(("generation", "core_size"), EVERY)
def test_sync_processors_cover_the_chip(generation: Generation, core_size: int) -> None:
    """The workers of a chip share its sync processors out, none twice and none left over."""
    chip = chip_for(generation, SINGLE, core_size=core_size)
    each = range(chip.num_topsp_per_worker())
    cores = range(chip.layout.num_vcores)
    taken = [chip.topsp_idx_for_worker(core, nth) for core in cores for nth in each]
    assert taken == list(range(silicon(generation).driver.num_topsp))


@pytest.mark.parametrize(
    ("generation", "core_size", "per_worker"),
    [(2, 1, 3), (3, 1, 2), (3, 2, 4), (4, 1, 2), (4, 2, 4)],
)
def test_sync_processors_per_worker(generation: int, core_size: int, per_worker: int) -> None:
    """3 on v2, 2 or 4 on the others (D53)."""
    assert chip_for(generation, SINGLE, core_size=core_size).num_topsp_per_worker() == per_worker


def test_second_chip() -> None:
    """A core beyond the first chip is counted modulo the cores of one (D54)."""
    chip = chip_for(Generation.CAYMAN, TRN2_TORUS, core_size=2)
    assert chip.mla_device(6) == Mla(index=1)
    assert chip.worker_idx_rel_mla(6) == 2
    assert chip.topsp_for_worker(6, 3) == SyncProcessor(mla=1, index=11)
    assert chip.layout.num_dma_per_vcore() == 32


def test_host_cores_count_from_the_first_visible() -> None:
    """A process that sees cores 8 and up calls core 8 its own 0."""
    layout = VirtualLayout(driver=silicon(3).driver, core_size=2, chips=16, first_host_core=8)
    assert layout.nec_dev_for_host_nec_dev(9) == 1
    with pytest.raises(InvariantError, match="vcore"):
        layout.nec_dev_for_host_nec_dev(7)


@pytest.mark.parametrize("core_size", [0, -1, 3, 4, 8])
def test_impossible_core_size(core_size: int) -> None:
    """A logical-core size other than 1 and 2 is refused by name."""
    with pytest.raises(InvalidCluster, match=f"logical-core size {core_size}"):
        chip_for(Generation.CAYMAN, SINGLE, core_size=core_size)


def test_no_chips() -> None:
    """A node without chips has no layout."""
    with pytest.raises(InvalidCluster, match="at least one chip"):
        VirtualLayout(driver=silicon(3).driver, core_size=1, chips=0)


@pytest.mark.parametrize("nec_dev", [-1, 128, 256, 1 << 31])
def test_unknown_core(nec_dev: int) -> None:
    """An id that no core has breaks the invariant that the original asserts."""
    with pytest.raises(InvariantError, match="vcore != NULL"):
        chip_for(Generation.CAYMAN, TRN2_TORUS).worker_idx_rel_mla(nec_dev)
