"""How a simulated world ended: who said what, who was named, what it cost, and was it as promised.

Values only. The promise (design: never hangs, one answer, names the one at fault) is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec

from rankmuster.finding import Finding
from rankmuster.ranks import fold
from rankmuster.rules import RULES
from rankmuster.testing.faults import Fault
from rankmuster.testing.scenario import Scenario
from rankmuster.testing.virtual_network import Packet

SCHEMA = "rankmuster.simulation/1"
DEAD = frozenset({"killed", "stopped"})
INFORMATION = frozenset({"RM604"})
BRING_UP = frozenset(code for code in RULES if code.startswith("RM6")) | {"RM001", "RM006"}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """When, in which phase and how a process ended: "go", a verdict, "killed", "stopped", "hangs".

    `findings` are those that it was told. A *double* is one that came as another *process* as well.
    """

    process: int
    double: bool = False
    at: float
    phase: str
    how: str
    findings: tuple[Finding, ...] = ()

    @property
    def lives(self) -> bool:
        """Whether it lived to hear an answer, or to wait for one in vain."""
        return self.how not in DEAD


class Said(NamedTuple):
    """A line for people, when and by which process."""

    at: float
    process: int
    line: str


class Hop(NamedTuple):
    """One message of the slowest path: when it was sent and taken, from whom to whom."""

    sent_at: float
    taken_at: float
    source: int
    destination: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What became of a scenario. Times are virtual seconds since it began.

    `phases` holds the longest time that a living process spent in each; `rounds` the longest chain
    of messages that wait for each other, `slowest_path` the one that ends with the last answer.
    """

    scenario: Scenario
    scope: Literal["whole bring-up", "one group"] = "whole bring-up"
    endings: tuple[Ending, ...]
    said: tuple[Said, ...]
    phases: Mapping[str, float]
    messages: int
    payload_bytes: int
    rounds: int
    slowest_path: tuple[Hop, ...]

    @cached_property
    def living(self) -> tuple[Ending, ...]:
        """The processes that were neither killed nor stopped, that of device 0 first.

        Where two say that they are one, which of them comes first is nobody's to choose.
        """
        claimed = {each.process for each in self.scenario.doubles}
        living = [each for each in self.endings if each.lives and each.process not in claimed]
        return tuple(sorted(living, key=lambda each: each.process))

    @property
    def verdict(self) -> str:
        """The one answer of all living processes, "agree" for a go; "split" where there are two."""
        found = {ending.how.replace("go", "agree") for ending in self.living}
        return found.pop() if len(found) == 1 else "split" if found else "nobody is left"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the process says that leads, or else the first one that has something to say."""
        return next((each.findings for each in self.living if each.findings), ())

    @property
    def named(self) -> frozenset[int]:
        """The devices that any living process was given a reason about."""
        return frozenset(
            device
            for ending in self.living
            for found in ending.findings
            if found.code not in INFORMATION
            for device in found.ranks
        )

    @property
    def seconds(self) -> float:
        """When the last living process had its answer."""
        return max((ending.at for ending in self.living), default=0.0)

    @property
    def named_at(self) -> float | None:
        """When somebody was first named, in a line on the way or in an answer."""
        times = [said.at for said in self.said]
        times += [ending.at for ending in self.living if ending.findings]
        return min(times, default=None)

    @property
    def too_late(self) -> tuple[Fault, ...]:
        """The faults of times at which their process had its answer already."""
        answered = {ending.process: ending.at for ending in self.living}
        return tuple(
            fault
            for fault in self.scenario.faults
            if isinstance(fault.when, float)
            and fault.process in answered
            and fault.when > answered[fault.process]
        )

    def broken(self) -> Iterator[str]:
        """Every way in which the promise was not kept."""
        for ending in self.endings:
            if ending.how == "hangs":
                yield f"process {ending.process} hangs in the {ending.phase} phase"
        if self.verdict == "split" and not self._is_roots_last_word():
            told = ", ".join(f"{how} in {fold(who)}" for how, who in sorted(self._hows().items()))
            yield f"there are two answers: {told}"
        went = [each.process for each in self.endings if each.how == "go"]
        if len(set(went)) < len(went) and self.scenario.processes > 1:
            yield f"go was said to two processes with one number, among {fold(went)}"
        innocent = self._blamed() - self.scenario.suspects
        if innocent and self.scenario.decidable:
            yield f"devices {fold(innocent)} are named, and nothing is wrong with them"
        no = self.living and self.verdict not in {"agree", "split"}
        if no and self.scenario.decidable and not self.named:
            yield f"the verdict is {self.verdict}, and nobody is named"

    def _blamed(self) -> frozenset[int]:
        """Those named for what befell, not for what a given program has wrong with it."""
        return frozenset(
            device
            for ending in self.living
            for found in ending.findings
            if found.code in BRING_UP or self.scenario.program is None
            for device in found.ranks
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON prints it."""
        return {
            "schema": SCHEMA,
            "replay": self.scenario.replay,
            "scope": self.scope,
            "verdict": self.verdict,
            "broken": list(self.broken()),
            "world": {"size": self.scenario.world_size, "processes": self.scenario.processes},
            "seconds": self.seconds,
            "named": fold(self.named),
            "named_at": self.named_at,
            "too_late": [fault.option for fault in self.too_late],
            "findings": [each.to_dict() for each in self.findings],
            "endings": [
                {"process": each.process, "how": each.how, "phase": each.phase, "at": each.at}
                for each in self.endings
            ],
            "phases": dict(self.phases),
            "rounds": self.rounds,
            "messages": self.messages,
            "bytes": self.payload_bytes,
            "slowest_path": [hop._asdict() for hop in self.slowest_path],
            "said": [said._asdict() for said in self.said],
        }

    def _hows(self) -> dict[str, list[int]]:
        hows: dict[str, list[int]] = {}
        for ending in self.living:
            hows.setdefault(ending.how, []).append(ending.process)
        return hows

    def _is_roots_last_word(self) -> bool:
        """Whether the root fell, or froze, before the last of its go frames; those without name it.

        No protocol can prevent that one: whoever has the last word may die in the middle of it.
        """
        fell = any(each.process == 0 and not each.lives for each in self.endings)
        froze = any(each.process == 0 and each.kind == "delay" for each in self.scenario.faults)
        root = set(self.scenario.devices(0))
        blames_root = (
            {device for found in each.findings for device in found.ranks} <= root
            for each in self.living
            if each.how != "go"
        )
        return (fell or froze) and "hangs" not in self._hows() and all(blames_root)


def slowest_path(last: Packet | None) -> tuple[Hop, ...]:
    """The chain of messages that ends with *last*, the first one first."""
    hops = []
    while last is not None:
        source, to = last.sender.owner, last.sender.other
        if to is not None:
            ends = source.me.process, to.owner.me.process
            hops.append(Hop(last.sent_at, last.taken_at, *ends, last.name))
        last = last.after
    return tuple(reversed(hops))
