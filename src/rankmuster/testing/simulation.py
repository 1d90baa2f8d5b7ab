"""What a simulated world leaves behind: outcomes, costs and a trace that can be replayed.

Values only; `_network` runs the world and `simulate` is the way in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from rankmuster.errors import MusterError
from rankmuster.protocol.steps import Recv, Send

T = TypeVar("T")

Reply: TypeAlias = bytes | MusterError | None
"""What a step is answered: a receive's frame, a send's nothing, or what went wrong."""


class Deadlock(Exception):
    """Nobody can move; `waits` says who waits for whom."""

    def __init__(self, waits: dict[int, int]) -> None:
        shown = [f"{rank} for {peer}" for rank, peer in sorted(waits.items())[:8]]
        more = f", and {len(waits) - 8} more" if len(waits) > 8 else ""
        super().__init__(f"nobody can move: rank {', '.join(shown)}{more}")
        self.waits = waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step of one rank, and what it was answered: a frame, nothing, or an error."""

    rank: int
    step: Send | Recv
    answer: Reply


@dataclass(slots=True, kw_only=True)
class Simulation(Generic[T]):
    """What became of a world: each living rank's outcome, and what it cost.

    `steps` counts each rank's steps, `rounds` the longest chain of messages that wait for each
    other, `time` the virtual time in units of the fastest message.
    """

    outcome: dict[int, T | MusterError] = field(default_factory=dict)
    steps: list[int]
    rounds: int = 0
    messages: int = 0
    payload_bytes: int = 0
    time: float = 0.0
    trace: list[Event] = field(default_factory=list)
