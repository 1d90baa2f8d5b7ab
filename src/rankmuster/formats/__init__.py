"""Bytes in, a `Program` out, whatever the format. Never opens a file."""

from __future__ import annotations

from rankmuster.errors import InvalidProgram
from rankmuster.formats.json_text import Buffer as Buffer
from rankmuster.program import Program

FORMATS = ("json", "hlo", "neff")
BYTES_MAX = 2 << 30  # of what is no plain file: it has to be kept somewhere


def sniff(data: Buffer) -> str | None:
    """The name of the format that *data* looks like, None where it looks like none."""
    from rankmuster.formats import json_program

    if json_program.sniff(data):
        return "json"
    if is_neff(data):
        return "neff"
    from rankmuster.formats import hlo

    return "hlo" if hlo.sniff(data) else None


def is_neff(data: Buffer) -> bool:
    """Whether *data* begins as a NEFF: no text holds this byte, so the reader stays unimported."""
    if data[1:2] != b"\0":
        return False
    from rankmuster.formats import neff

    return neff.sniff(data)


def read(
    data: Buffer,
    *,
    where: str = "",
    replicas: int | None = None,
    partitions: int | None = None,
    world: int | None = None,
) -> Program:
    """Read a program of any known format.

    *where* names the source in messages; *replicas*, *partitions* and *world* are counts for texts
    that leave them out. Raises `InvalidProgram`, with the place in the text where it is known, and
    nothing else, whatever the bytes.
    """
    kind = sniff(data)
    if kind == "json":
        from rankmuster.formats import json_program

        return json_program.read(data, where=where, world=world)
    if kind == "hlo":
        from rankmuster.formats import hlo

        return hlo.read(data, where=where, replicas=replicas, partitions=partitions, world=world)
    if kind == "neff":
        from rankmuster.formats import neff

        return neff.read(data, where=where, world=world)
    raise refusal(data, where)


def refusal(data: Buffer, where: str) -> InvalidProgram:
    """Why *data* is no program, and what to give instead."""
    from rankmuster.formats.foreign import recognised

    if found := recognised(data):
        return InvalidProgram(f"not a program: it is {found.what}", where=where, fix=found.fix)
    what = f"it starts with {bytes(data[:16])!r}" if len(data) else "it is empty"
    fix = f"known formats: {', '.join(FORMATS)}"
    return InvalidProgram(f"not a program: {what}", where=where, fix=fix)


def worth_reading(head: Buffer) -> int:
    """Of how many bytes that begin with *head* a reader makes something: none where none knows it.

    A pipe may have no end, and need not be read to it before it is refused.
    """
    kind = sniff(head)
    if kind == "json":
        from rankmuster.formats import json_program

        return json_program.MAX_BYTES
    return BYTES_MAX if kind else 0
