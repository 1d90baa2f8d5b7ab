"""What connections, frames and a small world cost on this machine: measured, not guessed."""

from __future__ import annotations

import contextlib
import os
import time

import msgspec

from rankmuster.doctor.expected import PHASES, Costs
from rankmuster.errors import SetupFailed
from rankmuster.launch.local import spawn
from rankmuster.session import muster
from rankmuster.testing.scenario import usual_program
from rankmuster.transport.base import Identity, Joined, Received, Role
from rankmuster.transport.framing import Frame, Kind
from rankmuster.transport.handshake import Credentials
from rankmuster.transport.tcp import TcpEndpoint

CONNECTIONS = 16
FRAMES = 64
WORLD = 4  # processes of the real one
WORLD_S = 10.0
MEASURE_S = 2.0


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
