"""One process of a simulated world: where it is in its bring-up, and what befalls it on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rankmuster.bringup import BringUp
from rankmuster.finding import Finding
from rankmuster.launch.base import Place
from rankmuster.protocol.causes import Cause
from rankmuster.resolve import Resolved
from rankmuster.session import Held, Session
from rankmuster.switchboard import Wait, Waits
from rankmuster.testing.faults import Fault
from rankmuster.testing.rehearsed import Ending
from rankmuster.testing.virtual import VirtualEndpoint

SPINS = 1000  # turns in one moment: it is not waiting for anything


class Killed(BaseException):
    """Ends a process in the middle of what it does."""


class Stopped(BaseException):
    """Freezes it there."""


class Liar(BringUp):
    """Hands in the card of one program and forms the groups of another."""

    held: Resolved

    def form_groups(self, resolved: Resolved) -> Waits[Cause | None]:
        """Form the groups, with the signatures of what it really holds."""
        del resolved
        return (yield from super().form_groups(self.held))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A program that is there at once, and a reader that takes its time all the same."""

    read: Callable[[], Held]
    now: Callable[[], float]
    done_at: float

    @property
    def done(self) -> bool:
        """Whether the time is over."""
        return self.now() >= self.done_at

    def result(self) -> Held:
        """The program."""
        return self.read()


@dataclass(slots=True, eq=False, kw_only=True)
class Process:
    """What a rehearsal knows of one process; `ending` is None while it runs.

    `faults` are those still to come, `packets` counts those sent and taken, `phases` holds when
    each began. A *double* says that it is `number` too.
    """

    number: int
    double: bool
    place: Place
    faults: list[Fault]
    endpoint: VirtualEndpoint
    up: BringUp
    steps: Waits[Session]
    wait: Wait | None = None
    alarm: float | None = None
    woken: bool = False
    packets: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    ending: Ending | None = None
    _turned_at: float = -1.0
    _turns: int = 0

    def strike(self, when: str) -> None:
        """Carry out, in the middle of what it does, what befalls it now. Raises to end it."""
        for fault in self.faults:
            if fault.when == when and self.ending is None:
                self.faults = [each for each in self.faults if each is not fault]
                if fault.kind == "kill":
                    raise Killed
                if fault.kind == "stop":
                    raise Stopped
                self.delay(fault.seconds)

    def delay(self, seconds: float) -> None:
        """Let it do nothing for so long."""
        self.endpoint.busy_until = self.endpoint.now() + seconds

    def spins(self, now: float) -> bool:
        """Count one more turn; whether it takes turn after turn without time passing."""
        if self._turned_at != now:
            self._turned_at, self._turns = now, 0
        self._turns += 1
        return self._turns > SPINS

    def ends(self, how: str, at: float, findings: tuple[Finding, ...] = ()) -> Ending:
        """Its ending, where it stands now."""
        return Ending(
            process=self.number,
            double=self.double,
            at=at,
            phase=next(reversed(self.phases), "start"),
            how=how,
            findings=findings,
        )
