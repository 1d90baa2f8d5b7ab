"""Programs and the devices they stand for, sorted into classes that say the same.

Knows nothing of where programs came from; whoever compares, pairs or signs starts from classes, so
that a program is worked out once however many devices hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rankmuster.program import Program
from rankmuster.resolve import Resolved
from rankmuster.signature.canonical import content_digest
from rankmuster.signature.digest import Digest


@dataclass(frozen=True, slots=True)
class ProgramCopy:
    """A program and the devices (global ids) that run it.

    `process` is the number of the process that holds them and `path` the file it came from, where
    those are known.
    """

    program: Program
    devices: tuple[int, ...]
    process: int | None = None
    path: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramClass:
    """All copies that say the same to every check; `devices` are theirs, ascending.

    Messages call those who run it `name`, where it has one, and else by their devices.
    """

    number: int
    resolved: Resolved
    devices: tuple[int, ...]
    copies: tuple[ProgramCopy, ...]
    name: str = ""


def classes(copies: Iterable[ProgramCopy]) -> tuple[ProgramClass, ...]:
    """Sort *copies* into classes, in order of their lowest device.

    A device that two copies claim counts for the first: whoever collected the copies reports that.
    """
    resolved: dict[int, Resolved] = {}
    alike: dict[Digest, list[ProgramCopy]] = {}
    first: dict[Digest, Resolved] = {}
    for copy in copies:
        program = resolved.setdefault(id(copy.program), Resolved(copy.program))
        digest = content_digest(program)
        alike.setdefault(digest, []).append(copy)
        first.setdefault(digest, program)
    claimed: set[int] = set()
    found = []
    for digest, group in alike.items():
        devices = {device for copy in group for device in copy.devices} - claimed
        claimed |= devices
        found.append((tuple(sorted(devices)), first[digest], tuple(group)))
    found.sort(key=lambda each: each[0][:1])
    return tuple(
        ProgramClass(number, program, devices, group)
        for number, (devices, program, group) in enumerate(found)
    )
