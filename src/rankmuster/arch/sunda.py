"""Sunda (arch 2: trn1, inf2): its table and nothing else. Values: facts §1.6."""

from __future__ import annotations

from dataclasses import replace

from rankmuster.arch import common
from rankmuster.arch.common import SHARED, Constant, Unpublished
from rankmuster.arch.driver import SUNDA as DRIVER
from rankmuster.arch.fabric import Fabric
from rankmuster.arch.slots import OpsTable

# NULL here: max_links_per_pod_port (there are no pods), seng_rel_devid, die_idx_from_tpb_idx.
TABLE = replace(
    SHARED,
    get_valid_sbuf_partition_size=Constant(0x30000),
    get_num_sengines_per_mla=Constant(DRIVER.num_seng),
    get_inter_rdh_dma_id=common.inter_rdh_dma_id((0, 1, 0)),
    is_address_in_sbuf=Unpublished("is_address_in_sbuf"),
    get_max_devs=Constant(16),
    get_mesh_max_folds=Constant(8),
)


def table(fabric: Fabric) -> OpsTable:
    """The table of a node wired like *fabric* (`sunda_arch_init`)."""
    return replace(TABLE, **common.wired(fabric))
