"""A world of ranks in one thread: the protocols' main test tool, and a feature for people.

It runs the same generators that a real channel drives, over a virtual network and a virtual clock
that *seed* alone decides. An event queue, not a scan: a frame costs its share of a sort.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rankmuster.errors import MusterError
from rankmuster.protocol.steps import Steps, feed
from rankmuster.testing._network import NEVER, Buffered, Rank, Rendezvous, World
from rankmuster.testing.simulation import Event, Reply, Simulation

T = TypeVar("T")


def simulate(
    ranks: Sequence[Steps[T]],
    seed: int = 0,
    *,
    rendezvous: bool = False,
    dies: Mapping[int, int] | None = None,
    stops: Mapping[int, int] | None = None,
    delays: Mapping[int, float] | None = None,
    deadline: float | None = None,
    trace: bool = False,
) -> Simulation[T]:
    """Run every rank of one group to its end, in an order that *seed* alone decides.

    With *rendezvous*, a send completes only when its peer stands at the receive, the strictest
    thing that a real transport may do. `dies={5: 3}` kills rank 5 before its step 3 (from 0): its
    peers hear of it, and frames of it that are under way may be lost. A rank that *stops* falls
    silent and nobody hears of it. *delays* adds to the time of each frame that a rank sends.
    From *deadline* on, each margin ends the waits of the next grace.

    Raises `Deadlock` when nobody can move and no deadline is left.
    """
    kind = Rendezvous if rendezvous else Buffered
    dies, stops, delays = dies or {}, stops or {}, delays or {}
    world: World[T] = kind(
        [
            Rank(n, steps, dies.get(n, NEVER), stops.get(n, NEVER), delays.get(n, 0.0))
            for n, steps in enumerate(ranks)
        ],
        seed,
        trace=trace,
    )
    with collector_paused():
        return world.run(deadline)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cycle collector from walking a hundred thousand generators again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def replay(steps: Steps[T], trace: Sequence[Event]) -> T | MusterError | None:
    """Feed one rank's part of a recorded *trace* to fresh *steps*; return their outcome.

    None where the trace ends before they do. Raises `AssertionError` at the first step that is not
    the recorded one.
    """
    answer: Reply = None
    try:
        for event in trace:
            step = feed(steps, answer)
            assert step == event.step, f"recorded {event.step}, got {step}"
            answer = event.answer
        feed(steps, answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except MusterError as error:
        return error
    return None
