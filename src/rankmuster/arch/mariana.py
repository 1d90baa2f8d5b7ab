"""Mariana (arch 4: trn3): its table and nothing else. Values: facts §1.6."""

from __future__ import annotations

from dataclasses import replace

from rankmuster.arch import common
from rankmuster.arch.cayman import SBUF_BASES
from rankmuster.arch.common import SHARED, Constant, Unpublished
from rankmuster.arch.driver import MARIANA as DRIVER
from rankmuster.arch.fabric import Fabric
from rankmuster.arch.slots import OpsTable

TABLE = replace(
    SHARED,
    get_valid_sbuf_partition_size=Constant(0x40000),
    get_num_sengines_per_mla=Constant(DRIVER.num_seng),
    get_die_idx_from_tpb_idx=common.die_idx_from_tpb_idx,
    get_seng_rel_devid=Unpublished("get_seng_rel_devid"),
    get_inter_rdh_dma_id=common.inter_rdh_dma_id((4, 5, 0)),
    is_address_in_sbuf=common.sbuf_windows(SBUF_BASES),
    get_max_links_per_pod_port=Constant(2),
    get_max_devs=Constant(16),
    get_mesh_max_folds=Constant(8),
)


def table(fabric: Fabric) -> OpsTable:
    """The table of a node wired like *fabric* (`mariana_arch_init`).

    Behind a switch a node may see 32 devices and fold 16 times.
    """
    wide = {"get_max_devs": Constant(32), "get_mesh_max_folds": Constant(16)}
    return replace(TABLE, **common.wired(fabric), **(wide if fabric.switch_v1 else {}))
