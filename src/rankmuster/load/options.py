"""What a caller knows that program files may leave out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the caller knows that files may leave out.

    `devices_per_process` holds one count for all processes or one each; `devices` are those that
    a single file stands for; `ranks` gives device ids to files, and then no arguments are needed;
    `module` picks one module out of XLA dumps.
    """

    world: int | None = None
    replicas: int | None = None
    partitions: int | None = None
    devices_per_process: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    ranks: tuple[tuple[tuple[int, ...], str], ...] = ()
    module: str | None = None
