"""The tables of the arch layer: function pointers by slot, and one node's chip maps (S4)."""

from __future__ import annotations

from rankmuster.abi.layout import at, declare
from rankmuster.arch.devices import (
    MAX_MLA_DEVICES,
    MLA_TO_RID_OFFSET,
    PORT_MAP_OFFSET,
    RID_TO_MLA_OFFSET,
)
from rankmuster.arch.driver import DRIVER_BYTES, NUM_TPB_OFFSET
from rankmuster.arch.fabric import PORTS
from rankmuster.arch.slots import KNOWN, TABLE_BYTES

DEVICE_MAPS = declare(
    "device_id_maps",
    772,
    at(0, "device_id_maps_build", "bool"),
    at(
        PORT_MAP_OFFSET,
        "port_map",
        f"i32[{MAX_MLA_DEVICES * PORTS}]",
        note=f"chip by {PORTS} ports; -2: no peer, -3: a peer that is not visible",
    ),
    at(MLA_TO_RID_OFFSET, "mla_to_rid", f"i32[{MAX_MLA_DEVICES}]", note="-4: none"),
    at(RID_TO_MLA_OFFSET, "rid_to_mla", f"i32[{MAX_MLA_DEVICES}]", note="-3: none"),
    about="chips, routing ids and ports of one node",
)

RESOURCE_POOL = declare(
    "cc_resource_pool_context",
    868,
    at(96, "device_id_maps", DEVICE_MAPS),
    about="known up to its maps, its size is not public",
)

FABRIC_OPS = declare(
    "soc_struct_t",
    TABLE_BYTES,
    *(at(offset, each.name, "void*", note=each.note) for offset, each in sorted(KNOWN.items())),
    about="the ops table of one chip generation",
)

DRIVER_OPS = declare(
    "tdrv_arch_ops",
    DRIVER_BYTES,
    at(NUM_TPB_OFFSET, "get_num_tpb", "void*"),
    about="the device driver's ops table, of which one slot is public",
)
