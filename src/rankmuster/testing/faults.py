"""What may befall the processes of a simulated world, as values that print as their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

PHASES = ("connect", "read", "census", "bootstrap", "barrier", "closing", "go")
STEP = "step"

Kind: TypeAlias = Literal["kill", "stop", "delay"]
When: TypeAlias = float | str
"""A virtual second, the name of a phase that begins, or "step12" for the packet of that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """*process* is killed, stands still for ever, or is busy for `seconds`, once it is *when*."""

    kind: Kind
    process: int
    when: When
    seconds: float = 0.0

    @property
    def step(self) -> int | None:
        """The number of the packet before which it happens, None for another time."""
        if isinstance(self.when, str) and self.when.startswith(STEP):
            return int(self.when.removeprefix(STEP))
        return None

    @property
    def option(self) -> str:
        """As the command line takes it: `--kill 12@0.3`."""
        when = self.when if isinstance(self.when, str) else f"{self.when:g}"
        more = f"+{self.seconds:g}" if self.kind == "delay" else ""
        return f"--{self.kind} {self.process}@{when}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Double:
    """Another process that says it is *process*, with its devices, from a second host."""

    process: int
    when: float

    @property
    def option(self) -> str:
        """As the command line takes it."""
        return f"--duplicate {self.process}@{self.when:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strangers:
    """So many connections of those that are not ours, to the root's door."""

    number: int
    when: float

    @property
    def option(self) -> str:
        """As the command line takes it."""
        return f"--stranger {self.number}@{self.when:g}"
