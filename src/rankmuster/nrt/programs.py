"""What the entry points load: programs from bytes, and the one-op program of a host-driven call."""

from __future__ import annotations

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
    if not isinstance(neff, list | tuple):
        return (read_function(neff, size, world),)
    return tuple(read_function(each, None, world) for each in neff)


def read_function(neff: Loadable, size: int | None, world: int) -> Program:
    """One function; *size* None takes the whole buffer."""
    if isinstance(neff, Program):
        return check_sets(neff)
    data = arguments.readable("neff", neff, size or 0)
    return formats.read(bytes(data[:size]), where="neff", world=world)


def check_sets(program: Program) -> Program:
    """The program, if its ops name sets that it has. Raises BadArgument."""
    for op in program.walk():
        table = program.replica_groups if op.pairs is None else program.src_target_pairs
        at = op.group if op.pairs is None else op.pairs
        if at is None or not 0 <= at < len(table):
            raise BadArgument(f"{op.kind} names set {at} of {len(table)}")
    return program


def one_op(  # noqa: PLR0917 the order of the original
    comm: NrtCcComm, input_list: Any, output_list: Any, dtype: int, op: int, cc_op: int
) -> Program:
    """The program of one collective over two lists of buffers. Raises BadArgument.

    Elements count as facts E4 says: a gather's are one rank's input, a scatter's one rank's output.
    """
    if not isinstance(comm, NrtCcComm):
        raise BadArgument(f"comm is an NrtCcComm, not {comm!r}")
    kind: OpKind = arguments.choice("cc_op", cc_op, arguments.CC_OPS)
    name, width = arguments.choice("dtype", dtype, arguments.DTYPES)
    reduce = arguments.choice("op", op, arguments.OPS) if kind in REDUCING else None
    members = check_comm(comm)
    inputs = arguments.listed("input", input_list)
    outputs = arguments.listed("output", output_list)
    chunks = outputs if kind is OpKind.REDUCE_SCATTER else inputs
    elements = tuple(elements_of(each, width) for each in chunks)
    if not elements or len(inputs) != len(outputs):
        raise BadArgument(f"{len(inputs)} inputs and {len(outputs)} outputs do not pair")
    posted = Op(kind=kind, group=0, elements=elements, dtype=(name,) * len(elements), reduce=reduce)
    return Program(format="nrt", replica_groups=(ReplicaGroups((members,)),), ops=(posted,))


def check_comm(comm: NrtCcComm) -> tuple[int, ...]:
    """The members of an `nrt_cc_comm`. Raises BadArgument where its fields contradict."""
    group = arguments.listed("replica_group", comm.replica_group)
    members = tuple(arguments.u32("replica_group", each) for each in group)
    rank = arguments.u32("rank", comm.rank)
    if len(members) != arguments.u32("rank_n", comm.rank_n) or rank >= len(members):
        raise BadArgument(f"rank {rank} of {comm.rank_n} in a group of {len(members)}")
    if members[rank] != arguments.u32("ctx_device_id", comm.ctx_device_id):
        raise BadArgument(
            f"rank {rank} of the group is device {members[rank]}, "
            f"and the context says {comm.ctx_device_id}"
        )
    return members


def elements_of(buffer: Any, width: int) -> int:
    """How many elements of *width* bytes a buffer holds. Raises BadArgument."""
    size = len(arguments.readable("tensor", buffer))
    if size % width:
        raise BadArgument(f"a tensor of {size} bytes holds no whole elements of {width}")
    return size // width
