"""Who the members of a communicator are and where they sit (`enc_peer_info`, `enc_comm_info`).

Plain values, worked out from what each member said about itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class PeerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One member: its device, and the core, chip and machine behind it (`enc_peer_info`).

    `pod_type` 0 says that the machine is in no pod; `reservation_id` names its pod.
    """

    device: int
    neuron_dev: int
    rid: int
    tpb_index: int
    pod_type: int
    pod_node_id: int
    reservation_id: int
    host: str
    pid: int


class CommInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator as one member sees it (`enc_comm_info`; `nccl_comm_info` adds the first two).

    Nodes are machines, numbered in rank order. Racks are not known: `local_rack_rank_n` counts the
    machine's own ranks.
    """

    cluster_id: int
    epoch: int
    neuron_dev: int
    rank: int
    rank_n: int
    local_rank_n: int
    local_rack_rank_n: int
    node: int
    node_n: int
    enable_pod: bool
    use_net: bool
    pod: int
    pod_n: int
    pod_node: int
    pod_node_n: int
    peers: tuple[PeerInfo, ...] = ()


def describe(peers: Sequence[PeerInfo], rank: int, *, cluster_id: int, epoch: int) -> CommInfo:
    """The communicator of *peers*, in rank order, as *rank* sees it."""
    me = peers[rank]
    hosts = list(dict.fromkeys(peer.host for peer in peers))
    local_rank_n = sum(peer.host == me.host for peer in peers)
    in_pods = [peer for peer in peers if peer.pod_type]
    pods = list(dict.fromkeys(peer.reservation_id for peer in in_pods))
    nodes_of_pod = {p.pod_node_id for p in in_pods if p.reservation_id == me.reservation_id}
    return CommInfo(
        cluster_id=cluster_id,
        epoch=epoch,
        neuron_dev=me.neuron_dev,
        rank=rank,
        rank_n=len(peers),
        local_rank_n=local_rank_n,
        local_rack_rank_n=local_rank_n,
        node=hosts.index(me.host),
        node_n=len(hosts),
        enable_pod=bool(me.pod_type),
        use_net=len(hosts) > 1,
        pod=pods.index(me.reservation_id) if me.pod_type else 0,
        pod_n=len(pods),
        pod_node=me.pod_node_id if me.pod_type else 0,
        pod_node_n=len(nodes_of_pod) if me.pod_type else 0,
        peers=tuple(peers),
    )
