"""The device driver's own table, a different object from the fabric's (S4 abstract and §2).

The virtual layout takes its counts from here and never from `slots.OpsTable`.
"""

from __future__ import annotations

from dataclasses import dataclass

DRIVER_SLOTS = 61
DRIVER_BYTES = 488
assert DRIVER_SLOTS * 8 == DRIVER_BYTES
NUM_TPB_OFFSET = 4 * 8  # the one slot whose place is public: number 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTable:
    """What `tdrv_arch_ops` says about one chip (facts §1.6, §3.2).

    `num_tpb` are physical cores, `num_topsp` sync processors, `num_seng` sequencer engines,
    `tpb_per_hbm` cores that share a memory, `dma_per_tpb` DMA engines of a core.
    """

    num_tpb: int
    num_topsp: int
    num_seng: int
    tpb_per_hbm: int
    dma_per_tpb: int = 16


SUNDA = DriverTable(num_tpb=2, num_topsp=6, num_seng=2, tpb_per_hbm=1)
CAYMAN = DriverTable(num_tpb=8, num_topsp=16, num_seng=4, tpb_per_hbm=2)
MARIANA = DriverTable(num_tpb=8, num_topsp=16, num_seng=4, tpb_per_hbm=2)
