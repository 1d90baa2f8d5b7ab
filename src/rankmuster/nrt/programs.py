"""What the entry points load: programs from bytes, and the one-op program of a host-driven call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankmuster import formats
from rankmuster.errors import BadArgument
from rankmuster.group import ReplicaGroups
from rankmuster.nrt import arguments
from rankmuster.nrt.arguments import NrtCcComm
from rankmuster.program import REDUCING, Op, OpKind, Program

Loadable = Any
"""Bytes of any format that we read, a `Program`, or a sequence of either."""


def read_functions(neff: Loadable, size: int, world: int) -> tuple[Program, ...]:
    """The functions of a program, of a buffer its first *size* bytes. Raises as `formats.read`."""
    if isinstance(neff, Program):
        return (neff,)
    if isinstance(neff, list | tuple):
        parts = (
            read_functions(each, size if isinstance(each, Program) else len(each), world)
            for each in neff
        )
        return tuple(program for part in parts for program in part)
    data = bytes(arguments.readable("neff", neff, size)[:size])
    return (formats.read(data, where="neff", world=world),)


def one_op(  # noqa: PLR0917 the order of the original
    comm: NrtCcComm, inputs: Sequence[Any], outputs: Sequence[Any], dtype: int, op: int, cc_op: int
) -> Program:
    """The program of one collective over lists of buffers. Raises BadArgument.

    Elements count as facts E4 says: a gather's are one rank's input, a scatter's one rank's output.
    """
    if not isinstance(comm, NrtCcComm):
        raise BadArgument(f"comm is an NrtCcComm, not {comm!r}")
    kind: OpKind = arguments.choice("cc_op", cc_op, arguments.CC_OPS)
    name, width = arguments.choice("dtype", dtype, arguments.DTYPES)
    reduce = arguments.choice("op", op, arguments.OPS) if kind in REDUCING else None
    members = check_comm(comm)
    chunks = outputs if kind is OpKind.REDUCE_SCATTER else inputs
    elements = tuple(elements_of(each, width) for each in chunks)
    if not elements or len(inputs) != len(outputs):
        raise BadArgument(f"{len(inputs)} inputs and {len(outputs)} outputs do not pair")
    posted = Op(kind=kind, group=0, elements=elements, dtype=(name,) * len(elements), reduce=reduce)
    return Program(format="nrt", replica_groups=(ReplicaGroups((members,)),), ops=(posted,))


def check_comm(comm: NrtCcComm) -> tuple[int, ...]:
    """The members of an `nrt_cc_comm`. Raises BadArgument where its fields contradict."""
    members = tuple(arguments.u32("replica_group", each) for each in comm.replica_group)
    if len(members) != comm.rank_n or not 0 <= comm.rank < len(members):
        raise BadArgument(f"rank {comm.rank} of {comm.rank_n} in a group of {len(members)}")
    if members[comm.rank] != comm.ctx_device_id:
        raise BadArgument(
            f"rank {comm.rank} of the group is device {members[comm.rank]}, "
            f"and the context says {comm.ctx_device_id}"
        )
    return members


def elements_of(buffer: Any, width: int) -> int:
    """How many elements of *width* bytes a buffer holds. Raises BadArgument."""
    size = len(arguments.readable("tensor", buffer))
    if size % width:
        raise BadArgument(f"a tensor of {size} bytes holds no whole elements of {width}")
    return size // width
