"""What a communicator plans with: channels, rings and meshes (facts §1.4, §2.1)."""

from __future__ import annotations

from rankmuster.abi.layout import at, declare
from rankmuster.abi.network import HOST_MEMORY

CHANNELS = 32  # NEC_MAX_CHANNELS
KANGARING_RANKS = 256  # NEC_KANGARING_MAX_NUM_RANKS
OP_TYPES = 13  # ENC_MAX_OP_TYPES

PATTERNS = ("RING", "MESH", "INVALID")
METARING_TYPES = ("RING", "KANGARING", "SINGLE_CYCLE_RING", "RDH", "INVALID")
MESH_TYPES = ("FULL", "GROUPED", "TRN2", "SWITCH", "INVALID")

CHANNEL = declare(
    "enc_channel",
    88,
    at(0, "id", "i32"),
    at(4, "pattern", "i32", names=PATTERNS),
    at(8, "net_recv", "enc_net_connector*"),
    at(16, "net_send", "enc_net_connector*"),
    at(24, "devmem_res", "void*"),
    at(32, "two_step_pod_mesh_devmem_res", "void*"),
    at(40, "devmem_gw_buf_res", "void*"),
    at(48, "nccl_mhandle", "void*"),
    at(56, "gw_recv_buffer", "u64"),
    at(64, "gw_send_buffer", "u64"),
    at(72, "ch_ctx", "enc_channel_context*"),
    at(80, "drv_channel", "encd_dma_channel*"),
    about="one path of data along a topology",
)

RING = declare(
    "enc_ring",
    24,
    at(0, "prev", "i32"),
    at(4, "next", "i32"),
    at(8, "user_ranks", "i32*"),
    at(16, "duplicate", "bool"),
    about="one device's place in a ring",
)

KANGARING = declare(
    "enc_kangaring",
    1060,
    at(0, "vnc", "i32"),
    at(4, "logical_path", f"i32[{KANGARING_RANKS}]"),
    at(1028, "prev", "i32"),
    at(1032, "next", "i32"),
    at(1036, "port", "i32"),
    at(1040, "peer_rmtv", "i32"),
    at(1044, "peer_rmtv2", "i32"),
    at(1048, "peer_local", "i32"),
    at(1052, "next_peer_rmtv", "i32"),
    at(1056, "is_primary", "bool"),
    at(1057, "is_next_pcie", "bool"),
    at(1058, "duplicate", "bool"),
    at(1059, "pattern2", "bool"),
    about="one device's place in a kangaring",
)

METARING = declare(
    "enc_alg_metaring",
    37544,
    at(0, "channel_n", "i32"),
    at(8, "channels", CHANNEL, CHANNELS),
    at(2824, "ring_ranks", RING, CHANNELS),
    at(3592, "kangaring_ranks", KANGARING, CHANNELS),
    at(37512, "type", "i32", names=METARING_TYPES),
    at(37516, "one_rank_per_device", "bool"),
    at(37517, "is_hybrid_ring", "bool"),
    at(37518, "tokens_exchanged", "bool"),
    at(37519, "deadlock_free_rank_list", "bool"),
    at(37520, "comm", "enc_comm*"),
    at(37528, "drv_alg", "encd_alg_metaring*"),
    at(37536, "skip_send", "bool"),
    at(37537, "skip_recv", "bool"),
    about="the ring algorithms of a communicator",
)

NEIGHBOURS = declare(
    "enc_mesh_nbr_grp",
    16,
    at(0, "ranks", "i32*"),
    at(8, "ranks_n", "i32"),
    about="the neighbours in one mesh event",
)

EVENT = declare(
    "enc_mesh_event",
    40,
    at(0, "src_neighbor_grp", NEIGHBOURS),
    at(16, "dst_neighbor_grp", NEIGHBOURS),
    at(32, "valid", "bool"),
    at(36, "evt_type", "i32"),
    about="one step of a mesh",
)

SUBTYPE = declare(
    "enc_alg_mesh_subtype",
    3016,
    at(0, "events", EVENT, 64),
    at(2560, "num_events", "i32"),
    at(2568, "drv_mesh", "encd_alg_mesh_subtype*"),
    at(2576, "mesh", "enc_alg_mesh*"),
    at(2584, "op_max_limit", f"u64[{OP_TYPES}]"),
    at(2688, "op_min_limit", f"u64[{OP_TYPES}]"),
    at(2792, "op_max_limit_sbuf", f"u64[{OP_TYPES}]"),
    at(2896, "op_min_limit_sbuf", f"u64[{OP_TYPES}]"),
    at(3000, "no_inplace_support", "bool"),
    at(3001, "is_use_chnl_buffer", "bool"),
    at(3002, "is_rdh", "bool"),
    at(3003, "is_single_step_mesh", "bool"),
    at(3004, "is_two_step_pod_mesh", "bool"),
    at(3005, "is_latency_opt", "bool"),
    at(3006, "is_bw_opt", "bool"),
    at(3007, "is_rmv_dst_routing", "bool"),
    at(3008, "alltoall_iteration", "u32"),
    about="one variant of a mesh and the sizes it is for",
)

MESH = declare(
    "enc_alg_mesh",
    61568,
    at(0, "mesh_type", "i32", names=MESH_TYPES),
    at(4, "by_generation", "i32[258]", note="a union: its meaning depends on the generation"),
    at(1036, "group_id", "i32"),
    at(1040, "num_groups", "i32"),
    at(1048, "channel", CHANNEL),
    at(1136, "mesh_subtype", SUBTYPE, 20),
    at(61456, "max_chbuf_space_per_group", "u64"),
    at(61464, "max_chbuf_space_per_seng", "u64"),
    at(61472, "max_chbuf_space_per_rank", "u64"),
    at(61480, "double_buffer", "bool"),
    at(61481, "build_rdh", "bool"),
    at(61482, "rdh_double_buffer", "bool"),
    at(61488, "rdh_devmem_res", "void*"),
    at(61496, "use_2dev_proxy", "bool"),
    at(61497, "tokens_exchanged", "bool"),
    at(61498, "use_net", "bool"),
    at(61504, "nccl_comm_node", "enc_nccl_comm_node*"),
    at(61512, "ci", "enc_comm_info*"),
    at(61520, "comm", "enc_comm*"),
    at(61528, "drv_alg", "encd_alg_mesh*"),
    at(61536, "alltoallv_host_input", HOST_MEMORY),
    about="the mesh algorithms of a communicator",
)
