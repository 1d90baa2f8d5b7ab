"""HLO text to a Program, against XLA's own parser: the same file, warm, and mapped for ours.

XLA's parser builds every instruction where we only read collectives: this is what somebody waits
for to get at them, not a contest of parsers.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import dense
import texts
from harness import OURS, Case, Contestant, Figure, Goal, timed

XLA = "jaxlib"
SPEED = {"scheduled": 40, "unscheduled": 4, "explicit": 3, "iota": 1.2}  # how many times XLA's


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: FBT001 - every row's form
    """A JAX dump of growing size, scheduled and not; then modules dense in collectives."""
    for name in ("scheduled", "unscheduled"):
        for size in (2, 20) if quick else (2, 20, 200):
            text = texts.dump(folder, name, size)
            yield case(f"{name}, {size} MB", text, SPEED[name])
            text.path.unlink(missing_ok=True)
    for spelling in ("explicit", "iota"):
        ops = 2_000 if quick else 20_000
        text = dense.text(folder, ops, spelling)
        yield case(f"{ops:,} collectives, {spelling} groups", text, SPEED[spelling])
        text.path.unlink(missing_ok=True)


def case(name: str, text: texts.Text, speed: float) -> Case:
    """One file, read by both."""
    return Case(
        name=name,
        contestants=(
            Contestant(name=OURS, prepare=lambda: ours(text)),
            Contestant(name=XLA, prepare=lambda: jaxlib(text)),
        ),
        goal=Goal(peer=XLA, ratio=1 / speed),
    )


def ours(text: texts.Text) -> Figure:
    """Our reader over the mapped file; it must find every op."""
    from rankmuster.formats import read

    with text.written().open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return timed(
        lambda: read(data, where=text.path.name),
        lambda program: texts.ops_in(program) == text.ops(),
    )


def jaxlib(text: texts.Text) -> Figure:
    """XLA's parser, which wants a `str`."""
    from jaxlib import _hlo

    module = text.written().read_text()
    return timed(lambda: _hlo.hlo_module_from_text(module))
