"""The global communicator and what describes a device to the library (S0 §1, facts §1.2, §1.4)."""

from __future__ import annotations

from rankmuster.abi.communicators import COMMUNICATOR, NODE
from rankmuster.abi.layout import at, declare

POD_TYPES = ("NONE", "P2P", "SWITCH", "INVALID")

WORLD = declare(
    "enc_glb_comm",
    564408,
    at(0, "g_device_id", "u32"),
    at(4, "g_device_cnt", "u32"),
    at(8, "vtpb_idx", "u32", names={0xFFFF_FFFF: "no virtual core was found"}),
    at(12, "nec_dev_id", "i32"),
    at(16, "mla_idx", "i32"),
    at(20, "host_device_id", "i32"),
    at(24, "routing_id", "i32"),
    at(28, "virtual_server_id", "u32"),
    at(32, "pod_type", "i32", names=POD_TYPES),
    at(36, "pod_node_id", "u32", names={0xFFFF_FFFF: "-1: in no pod"}),
    at(40, "pod_sz", "u32"),
    at(48, "reservation_id", "u64"),
    at(56, "root_comm_id", "char*"),
    at(64, "check_sigs", "bool"),
    at(72, "rank_nodes", "u32*"),
    at(80, "local_ranks", "u32*"),
    at(88, "nccl_comm_node", NODE),
    at(176, "local_rings", "bananaphone*"),
    at(184, "local_peer_handles", "bp_handle*"),
    at(192, "inc_recv_sem_values_buffer", "u32*"),
    at(200, "inc_recv_sem_values_buffer_size", "u64"),
    at(208, "comm", COMMUNICATOR),
    at(562112, "inter_rdh_devmem_res", "void*[4]"),
    at(562144, "intra_rdh_devmem_res", "void*[4]"),
    at(562176, "mesh_devmem_res_per_rg", "void*[96]"),
    at(562944, "rdh_devmem_res_per_rg", "void*[48]"),
    at(563328, "gateway_devmem_res", "void*[128]", note="4 streams of 32 channels"),
    at(564352, "gcomm_setup_mtx", "byte[40]", note="a pthread_mutex_t"),
    at(564392, "proxy_queue", "void*"),
    at(564400, "device_barrier_table", "void*", note="a std::vector of its own (facts D45)"),
    about="the world of one (nec_dev, context)",
)

HISTOGRAM = declare(
    "enc_proxy_histogram_config",
    168,
    at(0, "enable", "bool"),
    at(8, "bucket_usecs", "u64"),
    at(16, "num_buckets", "u64"),
    at(24, "per_neff_warmup", "u64"),
    at(32, "warmup", "u64"),
    at(40, "output_path", "char[128]"),
    about="how the network proxy keeps its histogram",
)

DEVICE = declare(
    "enc_neuron_device_info",
    216,
    at(0, "nec_dev_id", "i32"),
    at(4, "mla_idx", "i32"),
    at(8, "tpb_idx", "i32"),
    at(12, "host_device_id", "i32"),
    at(16, "routing_id", "i32"),
    at(24, "pod_id", "u64"),
    at(32, "pod_type", "i32", names=POD_TYPES),
    at(36, "pod_node_id", "u32"),
    at(40, "virtual_server_id", "u32"),
    at(48, "histogram_config", HISTOGRAM),
    about="a device as the runtime describes it to the library",
)

VERSION = declare(
    "nec_version_info",
    56,
    at(0, "major", "u64"),
    at(8, "minor", "u64"),
    at(16, "patch", "u64"),
    at(24, "maintenance", "u64"),
    at(32, "git_hash", "char[16]"),
    at(48, "compatibility_version", "u64"),
    about="the version that the runtime tells the library",
)
