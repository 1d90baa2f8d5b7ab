"""libstdc++ containers inside an image: what they count, and where their content would be.

The content lies behind pointers, in another part of the process: one flat image does not hold it.
"""

from __future__ import annotations

import struct
from typing import Any

from rankmuster.abi.layout import Layout, at, declare

VECTOR = struct.Struct("<QQQ")  # begin, end, end of the storage
HASHTABLE = struct.Struct("<QQQQ")  # buckets, bucket count, first node, element count
VECTOR_BYTES, MAP_BYTES = 24, 56


def vector(element: str, element_bytes: int) -> Layout:
    """`std::vector` of elements of *element_bytes*: three pointers."""

    def summary(image: bytes) -> tuple[Any, str]:
        return vector_summary(image, element, element_bytes)

    return declare(
        f"vector<{element}>",
        VECTOR_BYTES,
        at(0, "begin", "void*"),
        at(8, "end", "void*"),
        at(16, "end_of_storage", "void*"),
        summary=summary,
    )


def vector_summary(image: bytes, element: str, element_bytes: int) -> tuple[Any, str]:
    """How many elements a vector has, and where they are."""
    begin, end, limit = VECTOR.unpack(image)
    count, rest = divmod(end - begin, element_bytes)
    if not begin <= end <= limit or rest:
        what = f"begin {begin:#x}, end {end:#x}, storage to {limit:#x}"
        return None, f"no vector of {element_bytes}-byte elements: {what}"
    if not count:
        return 0, "empty"
    return count, f"{count} x {element}, behind the pointer {begin:#x}"


def unordered_map(key: str, value: str) -> Layout:
    """`std::unordered_map` (the `_Hashtable` of libstdc++ 14, S1 §1)."""
    return declare(
        f"unordered_map<{key},{value}>",
        MAP_BYTES,
        at(0, "buckets", "void*"),
        at(8, "bucket_count", "u64"),
        at(16, "before_begin", "void*"),
        at(24, "element_count", "u64"),
        at(32, "rehash_policy", "byte[16]"),
        at(48, "single_bucket", "void*"),
        summary=map_summary,
    )


def map_summary(image: bytes) -> tuple[Any, str]:
    """How many entries a map has, and where they are."""
    buckets, bucket_count, first, elements = HASHTABLE.unpack_from(image)
    if bool(elements) != bool(first) or (elements and not (buckets and bucket_count)):
        what = f"{elements} entries in {bucket_count} buckets, the first at {first:#x}"
        return None, f"no map: {what}"
    if not elements:
        return 0, "empty"
    what = f"{elements} entries in {bucket_count} buckets"
    return elements, f"{what}, behind the pointer {first:#x}"


U32S = vector("u32", 4)
U32_LISTS = vector("vector<u32>", VECTOR_BYTES)
U32_MAP = unordered_map("u32", "u32")
