"""Cayman (arch 3: trn2): its table and nothing else. Values: facts §1.6."""

from __future__ import annotations

from dataclasses import replace

from rankmuster.arch import common
from rankmuster.arch.common import SHARED, Constant, Unpublished
from rankmuster.arch.driver import CAYMAN as DRIVER
from rankmuster.arch.fabric import Fabric
from rankmuster.arch.slots import OpsTable

_MESHES = (0x2000000000, 0x3000000000, 0x6000000000, 0x7000000000)
SBUF_BASES = (*_MESHES, *(base | 0x800000000000 for base in _MESHES))

TABLE = replace(
    SHARED,
    get_valid_sbuf_partition_size=Constant(0x38000),
    get_num_sengines_per_mla=Constant(DRIVER.num_seng),
    get_die_idx_from_tpb_idx=common.die_idx_from_tpb_idx,
    get_seng_rel_devid=Unpublished("get_seng_rel_devid"),
    get_inter_rdh_dma_id=common.inter_rdh_dma_id((4, 5, 0)),
    is_address_in_sbuf=common.sbuf_windows(SBUF_BASES),
    get_max_links_per_pod_port=Constant(1),
    get_max_devs=Constant(16),
    get_mesh_max_folds=Constant(8),
)


def table(fabric: Fabric) -> OpsTable:
    """The table of a node wired like *fabric* (`cayman_arch_init`)."""
    return replace(TABLE, **common.wired(fabric))
