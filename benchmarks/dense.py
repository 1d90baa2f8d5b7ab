"""HLO modules that hold collectives and next to nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from texts import Text


def text(folder: Path, ops: int, spelling: str) -> Text:
    """A file of *ops* collectives, their groups in one *spelling*: `explicit` or `iota`."""
    path = folder / f"dense_{spelling}_{ops}.hlo"
    return Text(path=path, make=lambda: (lambda: ops, [module(ops, spelling)]))


def module(ops: int, spelling: str, world: int = 256) -> bytes:
    """A scheduled module of *ops* all-reduces and all-gathers and next to nothing else.

    Their groups are those of a mesh of *world* devices, contiguous and strided, in one *spelling*:
    `explicit` or `iota`.
    """
    groups = list(_mesh_groups(world, spelling))
    lines = [
        b"HloModule jit_dense, is_scheduled=true, entry_computation_layout="
        b"{(f32[4096]{0})->f32[4096]{0}}, num_partitions=%d\n\n" % world,
        b"%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n",
        b"  %b = f32[] parameter(1)\n  ROOT %sum = f32[] add(%a, %b)\n}\n\n",
        b"ENTRY %main (p: f32[4096]) -> f32[4096] {\n  %p = f32[4096]{0} parameter(0)\n",
    ]
    lines += [_op(number, *groups[number % len(groups)]) for number in range(ops)]
    return b"".join([*lines, b"  ROOT %out = f32[4096]{0} copy(%p)\n}\n"])


def _op(number: int, size: int, groups: bytes) -> bytes:
    """One collective on *groups* of *size* members, with the metadata that JAX prints."""
    gathers = number % 2
    kind, shape = (b"all-gather", 4096 * size) if gathers else (b"all-reduce", 4096)
    return (
        b"  %%%s.%d = f32[%d]{0} %s(%%p), channel_id=%d, replica_groups=%s, %s"
        b'metadata={op_name="jit(dense)/shard_map/psum" source_file="dense.py" source_line=%d}\n'
        % (
            *(kind, number, shape, kind, number + 1, groups),
            b"dimensions={0}, use_global_device_ids=true, "
            if gathers
            else b"use_global_device_ids=true, to_apply=%add, ",
            number % 500 + 1,
        )
    )


def _mesh_groups(world: int, spelling: str) -> Iterator[tuple[int, bytes]]:
    """Groups of 2, 4, ... devices, next to each other and as far apart as they can be."""
    for power in count(1):
        size = 2**power
        if size > world:
            return
        near = [list(range(start, start + size)) for start in range(0, world, size)]
        far = [list(range(start, world, world // size)) for start in range(world // size)]
        iotas = (
            b"[%d,%d]<=[%d]" % (world // size, size, world),
            b"[%d,%d]<=[%d,%d]T(1,0)" % (world // size, size, size, world // size),
        )
        for members, iota in zip((near, far), iotas, strict=True):
            yield size, iota if spelling == "iota" else _explicit(members)


def _explicit(members: list[list[int]]) -> bytes:
    """`{{0,1},{2,3}}`."""
    return b"{%s}" % b",".join(b"{%s}" % ",".join(map(str, group)).encode() for group in members)
