"""Joins the pure parts of a bring-up to an endpoint and a clock: one loop, one thread.

Messages of the census go to and from the root, frames of groups to and from the process that holds
their device, frames of the closing round over the census connections. Until go, processes of the
root's host reach each other by the root: a connection costs far more than a frame. It carries and
never decides: the root, the groups and the closing round do, and `bringup` says what to wait for.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import Counter, deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from rankmuster.census import Card, Census, margin_s
from rankmuster.doorway import Doorway
from rankmuster.errors import InvariantError, RemoteProtocolError
from rankmuster.finding import Finding, finding
from rankmuster.launch.base import Place
from rankmuster.peers import Peers
from rankmuster.protocol.closing import Answer
from rankmuster.protocol.groups import Multiplexer
from rankmuster.pulse import Pulse
from rankmuster.ranks import unfold
from rankmuster.root import (
    OWN,
    Ask,
    Copy,
    Gone,
    Message,
    Plan,
    Root,
    Strangers,
)
from rankmuster.transport.base import (
    Connections,
    Deadline,
    Event,
    Joined,
    Knocked,
    Lost,
    Received,
    Role,
)
from rankmuster.transport.framing import Frame, Kind
from rankmuster.transport.handshake import Credentials
from rankmuster.transport.tcp import TcpEndpoint
from rankmuster.version import VERSION
from rankmuster.world import World

KIND_OF: dict[type[Message], Kind] = {
    Card: Kind.CARD,
    Ask: Kind.ASK,
    Copy: Kind.PROGRAM,
    Plan: Kind.PLAN,
    Gone: Kind.GONE,
    Strangers: Kind.STRANGERS,
}
# Made once: a decoder looks through all of its types first.
DECODERS: dict[Kind, msgspec.json.Decoder[Message]] = {
    kind: msgspec.json.Decoder(message) for message, kind in KIND_OF.items()
}
FROM_ROOT = {Kind.ASK, Kind.PLAN, Kind.GONE}
BETWEEN_PEERS = {Kind.GROUP, Kind.CALLER}
CLOSING_KEY = b"closing"
BEAT_SHARE = 0.25  # of a margin: who waits looks at the clock so often
DRAIN_S = 1.0
LINGER_S = 2.0
REACH_S = 1.0  # how long the first connection is waited for before the program is read,
HEARD_S = 0.05  # and the root's word on it
KINDS = 16  # of strangers that a report lists
PARKED_FRAMES = 1 << 16  # that came before we knew our neighbours
PARKED_BYTES = 64 << 20  # that came before their group, or the caller, asked for them
T = TypeVar("T")


class Wait(NamedTuple):
    """What a bring-up asks of its driver: turn until *done*, or at most to the time *until*."""

    done: Callable[[], bool]
    until: float


Waits: TypeAlias = Generator[Wait, bool, T]
"""Steps of a bring-up that wait; each wait is answered by whether it was done in time."""


class Switchboard:
    """One process's connections in one bring-up, and what goes over them.

    `plan` is None until the root's word on the census came; `groups` and `closing` may be added to
    from then on. `root` is the root's own side, on the process that has it. *say* takes lines for
    people.
    """

    def __init__(
        self,
        place: Place,
        deadline: Deadline,
        say: Callable[[str], None],
        endpoint: Connections | None = None,
    ) -> None:
        self.place, self.deadline = place, deadline
        beat_s = BEAT_SHARE * margin_s(deadline.whole_s)
        self.pulse = Pulse(looked_at=deadline.now(), beat_s=beat_s)
        self.root: Root | None = None
        self.root_lost = ""
        self.asked: deque[Ask] = deque()
        self.plan: Plan | None = None
        self.answer_by = deadline.at
        self.answered = False  # from then on everybody leaves when it likes
        self.peers = Peers()
        self.groups: Multiplexer[bytes, Any] = Multiplexer(place.devices, parked_bytes=PARKED_BYTES)
        self.groups_kind = Kind.GROUP
        self.closing: Multiplexer[bytes, Answer] = Multiplexer(())
        credentials = Credentials(place.secret, place.job, place.epoch)
        self.endpoint: Connections = endpoint or TcpEndpoint(
            credentials, place.identity, lambda: secrets.token_bytes(16)
        )
        self.doorway = Doorway(place, self.endpoint)
        self._say = say
        self._root_handle = OWN
        self._rival = OWN
        """Another connection of a root: to where the others look for one, if that is elsewhere."""
        self._parked: list[Received] = []
        self._parked_bytes = 0
        self._turned_away: Counter[str] = Counter()  # by other processes

    def reach_root(self, *, heard: bool) -> Waits[None]:
        """Show the root that we are here; if what follows may take long, wait to be *heard*."""
        place = self.place
        if place.is_root:
            world = World(size=place.world_size, source="launcher")
            answer_by = self.deadline.at - margin_s(self.deadline.whole_s)
            census = Census(world, VERSION, answer_by=answer_by, pulse=self.pulse)
            self.root = Root(census, self.now())
            self.root.knock(OWN, *place.identity)
            self.root.census.join(OWN)
            self.doorway.open_for_census()
            for note in place.notes:
                self._say(note)
            if self.doorway.is_elsewhere():
                self._rival = self.endpoint.dial(place.root, Role.CENSUS)
            if place.deaths is not None:
                self.endpoint.watch(place.deaths, self._hear_deaths)
        else:
            self._root_handle = self.endpoint.dial(
                place.root, Role.CENSUS, patient=not place.root_listens
            )
            self.peers.reach_root(self._root_handle)
        if place.lifeline is not None:
            self.endpoint.watch(place.lifeline, _die)
        if place.is_root:
            self.turn(0.0)
            return
        # The root may be reading itself. It is enough to have spoken; better to be heard.
        now = self.deadline.now()
        yield Wait(self.endpoint.has_spoken, min(self.deadline.at, now + REACH_S))
        if heard:
            yield Wait(self.endpoint.settled, min(self.deadline.at, now + HEARD_S))

    def listen(self) -> str:
        """Open a door for our peers; return the address on which they reach it."""
        return self.doorway.open_for_peers(self._root_handle)

    def unreached(self) -> dict[int, str]:
        """By seat, the address where nobody answers of each process that we have something for."""
        there = self.doorway.unreached()
        dialled = self.peers.seats_dialled().items()
        return {seat: there[handle] for handle, seat in dialled if handle in there}

    def root_trouble(self) -> str:
        """Where the root was dialled, and what is wrong there; "" where it is connected."""
        return self.doorway.unreached().get(self._root_handle, "")

    def tell_root(self, message: Message) -> None:
        """Say something to the root, which may be our own."""
        if self.root is not None:
            if self._rival != OWN and isinstance(message, Card):
                self._send(self._rival, message)
            self.root.receive(OWN, message, self.now())
            self._settle()
        else:
            self._send(self._root_handle, message)

    def tell_strangers(self) -> None:
        """Report whom we turned away at our own door, before the last answer."""
        if self.root is None and self.endpoint.strangers:
            self.tell_root(Strangers(kinds=dict(self.endpoint.strangers)))

    def strangers(self) -> tuple[Finding, ...]:
        """Who was turned away at our door and at the others', by kind (RM604)."""
        counts = self.endpoint.strangers + self._turned_away
        if not counts:
            return ()
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common(KINDS))
        elsewhere = self._turned_away.total()
        where = f" ({elsewhere} of them at other processes)" if elsewhere else ""
        found = [finding("RM604", f"refused {counts.total()} connections{where}: {kinds}")]
        if (wrong := counts["wrong secret"]) and self.plan is not None and self.plan.absent:
            message = f"{wrong} connections came with another secret, and some process is missing"
            found.append(finding("RM606", message, ranks=self.plan.absent))
        return tuple(found)

    def close(self) -> None:
        """Close every connection; what a caller's exchange still owes its peers goes out first."""
        if self.groups_kind is Kind.CALLER:
            self.groups_kind = Kind.GROUP
            self.turn(0.0)
            self._pump(Wait(self.endpoint.idle, self.deadline.now() + DRAIN_S))
        self.groups.close()
        self.closing.close()
        self.endpoint.close()

    # the loop

    def linger(self) -> Waits[None]:
        """After a no, be there a moment for those who are about to come, and want to know why."""
        root, everybody = self.root, self.place.processes
        if root is not None:
            until = min(self.deadline.at, self.deadline.now() + LINGER_S)
            yield Wait(lambda: root.done_with(everybody), until)

    def drain(self) -> Waits[None]:
        """Write out what is queued: the root's answers must leave before the root does."""
        self._settle()
        self._drop_rival()
        if not self.endpoint.idle():
            self.turn(0.0)  # else the first turn waits, though all is written at its beginning
            yield Wait(self.endpoint.idle, min(self.deadline.at, self.deadline.now() + DRAIN_S))

    def finish(self) -> Waits[None]:
        """After the last answer: write it out, and let nobody in through the root's door."""
        yield from self.drain()
        self.doorway.close_for_census()

    def drive(self, steps: Waits[T]) -> T:
        """Carry out *steps* in this thread, and wait for whatever they wait for."""
        with contextlib.closing(steps):
            try:
                wait = next(steps)
                while True:
                    wait = steps.send(self._pump(wait))
            except StopIteration as stop:
                result: T = stop.value
                return result

    def answer(self, wait: Wait) -> bool | None:
        """Whether *wait* was done in time; None while that is open."""
        if wait.done():
            return True
        over = self.now() >= wait.until or (self.root_lost and self.plan is None)
        return False if over else None

    def next_look(self, wait: Wait) -> float:
        """When to turn again for *wait* if nothing comes in."""
        until = min(wait.until, self.now() + self.pulse.beat_s)
        if self.root is not None and self.plan is None:
            return min(until, self.root.next_look(self.now()))
        return until

    def _pump(self, wait: Wait) -> bool:
        while (answer := self.answer(wait)) is None:
            self.turn(self.next_look(wait) - self.now())
        return answer

    def turn(self, wait_s: float) -> None:
        """Once around: say what there is to say, and take what comes within *wait_s*."""
        self._settle()
        self.now()
        unseen_since = self.pulse.unseen_since
        events = self.endpoint.poll(wait_s)
        self.now()
        for event in events:
            self._take(event)
        self.pulse.took_all(unseen_since)
        self._settle()

    def now(self) -> float:
        """The time, and a look at whether we stood still."""
        now = self.deadline.now()
        self.pulse.look(now)
        return now

    def _settle(self) -> None:
        """Carry out what the pure parts have decided."""
        root = self.root
        if root is not None:
            now = self.now()
            root.look(now)
            for handle, message in root.outgoing():
                if handle == OWN:
                    self._hear(message)
                else:
                    self._send(handle, message)
            if note := root.note(now):
                self._say(note)
        for key, source, destination, payload in self.groups.outgoing():
            handle = self._way_to(self.peers.seat_of(destination))
            self.endpoint.send(handle, Frame(self.groups_kind, payload, key, source, destination))
        if self.groups_kind is Kind.CALLER:
            self._watch_awaited()
        for _, source, destination, payload in self.closing.outgoing():
            handle = self.root.seats[destination] if self.root else self._root_handle
            frame = Frame(Kind.CLOSING, payload, source=source, destination=destination)
            self.endpoint.send(handle, frame)

    def _watch_awaited(self) -> None:
        """See whom we wait for leave: until go its frames came by the root."""
        for device in set(self.groups.waiting().values()):
            if (seat := self.peers.seat_of(device)) in self.peers.by_root:
                self._way_to(seat)

    def _way_to(self, seat: int) -> int:
        """The connection on which we send to a process: a new one, where there is none."""
        peers = self.peers
        handle = peers.way_to(seat, by_root=self.groups_kind is Kind.GROUP)
        if handle is None:
            assert self.plan is not None
            address = self.plan.addresses.get(seat)
            if address is None:
                raise InvariantError(f"the card did not say that process {seat} will be dialled")
            # Who has an address has a door: on the root's host, where nothing is in between, it is
            # gone if nobody listens.
            patient = seat not in peers.by_root
            handle = self.endpoint.dial(address, Role.PEER, patient=patient)
            peers.dial(seat, handle)
        return handle

    def _take(self, event: Event) -> None:
        if isinstance(event, Received):  # by itself, for it is by far the most frequent
            handle, frame = event
            try:
                self._take_frame(handle, frame)
            except (RemoteProtocolError, msgspec.DecodeError) as error:
                self.endpoint.drop(handle)
                self._take_loss(handle, f"it sent what cannot be understood: {error}")
            return
        match event:
            case Knocked(handle, identity, Role.CENSUS) if self.root is not None:
                self.root.knock(handle, *identity)
            case Joined(handle, identity, Role.CENSUS) if self.root and handle != self._rival:
                if (ends := self.doorway.ends(handle)) is not None:
                    self.root.ends[handle] = ends
                self.root.join(handle, *identity)
            case Knocked(handle, identity, Role.PEER):
                self.peers.knock(handle, identity)
            case Joined(handle, identity, Role.PEER):
                self.peers.join(handle, identity)
            case Lost(handle, why):
                self._take_loss(handle, why)

    def _take_frame(self, handle: int, frame: Frame) -> None:
        if self.peers.is_passed_on(frame.destination) and frame.kind is Kind.GROUP:
            self._pass_on(handle, frame)
        elif frame.kind in BETWEEN_PEERS and self.peers.seating:
            self.groups.receive(frame.key, frame.source, frame.destination, frame.payload)
        elif frame.kind in BETWEEN_PEERS:
            self._parked_bytes += len(frame.payload)
            if len(self._parked) >= PARKED_FRAMES or self._parked_bytes > PARKED_BYTES:
                raise RemoteProtocolError("too many frames before the plan")
            self._parked.append(Received(handle, frame))
        elif frame.kind is Kind.CLOSING:
            self.closing.receive(CLOSING_KEY, frame.source, frame.destination, frame.payload)
        elif (frame.kind in FROM_ROOT) != (handle in {self._root_handle, self._rival}):
            raise RemoteProtocolError(f"a {frame.kind.name} frame from the wrong side")
        else:
            self._take_message(handle, DECODERS[frame.kind].decode(frame.payload))

    def _take_message(self, handle: int, message: Message) -> None:
        root = self.root
        if handle == self._root_handle:
            self._hear(message)
        elif root is None:
            pass
        elif handle == self._rival:
            self._hear_rival(message)
        elif isinstance(message, Strangers):
            self._turned_away.update(message.kinds)
        elif isinstance(message, Card) and self._is_own(message):
            self.endpoint.drop(handle)  # the address led back to us: it is translated
            root.forget(handle)
            self._drop_rival()
        else:
            root.receive(handle, message, self.now())

    def _is_own(self, card: Card) -> bool:
        place = self.place
        return (card.process, card.host, card.pid) == (place.process, place.host, place.pid)

    def _hear_rival(self, message: Message) -> None:
        """To the others the other root is the only one: if it says no, so do we, and why it did."""
        if isinstance(message, Plan) and self.plan is None and not message.go_on:
            self.root, self._root_handle, self._rival = None, self._rival, OWN
            self._hear(message)

    def _drop_rival(self) -> None:
        if self._rival != OWN:
            self.endpoint.drop(self._rival)
            self._rival = OWN

    def _pass_on(self, handle: int, frame: Frame) -> None:
        onward = self.peers.passed_on(handle, frame.source, frame.destination)
        if onward is None:
            raise RemoteProtocolError(f"a frame of device {frame.source} came from another process")
        self.endpoint.send(onward, frame)

    def _take_loss(self, handle: int, why: str) -> None:
        root = self.root
        if self.plan is not None:
            if (seat := self.peers.lose(handle)) is not None:
                self._lose_connection(handle, seat, why)
        elif root is not None:
            root.lose(handle, why, self.now())
        elif handle == self._root_handle:
            self.root_lost = why

    def _lose_connection(self, handle: int, seat: int, why: str) -> None:
        """One connection with a process of the plan has ended."""
        if self.peers.has_left(seat):
            self._lose_seat(seat, why)
        # The answer may be on the census' connection: a root that has said go may leave.
        if self.peers.is_census(handle):
            self.closing.lost(seat, why)
        if handle == self._root_handle and not self.closing.outcome:
            self.groups.expire()  # the answer can only be no: say so to whoever waits for us
        if self.root is not None and not self.answered:
            for other in self.root.seats[1:]:
                self._send(other, Gone(process=seat, why=why))

    def _send(self, handle: int, message: Message) -> None:
        self.endpoint.send(handle, Frame(KIND_OF[type(message)], msgspec.json.encode(message)))

    def _hear(self, message: Message) -> None:
        match message:
            case Ask():
                self.asked.append(message)
            case Plan():
                if self.place.at_plan is not None:
                    self.place.at_plan()
                self.plan = message
                # A root that stood still meanwhile means another time.
                latest = self.deadline.at - margin_s(self.deadline.whole_s)
                self.answer_by = min(self.now() + message.answer_s, latest)
                self._take_seats(message)
            case Gone(process=process, why=why):
                self._lose_seat(process, why)

    def _lose_seat(self, seat: int, why: str) -> None:
        if self.peers.seating is None:
            return
        self.peers.gone.add(seat)
        for device in self.peers.seating.devices_of(seat):
            self.groups.lost(device, why)

    def _take_seats(self, plan: Plan) -> None:
        """Learn who is where; there is no seating where the plan is to end."""
        if plan.seating is None:
            return
        peers = self.peers
        peers.take_seats(plan.seating, min(self.place.devices), unfold(plan.local))
        if self.root is not None:
            peers.lead(self.root.seats)
        if self.place.transport is None:
            peers.meet_at_root()
        self.closing = Multiplexer((peers.seat,))
        parked, self._parked = self._parked, []
        for event in parked:
            self._take(event)

    def _hear_deaths(self) -> None:
        assert self.place.deaths is not None
        chunk = os.read(self.place.deaths, 1 << 16)
        if not chunk:
            _die()
        for line in chunk.splitlines():
            process, _, devices = line.decode().partition(" ")
            if self.root is not None:
                self.root.die(int(process), unfold(devices), self.deadline.now())


def _die() -> None:
    """The launcher is gone, and with it whoever could want our answer."""
    os._exit(1)
