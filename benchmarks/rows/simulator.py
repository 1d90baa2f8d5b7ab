"""A hundred thousand simulated ranks, one of which lies: time and memory, against fixed bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness import OURS, Case, Contestant, Goal, Unit
from processes import own_clock, peak_memory

RANKS = 98304
BOUNDS: tuple[tuple[Unit, str, float], ...] = (("s", "10 s", 10.0), ("B", "1 GiB", float(1 << 30)))


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: ARG001, FBT001 - every row's form
    """The time of one run, and the memory that it adds."""
    size = RANKS // 8 if quick else RANKS
    for unit, name, bound in BOUNDS:
        measure = own_clock if unit == "s" else peak_memory
        yield Case(
            name=f"{size:,} ranks and one liar, {'time' if unit == 's' else 'memory'}",
            contestants=(
                Contestant(name=OURS, prepare=partial(measure, "simulated.py", str(size), unit)),
                Contestant(name=name, prepare=partial(fixed, bound)),
            ),
            goal=Goal(peer=name, ratio=1.0),
            unit=unit,
        )


def fixed(bound: float) -> partial[float]:
    """A figure that is always the same."""
    return partial(float, bound)
