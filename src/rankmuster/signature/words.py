"""The numbers that stand for kinds, element types and reduce ops in the libnrt projection.

Where nrt.h or libnrt has a number it is theirs (facts §2.2, §2.4); from 0x10, 0x20 and 0x40 on they
are ours (facts E1 to E3).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rankmuster.program import Op, OpKind

OP_WORDS: Mapping[OpKind, int] = MappingProxyType(
    {
        OpKind.ALL_GATHER: 0,
        OpKind.ALL_REDUCE: 1,
        OpKind.BROADCAST: 2,
        OpKind.REDUCE: 3,
        OpKind.REDUCE_SCATTER: 4,
        OpKind.SEND: 5,
        OpKind.RECV: 6,
        OpKind.ALL_TO_ALL: 7,
        OpKind.PERMUTE: 8,
        OpKind.PERMUTE_REDUCE: 9,
        OpKind.PERMUTE_IMPLICIT: 10,
        OpKind.PERMUTE_REDUCE_IMPLICIT: 11,
        OpKind.ALL_TO_ALL_V: 12,
        OpKind.BARRIER: 0x20,
        OpKind.GATHER: 0x21,
        OpKind.SCATTER: 0x22,
        OpKind.COMM_SPLIT: 0x23,
        OpKind.WINDOW: 0x24,
        OpKind.OTHER: 0x3F,
    }
)

UNKNOWN_DTYPE = 0x4F
DTYPE_WORDS: Mapping[str, int] = MappingProxyType(
    {
        "u64": 1,
        "s8": 2,
        "u8": 3,
        "s16": 4,
        "u16": 5,
        "bf16": 6,
        "f16": 7,
        "s32": 8,
        "u32": 9,
        "f32": 0xA,
        "s64": 0xC,
        "f8e3m4": 0xD,
        "f8e4m3": 0xE,
        "f8e4m3fn": 0xE,
        "f8e5m2": 0xF,
        "f64": 0x40,
        "pred": 0x41,
        "c64": 0x42,
        "c128": 0x43,
        "s4": 0x44,
        "u4": 0x45,
        "s2": 0x46,
        "u2": 0x47,
        "f8e4m3b11fnuz": 0x48,
        "f8e4m3fnuz": 0x49,
        "f8e5m2fnuz": 0x4A,
        "f8e8m0fnu": 0x4B,
        "f4e2m1fn": 0x4C,
        "s1": 0x4D,
        "u1": 0x4E,
        "unknown": UNKNOWN_DTYPE,
    }
)

NO_REDUCE = 0xF
CUSTOM_REDUCE = 0x1F
REDUCE_WORDS: Mapping[str | None, int] = MappingProxyType(
    {
        "add": 0,
        "fma": 1,
        "max": 2,
        "min": 3,
        None: NO_REDUCE,
        "mul": 0x10,
        "and": 0x11,
        "or": 0x12,
        "xor": 0x13,
        "avg": 0x14,
    }
)


def sizes(op: Op) -> tuple[int, ...]:
    """The element counts that all ranks must share, one per operand.

    They are 0 where ranks may legally post different counts: with splits, and in an all_to_all_v
    (facts E4). An op without data counts as one operand of no elements.
    """
    uneven = (
        op.kind is OpKind.ALL_TO_ALL_V
        or op.input_splits is not None
        or op.output_splits is not None
    )
    return (0,) * op.places if uneven or not op.elements else op.elements
