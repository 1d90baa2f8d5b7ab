"""`rankmuster.read` and `rankmuster.check`: the command line's two questions, asked from Python."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

from rankmuster import formats
from rankmuster.copies import ProgramCopy
from rankmuster.errors import UnreadableInput
from rankmuster.load import Loaded, LoadOptions, arrange, load, rank_of, read_path, world_of
from rankmuster.load.devices import Place, seats_by_ids
from rankmuster.load.listing import read_listing
from rankmuster.program import Program

if TYPE_CHECKING:
    from rankmuster.clusters import Cluster
    from rankmuster.report import Report


@runtime_checkable
class HasText(Protocol):
    """What prints itself as a program: a JAX `Compiled` or `Lowered`."""

    def as_text(self) -> str | None:
        """The program's text."""


Readable: TypeAlias = str | bytes | os.PathLike[str] | HasText
"""A path, a program's own bytes or text, or what has `as_text()`."""
ALONE = (str, bytes, os.PathLike, HasText, Program, ProgramCopy)


def read(
    program: Readable, *, replicas: int | None = None, partitions: int | None = None
) -> Program:
    """Read a program from a path, from bytes or text, or from anything with `as_text()`.

    *replicas* and *partitions* are the counts that an HLO text may leave out. Raises
    `InvalidProgram` with the place, `UnreadableInput` for a path that cannot be opened, ValueError
    for a count below 1, and TypeError for anything else.
    """
    a_count("replicas", replicas)
    a_count("partitions", partitions)
    if isinstance(program, os.PathLike) or (isinstance(program, str) and not is_text(program)):
        return read_path(os.fspath(program), replicas=replicas, partitions=partitions)
    if isinstance(program, str):
        program = program.encode("utf-8", "surrogateescape")
    where = "" if isinstance(program, bytes) else type(program).__name__
    data = program if isinstance(program, bytes) else text_of(program)
    return formats.read(data, where=where, replicas=replicas, partitions=partitions)


def is_text(text: str) -> bool:
    """Whether a string is a program itself and not the path of one."""
    return "\n" in text or formats.sniff(text.encode("utf-8", "surrogateescape")) is not None


def text_of(program: Any) -> bytes:
    """What `as_text()` says; of a JAX `Lowered`, which prints StableHLO, its HLO."""
    if not isinstance(program, HasText):
        raise TypeError(f"a program is a path, text, bytes or has as_text(), not {program!r}")
    as_text: Any = program.as_text  # JAX's takes a dialect
    data = (as_text() or "").encode()
    if formats.sniff(data) is None:
        try:
            data = (as_text(dialect="hlo") or "").encode()
        except TypeError:  # no JAX object: the reader says what is wrong with the text it has
            return data
    return data


def check(
    programs: Iterable[Program | ProgramCopy | Readable] | Program | ProgramCopy | Readable,
    *,
    world: int | None = None,
    same: bool = False,
    cluster: Cluster | str | None = None,
) -> Report:
    """Compare *programs* and report what is wrong in each and what differs between them.

    They are programs, copies (programs with their devices) or whatever `read` takes, or one of
    these without a list. One program stands for the whole world; several are taken in order, each
    for as many devices, unless they say their rank. Paths alone mean what they mean on the command
    line, folders and patterns with {rank} included. With *same* all programs have to be equal, also
    where they share nothing. On a *cluster*, or its name as `--cluster` takes it, groups are placed
    and screened as well. Raises what `read` raises, `InvalidCluster`, and `UnreadableInput` where
    the programs do not divide the world.
    """
    from rankmuster.checking import check as run_check  # reading alone does not need it

    given = [programs] if isinstance(programs, ALONE) else list(programs)
    loaded = gather(given, LoadOptions(world=a_count("world", world)))
    return run_check(
        loaded.copies,
        loaded.world,
        findings=loaded.findings,
        absent=loaded.absent,
        same=same,
        cluster=cluster_of(cluster),
    )


def cluster(
    name: str,
    *,
    nodes: int | None = None,
    lnc: int | None = None,
    pod: str = "unset",
    runtime: str | None = None,
) -> Cluster:
    """Make a cluster from its name: `rankmuster.cluster("trn2.48xlarge", nodes=4, lnc=2)`.

    *name* may also be all that `--cluster` accepts: "trn2:4:lnc=1", "generic:8x8" for 8 hosts of 8
    devices, or files that `neuron-ls -j` wrote. *pod* is the UltraServer mode, *runtime* a version.
    Raises `InvalidCluster`, with the nearest name, `InvalidProgram` and `UnreadableInput` for
    files, and TypeError for numbers that are none.
    """
    if not isinstance(name, str):
        raise TypeError(f"a cluster is called by a name, not {name!r}")
    from rankmuster import clusters  # chips take 20 ms to import

    return clusters.cluster(
        name, nodes=nodes, lnc=lnc, pod=pod, runtime=runtime, read_file=read_listing
    )


def cluster_of(said: Cluster | str | None) -> Cluster | None:
    """The cluster, if any, that is said or named. Raises `TypeError` for what is neither."""
    if said is None:
        return None
    from rankmuster.clusters import Cluster

    return said if isinstance(said, Cluster) else cluster(said)


def gather(programs: list[Program | ProgramCopy | Readable], options: LoadOptions) -> Loaded:
    """The copies that *programs* amount to."""
    if not programs:
        raise ValueError("no programs to check")
    paths = [os.fspath(each) for each in programs if is_path(each)]
    if len(paths) == len(programs):
        modules = load(paths, options)
        if len(modules) > 1:
            raise UnreadableInput(f"{len(modules)} modules: {', '.join(m.module for m in modules)}")
        return modules[0]
    copies = tuple(each for each in programs if isinstance(each, ProgramCopy))
    others = [each for each in programs if not isinstance(each, ProgramCopy)]
    if not others:
        return stated(copies, options)
    if copies:
        raise TypeError("give copies with devices, or programs without: not both")
    read_ones = [each if isinstance(each, Program) else read(each) for each in others]
    places = [Place(path=f"program {n}", rank=rank_of(each)) for n, each in enumerate(read_ones)]
    return arrange(read_ones, places, options)


def stated(copies: tuple[ProgramCopy, ...], options: LoadOptions) -> Loaded:
    """*copies* in their world; devices of it that none of them stands for are absent."""
    held = tuple(device for copy in copies for device in copy.devices)
    world = world_of([copy.program for copy in copies], (), replace(options, devices=held))
    named = [(copy.devices, copy.path or f"copy {n}") for n, copy in enumerate(copies)]
    seating = seats_by_ids(named, world.size)
    return Loaded(copies=copies, world=world, findings=seating.findings, absent=seating.absent)


def a_count(name: str, value: int | None) -> int | None:
    """*value*, if it is None or a whole number from 1. Raises `TypeError` and `ValueError`."""
    if value is not None and index(value) < 1:
        raise ValueError(f"{name} is a count from 1, not {value}")
    return value


def is_path(program: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether *program* names a file or folder."""
    if isinstance(program, str):
        return not is_text(program)
    return isinstance(program, os.PathLike)
