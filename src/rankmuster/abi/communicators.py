"""Communicators: the pooled node, the collective communicator, and what the library says of one.

S0 §2, facts §1.3 and §1.4. `enc_comm_info` and `enc_peer_info` are one member longer here than in
the published header: that makes up the 48 bytes between 564360 and 564408 (facts §1.1).
"""

from __future__ import annotations

from rankmuster.abi.algorithms import CHANNELS, MESH, METARING, RING
from rankmuster.abi.layout import at, declare

TOPOLOGIES = ("NULL", "4_DEVS_IN_ROW", "4_DEVS_IN_COLUMN")

NODE = declare(
    "enc_nccl_comm_node",
    88,
    at(0, "nccl_comm", "void*"),
    at(8, "key", "char*", note="the u32 ids of bootstrap_participants"),
    at(16, "key_sz", "u64"),
    at(24, "disable_graph", "bool"),
    at(25, "global_nccl_comm_node", "bool"),
    at(28, "refcnt", "i32"),
    at(32, "stream_id", "u32"),
    at(36, "context_id", "u32"),
    at(40, "num_local_participants", "u32"),
    at(44, "num_local_leaders", "u32"),
    at(48, "my_local_leader", "u32"),
    at(56, "local_participants", "u32*"),
    at(64, "local_leaders", "u32*"),
    at(72, "local_barrier", "bp_barrier*"),
    at(80, "intra_pod_interface", "bool"),
    about="one pooled communicator, shared by the groups with its participants",
)

PEER = declare(
    "enc_peer_info",
    24,
    at(0, "neuron_dev", "i32"),
    at(4, "rid", "i32"),
    at(8, "tpb_index", "i32"),
    at(12, "pod_node_id", "i32"),
    at(16, "reservation_id", "u64"),
    about="where a peer sits",
)

INFO = declare(
    "enc_comm_info",
    72,
    at(0, "neuron_dev", "i32"),
    at(4, "rank", "i32"),
    at(8, "rank_n", "i32"),
    at(12, "local_rank_n", "i32"),
    at(16, "local_rack_rank_n", "i32"),
    at(20, "node", "i32"),
    at(24, "node_n", "i32"),
    at(28, "enc_topo_mode", "i32", names=TOPOLOGIES),
    at(32, "enable_pod", "bool"),
    at(33, "use_net", "bool"),
    at(36, "pod", "i32"),
    at(40, "pod_n", "i32"),
    at(44, "pod_node", "i32"),
    at(48, "pod_node_n", "i32"),
    at(56, "peers", "enc_peer_info*"),
    about="rank, node and pod of a device in a communicator",
)

NCCL_INFO = declare(
    "nccl_comm_info",
    1376,
    at(0, "cluster_id", "u64"),
    at(8, "epoch", "u64"),
    at(16, "neuron_dev", "i32"),
    at(20, "rank", "i32"),
    at(24, "rank_n", "i32"),
    at(28, "local_rank_n", "i32"),
    at(32, "local_rack_rank_n", "i32"),
    at(36, "node", "i32"),
    at(40, "node_n", "i32"),
    at(44, "enable_pod", "bool"),
    at(45, "use_net", "bool"),
    at(48, "pod", "i32"),
    at(52, "pod_n", "i32"),
    at(56, "pod_node", "i32"),
    at(60, "pod_node_n", "i32"),
    at(64, "peers", "enc_peer_info*"),
    at(72, "channel_n", "i32"),
    at(80, "rings", RING, CHANNELS),
    at(848, "kangaring_channel_n", "i32"),
    at(856, "kangaring_paths", f"i32*[{CHANNELS}]"),
    at(1112, "mla_cycle_n", "i32"),
    at(1120, "mla_cycles", f"i32*[{CHANNELS}]"),
    about="what the collectives library answers about a communicator",
)

INTRA = declare(
    "enc_alg_hier_intra",
    136736,
    at(0, "nccl_comm_node", "enc_nccl_comm_node*"),
    at(8, "ci", INFO),
    at(80, "ring", METARING),
    at(37624, "kangaring", METARING),
    at(75168, "mesh", MESH),
    about="the level inside a node",
)

INTER = declare(
    "enc_alg_hier_inter",
    136736,
    at(0, "nccl_comm_node", "enc_nccl_comm_node*"),
    at(8, "ci", INFO),
    at(80, "ring", METARING),
    at(37624, "rdh", METARING),
    at(75168, "mesh", MESH),
    about="the level between nodes",
)

STAGE = declare(
    "enc_alg_hier_stage",
    37624,
    at(0, "nccl_comm_node", "enc_nccl_comm_node*"),
    at(8, "ci", INFO),
    at(80, "ring", METARING),
    about="one stage of the hierarchical pipeline",
)

HIERARCHY = declare(
    "enc_alg_hier",
    386368,
    at(0, "intra", INTRA),
    at(136736, "inter", INTER),
    at(273472, "pipeline", STAGE, 3),
    at(386344, "devmem_res", "void*"),
    at(386352, "comm", "enc_comm*"),
    at(386360, "drv_alg", "encd_alg_hier*"),
    about="the hierarchical algorithms of a communicator",
)

COMMUNICATOR = declare(
    "enc_comm",
    561904,
    at(0, "nccl_comm_node", "enc_nccl_comm_node*"),
    at(8, "ci", INFO),
    at(80, "id", "i32"),
    at(84, "stream_id", "i32"),
    at(88, "ring", METARING),
    at(37632, "kangaring", METARING),
    at(75176, "rdh", METARING),
    at(112720, "hier", HIERARCHY),
    at(499088, "mesh", MESH),
    at(560656, "net_conn_count", "i32"),
    at(560664, "net_connector_devmem_res", "void*[24]"),
    at(560856, "nr_channel_chunks", "i32"),
    at(560864, "chunk_size", "u64"),
    at(560872, "drv_comm", "encd_comm*"),
    at(560880, "topology", "char[1024]"),
    about="one collective communicator with all its algorithms",
)
