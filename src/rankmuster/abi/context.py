"""The compile state of a collective program, as far as anybody has published it (facts §1.5).

Most of these are in no public header: what is known stands at its offset, the rest is raw bytes.
"""

from __future__ import annotations

from rankmuster.abi.communicators import COMMUNICATOR, PEER
from rankmuster.abi.containers import unordered_map, vector
from rankmuster.abi.groups import PAIRS, REPLICA_GROUP
from rankmuster.abi.layout import at, declare

GROUPS = 12  # ENC_MAX_COMM_N
STATES = ("PARSE", "LOAD", "START", "STOP")
ARRIVALS = (
    *("INTRA_CHIP", "INTRA_POD", "INTER_CHIP", "RING_LOCAL"),
    *("RING_REMOTE", "INTRA_RACK", "INTER_RACK"),
)
OPS = (
    *("ALLGATHER", "ALLREDUCE", "BROADCAST", "REDUCE", "REDUCE_SCATTER", "SEND", "RECV"),
    *("ALLTOALL", "PERMUTE", "PERMUTE_REDUCE", "PERMUTE_IMPLICIT", "PERMUTE_REDUCE_IMPLICIT"),
    *("ALLTOALL_V", "INVALID"),
)
ALGORITHMS = (
    *("RING", "HIER", "MESH", "KANGARING", "SINGLE_CYCLE_RING", "INTRA_RDH", "SINGLE_STEP_MESH"),
    *("INTER_RDH", "TWO_STEP_POD_MESH", "LATENCY_OPT_MESH", "BW_OPT_MESH", "INVALID"),
)
DTYPES = (
    *("UNKNOWN", "UINT64", "INT8", "UINT8", "INT16", "UINT16", "BF16", "FP16", "INT32", "UINT32"),
    *("FP32", "FP32R", "INT64", "FP8_E3", "FP8_E4", "FP8_E5"),
)

UNSIZED = vector("byte", 1)
ANY_MAP = unordered_map("?", "?")

CONTEXT = declare(
    "enc_context",
    6753648,
    at(0, "curr_op_slot_idx", "u32[4]"),
    at(16, "map_16", ANY_MAP, note="its name is not public"),
    at(72, "map_72", ANY_MAP, note="its name is not public"),
    at(128, "all_posted_ops", UNSIZED, note="the size of its elements is not public"),
    at(152, "posted_ops", UNSIZED, 4, note="the size of its elements is not public"),
    at(248, "stream_id_map", f"i32[{GROUPS}]", names={-1: "-1: not set"}),
    at(296, "group_n", "i32"),
    at(300, "state", "i32", names=STATES),
    at(816, "src_target_pairs", vector(PAIRS.name, PAIRS.size)),
    at(840, "replica_groups", vector(REPLICA_GROUP.name, REPLICA_GROUP.size)),
    at(864, "op_queue", UNSIZED, note="the size of its elements is not public"),
    at(888, "curr_function_id", "i32"),
    at(892, "function_n", "i32"),
    at(904, "functions", UNSIZED, note="the size of its elements is not public"),
    at(992, "signature", "byte[16]", note="over all groups of this device"),
    at(1520, "comms", COMMUNICATOR, GROUPS),
    at(6753584, "drv_ctx", "encd_context*"),
    about="one collective program on its way from parse to stop; known in part",
)

DRIVER_CONTEXT = declare(
    "encd_context",
    624,
    at(0, "vcore", "virtual_core*"),
    at(16, "ccop_owner", "bool"),
    at(144, "streams_n", "i32"),
    at(288, "enc_ctx", "enc_context*"),
    at(561, "ctx_id", "u8"),
    about="the driver's side of a program; known in part",
)

OPERATION = declare(
    "enc_operation",
    248,
    at(8, "comm", "enc_comm*"),
    at(16, "op_type", "i32", names=OPS),
    at(20, "alg", "i32", names=ALGORITHMS),
    at(24, "data_type", "i32", names=DTYPES),
    at(64, "op_slot_idx", "u32"),
    at(208, "size_n", "u64"),
    at(216, "instr_chaining", "i32", names={0: "none", 3: "the last"}),
    about="one posted op; known in part",
)

OP_ARGS = declare(
    "enc_op_args",
    248,
    at(0, "enc_op", "i32", names=OPS),
    about="the arguments of one op; known in part, and the size is a guess",
)

OP_LIST = declare(
    "enc_op_list",
    24,
    at(16, "group_id", "i32"),
    about="a group's ops; known up to here, its size is not public",
)

BARRIER_ENTRY = declare(
    "barrier_table_entry",
    32,
    at(0, "peer", PEER),
    at(24, "barr_type", "i32", names=ARRIVALS),
    at(28, "bit_to_set", "u32"),
    about="one entry of the device-barrier table",
)
