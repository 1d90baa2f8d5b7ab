"""Peak anonymous memory that reading an HLO text adds, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import texts
from harness import OURS, Case, Contestant, Goal
from processes import peak_memory

XLA = "jaxlib"


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: FBT001 - every row's form
    """A JAX dump, scheduled and not."""
    for name in ("scheduled", "unscheduled"):
        for size in (20,) if quick else (20, 200):
            text = texts.dump(folder, name, size)
            yield case(f"{name}, {size} MB", text, 0.01 if name == "scheduled" else None)
            text.path.unlink(missing_ok=True)


def case(name: str, text: texts.Text, ratio: float | None) -> Case:
    """One file, read by both."""

    def contestant(who: str) -> Contestant:
        return Contestant(
            name=who, prepare=lambda: peak_memory("parse.py", who, str(text.written()))
        )

    goal = None if ratio is None else Goal(peer=XLA, ratio=ratio)
    return Case(name=name, contestants=(contestant(OURS), contestant(XLA)), goal=goal, unit="B")
