"""The header of a NEFF as a struct (facts §5.1)."""

from __future__ import annotations

from rankmuster.abi.layout import at, declare

NEFF_HEADER = declare(
    "neff_header",
    1024,
    at(0x000, "pkg_version", "u64", names={1: "a plain tar, SHA-256", 2: "a gzip tar, MD5"}),
    at(0x008, "header_size", "u64"),
    at(0x010, "data_size", "u64"),
    at(0x018, "major", "u64"),
    at(0x020, "minor", "u64"),
    at(0x028, "build_version", "char[128]"),
    at(0x0A8, "num_tpb", "u32"),
    at(0x0AC, "hash", "byte[32]"),
    at(0x0CC, "uuid", "byte[16]"),
    at(0x0DC, "name", "char[256]"),
    at(0x1DC, "requested_tpb_count", "u32"),
    at(0x1E0, "tpb_per_node", "byte[64]"),
    at(0x220, "feature_bits", "u64"),
    at(0x228, "lnc_size", "u32"),
    about="what a NEFF begins with",
)
