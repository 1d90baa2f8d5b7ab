"""What the network proxy keeps: host memory, connectors and the entries of its queues.

Facts §1.4; `net_ops_info` and `enc_net_connector` by their published members, which come to the
sizes that are stated.
"""

from __future__ import annotations

from rankmuster.abi.layout import at, declare

HOST_MEMORY = declare(
    "enc_host_mem",
    32,
    at(0, "mem_handle", "void*"),
    at(8, "va", "void*"),
    at(16, "pa", "u64"),
    at(24, "size", "u64"),
    about="host memory that the device can reach",
)

SHARED_HOST_MEMORY = declare(
    "enc_host_mem_shared",
    40,
    at(0, "mem", HOST_MEMORY),
    at(32, "refcnt", "i32"),
    about="host memory with a count of its users",
)

CONNECTOR = declare(
    "enc_net_connector",
    96,
    at(0, "fold_n", "i32"),
    at(8, "net_host_mem", HOST_MEMORY),
    at(40, "dynamic_input_host_mem", "enc_host_mem_shared*"),
    at(48, "devmem_res", "void*"),
    at(56, "nccl_mhandle", "void*"),
    at(64, "inc_recv_sem_nccl_mhandle", "void*"),
    at(72, "inc_recv_sem_values_buffer", "u32*"),
    at(80, "inc_recv_sem_values_buffer_mhandle", "void*"),
    at(88, "nccl_connector", "void*"),
    about="the network side of a channel",
)

SOURCE_ADDRESS = declare(
    "net_src_addr",
    72,
    at(0, "net_op_idx", "u32"),
    at(4, "complete", "i32"),
    at(8, "dev_addr", "u64"),
    at(16, "host_addr", "void*"),
    at(24, "nccl_mhandle", "void*"),
    at(32, "size", "u32"),
    at(36, "mark", "i32"),
    at(40, "proxy_histogram_tag", "void*"),
    at(48, "dst_rank", "i32"),
    at(56, "dst_addr", "u64"),
    at(64, "dst_mhandle", "void*"),
    about="one entry of a send queue",
)

TARGET_ADDRESS = declare(
    "net_dest_addr",
    48,
    at(0, "net_op_idx", "u32"),
    at(4, "complete", "i32"),
    at(8, "dev_addr", "u64"),
    at(16, "host_addr", "void*"),
    at(24, "nccl_mhandle", "void*"),
    at(32, "size", "u32"),
    at(36, "mark", "i32"),
    at(40, "src_rank", "i32"),
    about="one entry of a receive queue",
)

NETWORK_OPS = declare(
    "net_ops_info",
    88,
    at(0, "sema_shift_offset", "u16"),
    at(2, "early_send_completion", "bool"),
    at(3, "early_recv_posting", "bool"),
    at(8, "inc_send_handshake", "u32*"),
    at(16, "inc_send_complete", "u32*"),
    at(24, "inc_recv_handshake", "u32*"),
    at(32, "inc_recv_complete", "u32*"),
    at(40, "tx_entry_cnt", "u32"),
    at(44, "rx_entry_cnt", "u32"),
    at(48, "net_idx_loop_size", "u32"),
    at(52, "initial_send_credits", "u32"),
    at(56, "ending_recv_credits", "u32"),
    at(64, "data_type_sz", "u64"),
    at(72, "is_dynamic_send_recv_sz", "bool"),
    at(73, "is_recv_sz_known_by_dst", "bool"),
    at(74, "variable_peer", "bool"),
    at(75, "add_to_histogram", "bool"),
    at(80, "enc_channel", "void*"),
    about="one operation of the network proxy",
)
