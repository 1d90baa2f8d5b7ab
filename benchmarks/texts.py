"""HLO texts of any size that XLA's own parser accepts, made from what JAX really prints."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from processes import output

from rankmuster.formats import read
from rankmuster.program import Program

EXAMPLES = Path(__file__).parents[1] / "examples"
NAME = re.compile(rb"%[\w.-]+")
WEIGHTS = 3  # the step takes them first and returns them first
MB = 10**6
Ops = Callable[[], int]


@dataclass(kw_only=True)
class Text:
    """A file that is written when the first contestant asks for it.

    `make` returns what our reader must find, and the text in pieces.
    """

    path: Path
    make: Callable[[], tuple[Ops, Iterable[bytes]]]
    ops: Ops = int

    def written(self) -> Path:
        """The path of the file, which is there now."""
        if not self.path.exists():
            self.ops, pieces = self.make()
            with self.path.open("wb") as file:
                file.writelines(pieces)
        return self.path


def dump(folder: Path, name: str, megabytes: int) -> Text:
    """A JAX dump, `scheduled` or `unscheduled`, brought to a size."""

    def make() -> tuple[Ops, Iterable[bytes]]:
        module = scheduled() if name == "scheduled" else unscheduled(folder)
        steps, pieces = repeated(module, megabytes * MB)
        return lambda: steps * ops_in(read(module)), pieces

    return Text(path=folder / f"{name}_{megabytes}.hlo", make=make)


def ops_in(program: Program) -> int:
    """How many places in a program post an op."""
    return sum(1 for _ in program.walk())


def scheduled() -> bytes:
    """The example's optimised, scheduled module."""
    return (EXAMPLES / "step.hlo").read_bytes()


def unscheduled(folder: Path) -> bytes:
    """The same module as XLA dumps it before its passes; needs JAX."""
    flags = f"--xla_force_host_platform_device_count=8 --xla_dump_to={folder}"
    flags += " --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_step"
    command = (sys.executable, str(EXAMPLES / "dump.py"), "--only", "step", "--to", str(folder))
    output(*command, XLA_FLAGS=flags)
    return next(folder.glob("*.jit_step.before_optimizations.txt")).read_bytes()


def repeated(module: bytes, size: int) -> tuple[int, Iterator[bytes]]:
    """*module* with so many steps, each in computations of its own, that it is about *size* bytes.

    Returns how many steps, and the text in pieces. A new entry calls one copy of the old entry
    after the other; each takes the weights that the one before it returned.
    """
    start = re.search(rb"^(?:ENTRY )?%", module, re.MULTILINE)
    entry = re.search(rb"^ENTRY (%[\w.-]+) (\(.*\{\n)", module, re.MULTILINE)
    assert start is not None
    assert entry is not None
    head, body = module[: start.start()], module[start.start() :].replace(b"\nENTRY %", b"\n%")
    steps = max(1, (size - len(head)) // len(body))
    return steps, _pieces(
        head, body, _chain(module[entry.end() :], entry[1], entry[2], steps), steps
    )


def _pieces(head: bytes, body: bytes, entry: bytes, steps: int) -> Iterator[bytes]:
    """The header, *steps* copies of all computations under new names, and the entry."""
    cuts = [0, *(found.end() for found in NAME.finditer(body)), len(body)]
    between = [body[a:b] for a, b in pairwise(cuts)]
    yield head
    for step in range(steps):
        yield (b".c%d" % step).join(between)
        yield b"\n"
    yield entry


def _chain(old: bytes, name: bytes, signature: bytes, steps: int) -> bytes:
    """An entry of *steps* calls of copies of the entry *name*, whose lines are *old*."""
    parameters = re.findall(
        rb"^  (?:ROOT )?(%[\w.-]+) = (.*? parameter\((\d+)\).*\n)", old, re.MULTILINE
    )
    parameters.sort(key=lambda each: int(each[2]))
    root = re.search(rb"^  ROOT %[\w.-]+ = (\(.*?\)) tuple\(", old, re.MULTILINE)
    assert root is not None
    shapes = re.findall(rb"[a-z]\w*\[[^\]]*\](?:\{[^}]*\})?", root[1])
    lines = [b"ENTRY %%all_steps %s" % signature]
    lines += [b"  %s = %s" % each[:2] for each in parameters]
    arguments = [each[0] for each in parameters]
    for step in range(steps):
        is_last = b"ROOT " if step == steps - 1 else b""
        call = b"  %s%%step.%d = %s call(%s), to_apply=%s.c%d\n"
        lines.append(call % (is_last, step, root[1], b", ".join(arguments), name, step))
        if is_last:
            break
        for place in range(WEIGHTS):
            arguments[place] = b"%%weight.%d.%d" % (step, place)
            take = b"  %s = %s get-tuple-element(%%step.%d), index=%d\n"
            lines.append(take % (arguments[place], shapes[place], step, place))
    return b"".join([*lines, b"}\n"])
