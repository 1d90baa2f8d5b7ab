"""One thing that was looked at: how well it is, what was seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """How well something is: an error will break a bring-up, a warning may."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What one check found; `facts` are the numbers behind `message`."""

    name: str
    state: State
    message: str
    fix: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON prints it."""
        return {
            "name": self.name,
            "state": str(self.state),
            "message": self.message,
            "fix": self.fix,
            "facts": dict(self.facts),
        }


def well(name: str, message: str, **facts: Any) -> Checkup:
    """Nothing is wrong with it."""
    return Checkup(name=name, state=State.OK, message=message, facts=facts)


def warning(name: str, message: str, fix: str, **facts: Any) -> Checkup:
    """It may hurt."""
    return Checkup(name=name, state=State.WARNING, message=message, fix=fix, facts=facts)


def error(name: str, message: str, fix: str, **facts: Any) -> Checkup:
    """It will hurt."""
    return Checkup(name=name, state=State.ERROR, message=message, fix=fix, facts=facts)
