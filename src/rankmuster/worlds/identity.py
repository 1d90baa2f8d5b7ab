"""A world's place in the collective world: fixed when it is made, never changed (S0 §1)."""

from __future__ import annotations

from dataclasses import dataclass

from rankmuster import messages
from rankmuster.arch.pods import PodType
from rankmuster.errors import WorldMismatch

U32 = 0xFFFF_FFFF
SWITCH_POD_NODES = 4  # hard-coded in the original, whatever the pod's size (S0 §6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The header of `enc_glb_comm`, field by field under its own names.

    `g_device_id` is a global id below `g_device_cnt`; `nec_dev_id` a core of this process.
    """

    g_device_id: int
    g_device_cnt: int
    ctx_id: int
    vtpb_idx: int
    nec_dev_id: int
    mla_idx: int
    host_device_id: int
    routing_id: int
    virtual_server_id: int
    pod_type: int
    pod_node_id: int
    pod_sz: int
    reservation_id: int
    root_comm_id: str
    check_sigs: bool
    vcore: int  # the first physical core, for `enc_peer_info.tpb_index`


def virtual_server_of(g_device_id: int, g_device_cnt: int, virtual_server_size: int) -> int:
    """The virtual server of a device, 0 without them (facts D41). Raises `WorldMismatch`."""
    if not virtual_server_size:
        return 0
    if g_device_cnt % virtual_server_size:
        raise WorldMismatch(
            messages.NO_DIVISOR(virtual_server_size, g_device_cnt),
            fix="mend NEURON_RT_DBG_VIRTUAL_SERVER_SIZE",
        )
    return g_device_id // virtual_server_size


def check_pod(pod_type: int, pod_node_id: int, pod_sz: int) -> None:
    """S0's limits, which differ by pod type; no pod, no check (facts D40). Raises `WorldMismatch`.

    A node id of -1 arrives as the largest u32, and is refused in any pod.
    """
    if not 0 <= pod_type <= PodType.SWITCH:
        raise WorldMismatch(messages.POD_TYPE(pod_type & U32), fix="0 none, 1 P2P, 2 switch")
    if pod_type == PodType.NONE:
        return
    assert pod_type in {PodType.P2P, PodType.SWITCH}  # enc.cc:0x3EC6
    limit = pod_sz if pod_type == PodType.P2P else SWITCH_POD_NODES
    if pod_node_id & U32 >= limit:
        raise WorldMismatch(
            messages.POD_NODE(pod_node_id & U32, pod_sz, pod_type), fix=f"ids are below {limit}"
        )
