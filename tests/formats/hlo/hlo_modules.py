"""Short HLO modules for tests: a header, a reducer and one ENTRY."""

from __future__ import annotations

from rankmuster.formats.hlo import read
from rankmuster.program import Op, Program

ADD = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n"


def module(*lines: str, header: str = "num_partitions=8", before: str = ADD) -> bytes:
    """A module whose ENTRY holds *lines* behind the parameter p = f32[64]."""
    body = "\n".join(f"  {line}" for line in ("p = f32[64] parameter(0)", *lines))
    head = f"HloModule m, {header}" if header else "HloModule m"
    return f"{head}\n\n{before}\nENTRY main {{\n{body}\n}}\n".encode()


def all_reduce(groups: str, *, name: str = "ar", rest: str = "") -> str:
    """One all-reduce of p over *groups*, flattened unless *rest* says otherwise."""
    rest = rest or ", channel_id=1, use_global_device_ids=true"
    return f"{name} = f32[64] all-reduce(p), replica_groups={groups}, to_apply=add{rest}"


def program(*lines: str, header: str = "num_partitions=8", before: str = ADD) -> Program:
    """The program of `module`."""
    return read(module(*lines, header=header, before=before))


def members(*lines: str, header: str = "num_partitions=8") -> tuple[tuple[int, ...], ...]:
    """The members of the one replica-group set of `program`."""
    (only,) = program(*lines, header=header).replica_groups
    return only.members


def codes(found: Program, severity: str = "error") -> list[str]:
    """The codes of the program's findings of *severity*, in order."""
    return [f.code for f in found.findings if f.severity == severity]


def kinds(found: Program) -> list[str]:
    """The kinds of all ops in signing order."""
    return [op.kind.value for op in found.walk()]


def only_op(found: Program) -> Op:
    """The one op of the program."""
    (op,) = found.walk()
    return op
