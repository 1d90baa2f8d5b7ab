"""Building and asking the device maps of a node's virtual cores (`arch_device_mapping.c`, S4 §3).

Every question first checks what the original asserts: a real core, a chip below 32, maps built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankmuster.arch.chip import NETWORK_DEVICE, Chip
from rankmuster.arch.devices import (
    MAX_MLA_DEVICES,
    NO_MLA,
    NO_PEER,
    DeviceMaps,
    ResourcePool,
    in_server,
    own_chips,
    server_id,
)
from rankmuster.arch.fabric import PORTS
from rankmuster.errors import InvalidCluster, InvariantError

EINVAL = 22


def build_port_and_rid_map(
    chip: Chip,
    local_nec_dev: int,
    mla_indexes: Sequence[int],
    host_device_ids: Sequence[int],
    host_rids: Mapping[int, int] | None,
) -> DeviceMaps:
    """Build the maps of one local device from the driver's host id -> routing id map.

    Raises InvariantError for the network pseudo-device and for a core that the node has not,
    InvalidCluster where the driver has no map or it does not fit this instance. The maps stay
    unbuilt then.
    """
    if local_nec_dev == NETWORK_DEVICE:
        raise InvariantError("arch_device_mapping.c:53: local_nec_dev_id != NEC_NET_MLA_DEV")
    chips = own_chips(mla_indexes, host_device_ids)
    if not host_rids or any(host not in host_rids for host in chips.values()):
        raise InvalidCluster(
            "Failed to retrieve host device ID to routing ID map from the driver"
            f" for host devices {sorted(chips.values())}"
        )
    pool: ResourcePool = chip.resource_pool(local_nec_dev)
    own_mla = chip.layout.mla_idx(local_nec_dev)
    rids = {mla: host_rids[host] for mla, host in chips.items()}
    pool.maps = DeviceMaps.build(
        rids,
        chip.peer_rid,
        num_mlas=chip.fabric.chips,
        switch_v1=chip.fabric.switch_v1,
    )
    pool.rid = rids.get(own_mla, next(iter(rids.values()), 0))
    return pool.maps


def _maps(chip: Chip, nec_dev: int, mla: int = 0) -> DeviceMaps:
    maps: DeviceMaps = chip.resource_pool(nec_dev).maps
    if not 0 <= mla < MAX_MLA_DEVICES:
        raise InvariantError(f"mla_idx < MAX_MLA_DEVICES, which is {MAX_MLA_DEVICES}, not {mla}")
    if not maps.built:
        raise InvariantError(f"maps->device_id_maps_build, for virtual core {nec_dev}")
    return maps


def is_mla_available(chip: Chip, nec_dev: int, mla: int) -> bool:
    """Whether the chip is one that this node sees."""
    return _maps(chip, nec_dev, mla).mla_to_rid[mla] is not None


def mla_idx_to_rid(chip: Chip, nec_dev: int, mla: int) -> int:
    """The chip's routing id. Raises InvariantError for a chip that is not available."""
    rid = _maps(chip, nec_dev, mla).mla_to_rid[mla]
    if rid is None:
        raise InvariantError(f"maps.mla_to_rid[mla] >= 0, for chip {mla}")
    return rid


def rid_to_mla_idx(chip: Chip, nec_dev: int, rid: int) -> int:
    """The chip behind a routing id, -3 where no visible chip has it.

    On the switch family *rid* is a whole one and must lie in the device's own server (D51).
    """
    maps = _maps(chip, nec_dev)
    if chip.fabric.switch_v1:
        my_rid = chip.resource_pool(nec_dev).rid
        if server_id(rid) != server_id(my_rid):
            raise InvariantError(
                f"encd_get_server_id(rid) == encd_get_server_id(my_rid): routing id {rid}"
                f" lies in server {server_id(rid)}, this device in {server_id(my_rid)}"
            )
        rid = in_server(rid)
    if not 0 <= rid < MAX_MLA_DEVICES:
        raise InvariantError(f"routing id {rid} is not below {MAX_MLA_DEVICES}")
    found = maps.rid_to_mla[rid]
    return NO_MLA if found is None else found


def get_peer_mla_idx(chip: Chip, nec_dev: int, mla: int, port: int) -> int:
    """The chip behind a port: -22 where there is none, -3 where the node does not see it (D48)."""
    maps = _maps(chip, nec_dev, mla)
    if not 0 <= port < PORTS:
        raise InvariantError(f"port {port} is not one of the {PORTS} of a chip")
    peer = maps.port_map[mla][port]
    if peer is None:
        peer = NO_MLA if (mla, port) in maps.hidden else NO_PEER
    return -EINVAL if peer == NO_PEER else peer


def peer_directly_connected(chip: Chip, nec_dev: int, mla: int, peer: int) -> bool:
    """Whether two chips are one, or joined by a port."""
    ports = _maps(chip, nec_dev, mla).port_map[mla]
    return mla == peer or peer in ports
