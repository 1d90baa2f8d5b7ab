"""How long a bring-up should take, phase by phase, and that number kept for a run to print.

From a real bring-up of a few processes here, what a connection and a frame cost over loopback, and
the shape of the protocol: one connection to the root each, two trees a group. Waiting for people,
schedulers and file systems is not in it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rankmuster.errors import SetupFailed
from rankmuster.launch.local import spawn
from rankmuster.session import muster
from rankmuster.testing.scenario import usual_program
from rankmuster.transport.base import Identity, Joined, Received, Role
from rankmuster.transport.framing import Frame, Kind
from rankmuster.transport.handshake import Credentials
from rankmuster.transport.tcp import TcpEndpoint

PHASES = ("census", "bootstrap", "barrier", "closing")
CONNECTIONS = 16
FRAMES = 64
WORLD = 4  # processes of the real one
WORLD_S = 10.0
MEASURE_S = 2.0
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


def measure(cores: int) -> Costs:
    """What things cost here, where *cores* processes run at once. Raises what `spawn` does.

    Forks: call it before there are threads.
    """
    work_s = _work(min(cores, WORLD))
    credentials = Credentials(os.urandom(32), os.urandom(16), 0)
    listener = TcpEndpoint(credentials, Identity(0, 0, 1), lambda: os.urandom(16))
    dialler = TcpEndpoint(credentials, Identity(1, 1, 1), lambda: os.urandom(16))
    with contextlib.closing(listener), contextlib.closing(dialler):
        address = listener.listen("127.0.0.1")
        until = time.monotonic() + MEASURE_S
        for _ in ("to warm up", "to measure"):
            start = time.monotonic()
            for _ in range(CONNECTIONS):  # one by one: who dials often at once is a replay
                handle = dialler.dial(address, Role.PEER)
                _turn(dialler, listener, Joined, until)
            joined = time.monotonic()
        for _ in range(FRAMES):
            dialler.send(handle, Frame(Kind.GROUP, bytes(129), bytes(16), 1, 0))
            _turn(dialler, listener, Received, until)
        done = time.monotonic()
    return Costs(
        connection_s=(joined - start) / CONNECTIONS, frame_s=(done - joined) / FRAMES, work_s=work_s
    )


def _work(cores: int) -> dict[str, float]:
    """What each phase of a real bring-up took, per process and core."""
    held = usual_program(WORLD)

    def come_up() -> bytes:
        with muster(held, deadline_s=WORLD_S) as session:
            return msgspec.json.encode(dict(session.report.timings))

    code, said = spawn(come_up, WORLD, deadline_s=WORLD_S)[0]
    if code:
        raise SetupFailed(f"a bring-up of {WORLD} processes ended with code {code}")
    took = msgspec.json.decode(said, type=dict[str, float])
    return {phase: took[phase] * cores / WORLD for phase in PHASES}


def _turn(dialler: TcpEndpoint, listener: TcpEndpoint, kind: type, until: float) -> None:
    """Turn both ends until the listener has an event of that *kind*."""
    while time.monotonic() < until:
        dialler.poll(0.0)
        if any(isinstance(event, kind) for event in listener.poll(0.0)):
            return


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
