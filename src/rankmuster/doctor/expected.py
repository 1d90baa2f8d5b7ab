"""How long a bring-up should take, phase by phase, and that number kept for a run to print.

From what things cost here (`costs`) and the shape of the protocol: one connection to the root each,
two trees a group. Waiting for people, schedulers and file systems is not in it. A bring-up imports
this to print what was foretold, so it imports little itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

PHASES = ("census", "bootstrap", "barrier", "closing")
KEPT = 64  # worlds in the file, the last ones


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of both ends together to open a connection and to move a frame.

    `work_s` are those of one process in each phase, alone on one core.
    """

    connection_s: float
    frame_s: float
    work_s: dict[str, float]


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a world of so many processes should take, in seconds by phase."""

    processes: int
    phases: dict[str, float]

    @property
    def total_s(self) -> float:
        """All phases together."""
        return sum(self.phases.values())


def expect(processes: int, costs: Costs, *, round_trip_s: float, cores: int) -> Expected:
    """The times of a world of *processes* of which *cores* run at once, on all machines together.

    The root serves all others by itself, the others work side by side, and each round of a tree
    costs the network's round trip.
    """
    rounds = 2 * (processes - 1).bit_length()  # up one tree, down the other
    served = {
        "census": costs.connection_s + 2 * costs.frame_s,  # a connection, a card, a plan
        "closing": 2 * costs.frame_s,  # a report, an answer
    }
    trips = {"census": 2.5, "bootstrap": 2.5 * rounds, "barrier": 0.5 * rounds, "closing": 1.0}
    side_by_side = max(1.0, processes / cores)
    return Expected(
        processes=processes,
        phases={
            phase: max(served.get(phase, 0.0) * processes, costs.work_s[phase] * side_by_side)
            + trips[phase] * round_trip_s
            for phase in PHASES
        },
    )


def store(expected: Expected, environ: Mapping[str, str]) -> Path | None:
    """Keep it for later runs; None where the state folder cannot be written."""
    import tempfile

    path = _file(environ)
    kept = {each.processes: each for each in _read(path)}
    kept.pop(expected.processes, None)
    worlds = [*kept.values(), expected][-KEPT:]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(msgspec.json.encode(worlds))
        Path(file.name).replace(path)  # whole or not at all
    except OSError:
        return None
    return path


def recall(processes: int, environ: Mapping[str, str]) -> Expected | None:
    """What `store` kept for a world of so many processes."""
    return next((each for each in _read(_file(environ)) if each.processes == processes), None)


def beside(timings: Mapping[str, float], expected: Expected) -> str:
    """One line for people: each phase's time, and what was expected of it."""
    told = ", ".join(
        f"{phase} {timings[phase] * 1e3:.1f} ({expected.phases[phase] * 1e3:.1f})"
        for phase in PHASES
        if phase in timings and phase in expected.phases
    )
    return f"milliseconds, and what rankmuster doctor expected: {told}"


def _file(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "rankmuster" / "expected.json"


def _read(path: Path) -> list[Expected]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Expected])
    except (OSError, msgspec.DecodeError, RuntimeError):  # no file, none of ours, or no home
        return []
