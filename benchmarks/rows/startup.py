"""Commands of ours over a bare interpreter, processes started anew each time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from harness import OURS, Case, Contestant, Figure, Goal, Missing
from processes import wall
from texts import EXAMPLES

BARE = "python -c pass"


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: ARG001, FBT001 - every row's form
    """`--help`, which imports what every command does; and a whole check, in half a second."""
    yield case("rankmuster --help", "--help", more=0.100)
    yield case("check of a 152 kB dump", "check", str(EXAMPLES / "step.hlo"), more=0.480)


def case(name: str, *arguments: str, more: float) -> Case:
    """One command against an interpreter that does nothing."""
    return Case(
        name=name,
        contestants=(
            Contestant(name=OURS, prepare=lambda: ours(*arguments)),
            Contestant(name=BARE, prepare=lambda: wall(sys.executable, "-c", "pass")),
        ),
        goal=Goal(peer=BARE, more=more),
    )


def ours(*arguments: str) -> Figure:
    """The installed command, as people start it."""
    command = Path(sys.prefix) / "bin" / "rankmuster"
    if not command.is_file():
        raise Missing(f"no command rankmuster beside {sys.executable}")
    return wall(str(command), *arguments)
