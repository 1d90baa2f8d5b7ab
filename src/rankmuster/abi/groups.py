"""Group records and the partition's containers (S0 §3, S1 §1 and §4; facts §1.5)."""

from __future__ import annotations

from rankmuster.abi.containers import U32_LISTS, U32_MAP, U32S
from rankmuster.abi.layout import at, declare

RANKS = {-1: "not a member"}

REPLICA_GROUP = declare(
    "enc_replica_group_info",
    96,
    at(0, "rank", "i32", names=RANKS),
    at(4, "rank_n", "i32"),
    at(8, "group_id", "i32"),
    at(12, "src_target_pairs_id", "i32", names={-1: "a declared group"}),
    at(16, "num_ops", "u32"),
    at(20, "sendrecv", "bool"),
    at(21, "nccl_mesh_supported", "bool"),
    at(22, "must_use_ring_alg", "bool"),
    at(23, "signature", "byte[16]"),
    at(40, "participants", U32S),
    at(64, "bootstrap_participants", U32S),
    at(88, "bootstrap_rank", "i32", names=RANKS),
    about="one replica group as one device sees it",
)

PAIRS = declare(
    "enc_src_target_pairs_info",
    80,
    at(0, "pairs", U32_LISTS),
    at(24, "participants", U32S),
    at(48, "signature", "byte[16]"),
    at(64, "rank", "i32", names=RANKS),
    at(68, "rank_n", "i32"),
    at(72, "replica_group_id", "i32"),
    at(76, "src_target_pairs_id", "i32"),
    about="one set of source-target pairs and the component of one device",
)

DISJOINT_SET = declare(
    "disjoint_set",
    112,
    at(0, "representative", U32_MAP),
    at(56, "rank", U32_MAP),
    about="the union-find forest: parents and heights",
)

CONNECTED_COMPONENTS = declare(
    "connected_components",
    168,
    at(0, "ds", DISJOINT_SET),
    at(112, "edges", U32_LISTS),
    at(136, "universe", U32S),
    at(160, "num_vertices", "u64"),
    about="the partition of one pairs set",
)
