"""Accepted connections that have not proven themselves: how many, for how long, and who goes first.

Decides and counts; closing is the endpoint's. Whoever is turned away has cost one connection's time
and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from rankmuster.transport.base import Identity
from rankmuster.transport.link import Link

UNPROVEN_LIMIT = 256  # connections without a valid hello
HELLO_S = 5.0  # and how long one of them may take
REPLAYS = 4  # of one process's hello: the process itself may have dialled again
IDLE_S = 0.25  # our own processes speak as soon as they are connected

SILENT, HALF, LEFT, LEFT_HALF, CROWDED, REPLAYED = (
    "silent",
    "stopped half-way",
    "left without a word",
    "left half-way",
    "pushed out by newer ones",
    "replayed hello",
)
# What a client of another protocol says first.
OTHERS = {
    b"GET ": "HTTP request",
    b"HEAD": "HTTP request",
    b"POST": "HTTP request",
    b"OPTI": "HTTP request",
    b"\x16\x03": "TLS client",
    b"SSH-": "SSH client",
}


class TurnAway(NamedTuple):
    """A connection to close, and the kind of stranger it was."""

    link: Link
    kind: str


class Guests:
    """Those who knocked or have yet to, oldest first."""

    def __init__(self) -> None:
        self._silent: dict[int, Link] = {}  # no valid hello yet
        self._knocked: defaultdict[Identity, dict[int, Link]] = defaultdict(dict)
        self._who: dict[int, Identity] = {}

    def arrive(self, link: Link) -> list[TurnAway]:
        """A connection was accepted."""
        self._silent[link.handle] = link
        return self.make_room() if len(self._silent) > UNPROVEN_LIMIT else []

    def knock(self, link: Link, identity: Identity) -> list[TurnAway]:
        """It said a valid hello; whether it is the process itself only its next message shows.

        A process that reads its program may take its time for that, so there is no limit to it.
        """
        self._silent.pop(link.handle, None)
        self._who[link.handle] = identity
        same = self._knocked[identity]
        same[link.handle] = link
        oldest = next(iter(same.values()))
        return [TurnAway(oldest, REPLAYED)] if len(same) > REPLAYS else []

    def leave(self, link: Link) -> None:
        """It proved itself, or is gone."""
        self._silent.pop(link.handle, None)
        identity = self._who.pop(link.handle, None)
        if identity is not None:
            del self._knocked[identity][link.handle]
            if not self._knocked[identity]:
                del self._knocked[identity]

    def make_room(self) -> list[TurnAway]:
        """The oldest without a hello goes."""
        oldest = next(iter(self._silent.values()), None)
        return [] if oldest is None else [TurnAway(oldest, CROWDED)]

    def overdue(self, now: float) -> list[TurnAway]:
        """Those whose hello takes too long."""
        return [
            TurnAway(link, HALF if link.began_to_speak else SILENT)
            for link in self._silent.values()
            if now >= link.since + HELLO_S
        ]

    def next_due(self) -> float:
        """When the next one is overdue."""
        oldest = next(iter(self._silent.values()), None)
        return float("inf") if oldest is None else oldest.since + HELLO_S

    def left_over(self, now: float) -> list[TurnAway]:
        """All without a hello, as the door is closed; those who just came are no strangers."""
        return [
            TurnAway(
                link, "" if now < link.since + IDLE_S else HALF if link.began_to_speak else SILENT
            )
            for link in self._silent.values()
        ]


def kind_of(beginning: bytes) -> str:
    """What kind of client begins like this; "" for none that we know."""
    return next((kind for start, kind in OTHERS.items() if beginning.startswith(start)), "")
