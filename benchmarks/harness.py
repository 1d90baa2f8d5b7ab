"""What a benchmark row is made of, and how ours and its peers are measured in turns.

A row is a module in `rows/` with one function, `cases(folder, quick)`, that yields `Case`s and may
write inputs into the folder. A case names its contestants; a contestant prepares itself and then
gives one figure per call, in seconds or bytes. On a shared machine only ratios of figures from one
interleaved run mean something, so every round asks each contestant once.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, TypeVar

T = TypeVar("T")
Figure = Callable[[], float]
Unit = Literal["s", "B"]

LEAST_S = 0.02  # a shorter call is repeated until one figure takes this long
OURS = "rankmuster"


class Missing(Exception):
    """A contestant cannot take part here; the text says why."""


class WrongAnswer(Exception):
    """A contestant's result is not the right one, so its speed means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Ours or a peer: `prepare` imports it, loads its input and returns what gives one figure.

    An ImportError or `Missing` from `prepare` becomes the reason why it is missing.
    """

    name: str
    prepare: Callable[[], Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Ours may be at most this many times `peer`'s figure, or this much more than it."""

    peer: str
    ratio: float | None = None
    more: float | None = None  # in the unit of the case

    def met(self, ours: float, theirs: float) -> bool:
        """Whether figures of ours and of the peer reach the goal."""
        if self.ratio is not None:
            return ours <= self.ratio * theirs
        return self.more is not None and ours - theirs <= self.more


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table: one input, ours first, then its peers."""

    name: str
    contestants: Sequence[Contestant]
    goal: Goal | None = None
    unit: Unit = "s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One contestant's figures, or why there are none."""

    name: str
    figures: tuple[float, ...] = ()
    missing: str = ""

    @property
    def median(self) -> float:
        """The middle figure."""
        return statistics.median(self.figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A case and what became of it."""

    row: str
    case: Case
    scores: tuple[Score, ...]

    @property
    def ours(self) -> Score:
        """Our own score, which is the first."""
        return self.scores[0]

    def ratio(self, peer: Score) -> float | None:
        """Our median over the peer's; None where either is missing."""
        both = self.ours.figures and peer.figures and peer.median > 0
        return self.ours.median / peer.median if both else None

    def verdict(self) -> str:
        """`met`, `missed`, `missing`, or nothing where the case has no goal."""
        if self.case.goal is None:
            return ""
        peer = next(score for score in self.scores if score.name == self.case.goal.peer)
        if not (self.ours.figures and peer.figures):
            return "missing"
        return "met" if self.case.goal.met(self.ours.median, peer.median) else "missed"


@dataclass(slots=True)
class Entry:
    """A contestant on its way: first it gets ready, then each turn gives a figure."""

    contestant: Contestant
    figure: Figure | None = None
    figures: tuple[float, ...] = ()
    missing: str = ""

    def take_turn(self) -> None:
        """Get ready or give one more figure; who fails once is out."""
        if self.missing:
            return
        gc.collect()
        try:
            if self.figure is None:
                self.figure = self.contestant.prepare()
            else:
                self.figures += (self.figure(),)
        except (ImportError, Missing, WrongAnswer) as error:
            self.figures, self.missing = (), str(error)

    def score(self) -> Score:
        """What came of it."""
        return Score(name=self.contestant.name, figures=self.figures, missing=self.missing)


def run(row: str, case: Case, rounds: int) -> Result:
    """Measure *case*: after getting ready, each contestant once in each of *rounds* rounds."""
    entries = [Entry(contestant) for contestant in case.contestants]
    for _ in range(1 + rounds):
        for entry in entries:
            entry.take_turn()
    return Result(row=row, case=case, scores=tuple(entry.score() for entry in entries))


def timed(call: Callable[[], T], is_right: Callable[[T], bool] | None = None) -> Figure:
    """Seconds that one *call* takes in this process, after one to warm up.

    Raises `WrongAnswer` where *is_right* is given and refuses what the first call returns.
    """
    start = perf_counter()
    answer = call()
    once = perf_counter() - start
    if is_right is not None and not is_right(answer):
        raise WrongAnswer(f"wrong answer: {str(answer)[:60]}")
    del answer
    calls = max(1, round(LEAST_S / max(once, 1e-9)))

    def figure() -> float:
        start = perf_counter()
        for _ in range(calls):
            call()
        return (perf_counter() - start) / calls

    return figure
