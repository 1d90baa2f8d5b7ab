"""The rows of `make bench`, in the order of the table. A later row adds a module and its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from harness import Case

from rows import bring_up, digests, hlo, hlo_memory, partition, simulator, startup

Cases = Callable[[Path, bool], Iterator[Case]]

ROWS: Mapping[str, Cases] = {
    "startup": startup.cases,
    "digests": digests.cases,
    "partition": partition.cases,
    "hlo": hlo.cases,
    "hlo-memory": hlo_memory.cases,
    "simulator": simulator.cases,
    "bring-up": bring_up.cases,
}
