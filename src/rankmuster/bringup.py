"""One process's part in a bring-up, from the first connection to the root's answer.

Joins the pure parts (root, groups, closing round) to an endpoint and a clock, in one loop and one
thread. It knows no launcher and no file: its place is given to it, and so is its card.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from rankmuster.census import Card, Census, margin_s
from rankmuster.errors import MusterError, RemoteProtocolError
from rankmuster.finding import Finding, finding
from rankmuster.group import SubGroup
from rankmuster.launch.base import Place
from rankmuster.program import Program
from rankmuster.protocol.bootstrap import bootstrap
from rankmuster.protocol.causes import Cause
from rankmuster.protocol.closing import Answer, blame, closing
from rankmuster.protocol.frames import NO_SIGNATURE, NO_UNIQUE_ID
from rankmuster.protocol.groups import Multiplexer
from rankmuster.protocol.refusal import GroupRefused, graver, is_hearsay
from rankmuster.protocol.steps import Steps
from rankmuster.protocol.unique_id import NONCE_BYTES, UniqueId
from rankmuster.ranks import unfold
from rankmuster.resolve import Resolved
from rankmuster.root import OWN, Ask, Copy, Gone, Message, Neighbour, Plan, Root
from rankmuster.signature.canonical import communicator_digest
from rankmuster.transport.address import split_address
from rankmuster.transport.base import (
    Deadline,
    Event,
    Identity,
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

T = TypeVar("T")
KIND_OF: dict[type[Message], Kind] = {
    Card: Kind.CARD,
    Ask: Kind.ASK,
    Copy: Kind.PROGRAM,
    Plan: Kind.PLAN,
    Gone: Kind.GONE,
}
# Made once: a decoder looks through all of its types first.
DECODERS: dict[Kind, msgspec.json.Decoder[Message]] = {
    kind: msgspec.json.Decoder(message) for message, kind in KIND_OF.items()
}
FROM_ROOT = {Kind.ASK, Kind.PLAN, Kind.GONE}
CLOSING_KEY = b"closing"
DRAIN_S = 1.0
REACH_S = 1.0  # how long the first connection is waited for before the program is read,
HEARD_S = 0.05  # and the root's word on it
PARKED_FRAMES = 1 << 16  # that came before we knew our neighbours
PARKED_BYTES = 64 << 20  # that came before their group, or the caller, asked for them


class Ended(MusterError):
    """The bring-up ended in a no; `findings` say why, as far as this process was told."""

    def __init__(self, findings: Sequence[Finding], absent: Sequence[int] = ()) -> None:
        self.findings, self.absent = tuple(findings), tuple(absent)
        super().__init__("; ".join(found.message for found in findings) or "the answer is no")


@dataclass(slots=True)
class Stopwatch:
    """Seconds by phase, each from the end of the one before."""

    began: float
    last: float
    phases: dict[str, float] = field(default_factory=dict)

    def mark(self, phase: str) -> None:
        """End *phase* now."""
        now = time.monotonic()
        self.phases.pop("total", None)
        self.phases |= {phase: now - self.last, "total": now - self.began}
        self.last = now


class BringUp:
    """All that a process needs to come up: make it, then call its steps in order, then close it.

    *say* takes lines for people; `begin` is called with the name of each phase as it begins.
    Every step raises `Ended` when the answer is known to be no.
    """

    def __init__(
        self,
        place: Place,
        deadline: Deadline,
        *,
        say: Callable[[str], None] = lambda _: None,
        on_phase: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.place, self.deadline = place, deadline
        self.plan: Plan | None = None
        self.unique_ids: dict[SubGroup, bytes] = {}
        self.watch = Stopwatch(began := time.monotonic(), began)
        self._say, self.begin = say, on_phase
        self._margin_s = margin_s(deadline.whole_s)
        me = Identity(place.process, min(place.devices), len(place.devices))
        credentials = Credentials(place.secret, place.job, place.epoch)
        self.endpoint = TcpEndpoint(credentials, me, lambda: secrets.token_bytes(16))
        self.root: Root | None = None
        self._root_handle = OWN
        self._root_lost = ""
        self._asked: deque[Ask] = deque()
        self._parked: list[Frame] = []
        self._groups: Multiplexer[bytes, Any] = Multiplexer(
            place.devices, parked_bytes=PARKED_BYTES
        )
        self._closing: Multiplexer[bytes, Answer] = Multiplexer(())
        self._dialled: dict[int, int] = {}  # process -> handle to send on
        self._process_of: dict[int, int] = {}  # device -> process
        self._inbound: dict[int, Identity] = {}  # handles of peers that send to us
        self._address = ""
        self._seat = 0
        self._answer_by = deadline.at
        self._answered = False  # from then on everybody leaves when it likes

    # the steps

    def reach_root(self) -> None:
        """Show the root that we are here, before we read anything."""
        self.begin("connect")
        place = self.place
        if place.is_root:
            world = World(size=place.world_size, source="launcher")
            census = Census(world, VERSION)
            self.root = Root(census, time.monotonic())
            if place.listener is not None:
                self.endpoint.adopt(place.listener)
            if place.deaths is not None:
                self.endpoint.watch(place.deaths, self._hear_deaths)
        else:
            self._root_handle = self.endpoint.dial(
                place.root, Role.CENSUS, patient=not place.root_listens
            )
        if place.lifeline is not None:
            self.endpoint.watch(place.lifeline, _die)
        if place.is_root:
            self._turn(0.0)
        else:
            # The root may be reading itself. It is enough to have spoken; better to be heard.
            now = time.monotonic()
            self._pump(self.endpoint.has_spoken, min(self.deadline.at, now + REACH_S))
            self._pump(self.endpoint.settled, min(self.deadline.at, now + HEARD_S))

    def give_program(self, program: Program | None) -> None:
        """Before the card: let the root compare our program, None where it could not be read."""
        if self.root is not None:
            self.root.program = program

    def listen(self) -> str:
        """Open our own door, for peers that have something to send to us; return its address."""
        host, _ = split_address(self.place.root)
        self._address = self.endpoint.listen(host)
        return self._address

    def census(self, card: Card, pack: Callable[[int], Copy]) -> Plan:
        """Hand in *card*, and what `pack` makes if the root asks; return the root's plan."""
        self.begin("census")
        self._tell_root(card)
        while self.plan is None:
            self._pump(lambda: self.plan is not None or bool(self._asked), self.deadline.at)
            while self._asked:
                self._tell_root(pack(self._asked.popleft().limit))
            self._check_root("in the census")
        self.watch.mark("census")
        if not self.plan.go_on:
            self._drain()
            raise Ended(self.plan.findings, self.plan.absent)
        self._take_seats(self.plan.neighbours)
        return self.plan

    def form_groups(self, resolved: Resolved) -> Cause | None:
        """Bootstrap our devices' communicators, then the local barrier; return what failed."""
        assert self.plan is not None
        self.begin("bootstrap")
        until = self._answer_by - self._margin_s
        ours: dict[bytes, SubGroup] = {}
        for device in self.place.devices:
            for members in resolved.communicators(device):
                key = group_key(members)
                ours[key] = members
                signature = bytes(communicator_digest(resolved, members))
                rank = members.index(device)
                unique_id = self._make_unique_id() if rank == 0 else NO_UNIQUE_ID
                self._groups.add(
                    key, members, rank, bootstrap(rank, len(members), signature, unique_id)
                )
        self._run_groups(until)
        cause = self._first_cause(ours, "bootstrap")
        for (key, _), outcome in self._groups.outcome.items():
            if isinstance(outcome, bytes):
                self.unique_ids[ours[key]] = outcome
        self._groups.outcome.clear()
        self.watch.mark("bootstrap")
        return self._local_barrier(cause, until)

    def close_round(self, cause: Cause | None) -> None:
        """Report ready or *cause*, and return when the root says go. Raises `Ended` on its no."""
        self.begin("closing")
        assert self.plan is not None
        seats = range(len(self.plan.neighbours))
        steps = closing(self._seat, len(seats), cause)
        self._closing.add(CLOSING_KEY, seats, self._seat, steps)
        if self.root is not None and not self._pump(lambda: self._closing.done, self._answer_by):
            self._closing.expire(1)
        if not self._pump(lambda: self._closing.done, self.deadline.at):
            self._closing.expire()
        answer = self._closing.outcome[CLOSING_KEY, self._seat]
        assert isinstance(answer, Answer)
        self._answered = True
        self._drain()
        self.watch.mark("closing")
        if not answer.go:
            raise Ended([self._finding_of(cause) for cause in answer.causes])
        self.begin("go")

    def run(
        self, key: bytes, members: SubGroup, make: Callable[[int], Steps[T]], deadline: Deadline
    ) -> dict[int, T | MusterError]:
        """After *go*: run what *make* makes of each of our ranks in a group of *members*."""
        self._kind = Kind.CALLER
        ours = [device for device in self.place.devices if device in members]
        for device in ours:
            rank = members.index(device)
            self._groups.add(key, members, rank, make(rank))
        self._run_groups(deadline.at)
        return {device: self._groups.outcome.pop((key, device)) for device in ours}

    def strangers(self) -> tuple[Finding, ...]:
        """Who was turned away at our door, by kind (RM604)."""
        counts = self.endpoint.strangers
        if not counts:
            return ()
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        found = [finding("RM604", f"refused {counts.total()} connections: {kinds}")]
        if (wrong := counts["wrong secret"]) and self.plan is not None and self.plan.absent:
            message = f"{wrong} connections came with another secret, and some process is missing"
            found.append(finding("RM606", message, ranks=self.plan.absent))
        return tuple(found)

    def close(self) -> None:
        """Close every connection."""
        self._groups.close()
        self._closing.close()
        self.endpoint.close()

    # the groups

    _kind = Kind.GROUP

    def _take_seats(self, neighbours: Sequence[Neighbour]) -> None:
        for seat, neighbour in enumerate(neighbours):
            self._process_of |= dict.fromkeys(neighbour.devices, seat)
        self._seat = self._process_of[min(self.place.devices)]
        self._closing = Multiplexer((self._seat,))
        parked, self._parked = self._parked, []
        for frame in parked:
            self._take_peer_frame(frame)

    def _local_barrier(self, cause: Cause | None, until: float) -> Cause | None:
        """Nobody goes on before all processes of this host have come so far (S0 §5).

        It runs over the trees of a bootstrap: their connections are mostly open already, and a
        connection costs far more than a round.
        """
        assert self.plan is not None
        self.begin("barrier")
        host = self.plan.neighbours[self._seat].host
        members = tuple(each.devices[0] for each in self.plan.neighbours if each.host == host)
        if len(members) > 1:
            key = group_key((*members, len(members)))
            rank = members.index(min(self.place.devices))
            no = GroupRefused("this process failed before", hearsay=True) if cause else None
            steps = bootstrap(rank, len(members), NO_SIGNATURE, NO_UNIQUE_ID, no)
            self._groups.add(key, members, rank, steps)
            self._run_groups(until)
            cause = cause or self._first_cause({key: members}, "barrier")
            self._groups.outcome.clear()
        self.watch.mark("barrier")
        return cause

    def _run_groups(self, until: float) -> None:
        if not self._pump(lambda: self._groups.done, until):
            self._groups.expire(0)
        self._turn(0.0)

    def _first_cause(self, members_of: dict[bytes, SubGroup], phase: str) -> Cause | None:
        """The gravest reason among our groups' outcomes to say no, None if there is none."""
        no: MusterError | None = None
        cause: Cause | None = None
        for (key, _), outcome in self._groups.outcome.items():
            if isinstance(outcome, MusterError) and graver(no, outcome) is not no:
                no, cause = outcome, self._cause_of(outcome, members_of[key], phase)
        return cause

    def _cause_of(self, no: MusterError, members: SubGroup, phase: str) -> Cause:
        rank = no.rank if isinstance(no, GroupRefused) else None
        if rank is not None and isinstance(no.__cause__, MusterError):
            seat = self._process_of[members[rank]]
            return blame(seat, no.__cause__, "while others waited for it", phase)
        # A signature that differs although the root found all programs alike: some process's card
        # and its frames contradict each other.
        code = "" if is_hearsay(no) else "RM006"
        return Cause(message=str(no), code=code, phase=phase, hearsay=is_hearsay(no))

    def _finding_of(self, cause: Cause) -> Finding:
        assert self.plan is not None
        ranks: tuple[int, ...] = ()
        if cause.process is not None:
            ranks = self.plan.neighbours[cause.process].devices
        phase = f" (in the {cause.phase} phase)" if cause.phase else ""
        return finding(
            cause.code or "RM602", cause.message + phase, ranks=ranks, fix=cause.fix or None
        )

    def _make_unique_id(self) -> bytes:
        host, port = split_address(self._address or self.place.root)
        return UniqueId(host=host, port=port, nonce=secrets.token_bytes(NONCE_BYTES)).pack()

    # messages to and from the root

    def _tell_root(self, message: Message) -> None:
        if self.root is not None:
            self.root.receive(OWN, message, time.monotonic())
            self._settle()
        else:
            self._send(self._root_handle, message)

    def _send(self, handle: int, message: Message) -> None:
        self.endpoint.send(handle, Frame(KIND_OF[type(message)], msgspec.json.encode(message)))

    def _hear(self, message: Message) -> None:
        match message:
            case Ask():
                self._asked.append(message)
            case Plan():
                self.plan = message
                self._answer_by = time.monotonic() + message.answer_s
            case Gone(process=process, why=why):
                self._lose_seat(process, why)

    def _lose_seat(self, seat: int, why: str) -> None:
        assert self.plan is not None
        if not self.plan.go_on:
            return
        for device in self.plan.neighbours[seat].devices:
            self._groups.lost(device, why)
        self._closing.lost(seat, why)

    def _check_root(self, when: str) -> None:
        if self.plan is not None:
            return
        if self._root_lost:
            code = {"refused: wrong secret": "RM606", "refused: other version": "RM607"}.get(
                self._root_lost, "RM602"
            )
            message = f"the root (process of device 0) was lost {when}: {self._root_lost}"
            raise Ended([finding(code, message, ranks=(0,) if code == "RM602" else ())])
        if self.deadline.passed:
            message = f"no answer from the root within {self.deadline.whole_s:g} s {when}"
            raise Ended([finding("RM603", message, ranks=(0,))])

    def _hear_deaths(self) -> None:
        assert self.place.deaths is not None
        chunk = os.read(self.place.deaths, 1 << 12)
        if not chunk:
            _die()
        for line in chunk.splitlines():
            process, _, devices = line.decode().partition(" ")
            if self.root is not None:
                self.root.die(int(process), unfold(devices), time.monotonic())

    # the loop

    def _drain(self) -> None:
        """Write out what is queued: the root's answers must leave before the root does."""
        self._settle()
        self._pump(lambda: self.endpoint.idle, min(self.deadline.at, time.monotonic() + DRAIN_S))

    def _pump(self, done: Callable[[], bool], until: float) -> bool:
        """Take what comes until *done*; False if the time was over first."""
        while not done():
            now = time.monotonic()
            if now >= until or (self._root_lost and self.plan is None):
                return False
            wait_s = until - now
            if self.root is not None and self.plan is None:
                wait_s = min(wait_s, self.root.next_look(now) - now)
            self._turn(wait_s)
        return True

    def _turn(self, wait_s: float) -> None:
        self._settle()
        for event in self.endpoint.poll(wait_s):
            self._take(event)
        self._settle()

    def _settle(self) -> None:
        """Carry out what the pure parts have decided."""
        root = self.root
        if root is not None:
            now = time.monotonic()
            root.look(now)
            for handle, message in root.outgoing():
                if handle == OWN:
                    self._hear(message)
                else:
                    self._send(handle, message)
            if note := root.note(now):
                self._say(note)
        for key, source, destination, payload in self._groups.outgoing():
            handle = self._way_to(self._process_of[destination])
            self.endpoint.send(handle, Frame(self._kind, payload, key, source, destination))
        for _, source, destination, payload in self._closing.outgoing():
            handle = self.root.seats[destination] if self.root else self._root_handle
            frame = Frame(Kind.CLOSING, payload, source=source, destination=destination)
            self.endpoint.send(handle, frame)

    def _way_to(self, process: int) -> int:
        """The connection on which we send to a process; dialled when first needed."""
        assert self.plan is not None
        if process not in self._dialled:
            address = self.plan.neighbours[process].address
            self._dialled[process] = self.endpoint.dial(address, Role.PEER)
        return self._dialled[process]

    def _take(self, event: Event) -> None:
        match event:
            case Received(handle, frame):
                try:
                    self._take_frame(handle, frame)
                except (RemoteProtocolError, msgspec.DecodeError) as error:
                    self.endpoint.drop(handle)
                    self._take_loss(handle, f"it sent what cannot be understood: {error}")
            case Knocked(handle, identity, Role.CENSUS) if self.root is not None:
                self.root.knock(handle, *identity)
            case Joined(handle, _, Role.CENSUS) if self.root is not None:
                self.root.join(handle)
            case Joined(handle, identity, Role.PEER):
                self._inbound[handle] = identity
            case Lost(handle, why):
                self._take_loss(handle, why)

    def _take_frame(self, handle: int, frame: Frame) -> None:
        if frame.kind in {Kind.GROUP, Kind.CALLER}:
            self._take_peer_frame(frame)
        elif frame.kind is Kind.CLOSING:
            self._closing.receive(CLOSING_KEY, frame.source, frame.destination, frame.payload)
        elif (frame.kind in FROM_ROOT) != (handle == self._root_handle):
            raise RemoteProtocolError(f"a {frame.kind.name} frame from the wrong side")
        else:
            message = DECODERS[frame.kind].decode(frame.payload)
            if handle == self._root_handle:
                self._hear(message)
            elif self.root is not None:
                self.root.receive(handle, message, time.monotonic())

    def _take_peer_frame(self, frame: Frame) -> None:
        if self._process_of:
            self._groups.receive(frame.key, frame.source, frame.destination, frame.payload)
        elif len(self._parked) < PARKED_FRAMES:
            self._parked.append(frame)
        else:
            raise RemoteProtocolError(f"over {PARKED_FRAMES} frames before the plan")

    def _take_loss(self, handle: int, why: str) -> None:
        root, plan = self.root, self.plan
        if plan is None:
            if root is not None:
                root.lose(handle, why, time.monotonic())
            elif handle == self._root_handle:
                self._root_lost = why
        elif (seat := self._seat_behind(handle)) is not None:
            self._lose_seat(seat, why)
            if root is not None and not self._answered:
                for other in root.seats[1:]:
                    self._send(other, Gone(process=seat, why=why))

    def _seat_behind(self, handle: int) -> int | None:
        """The process at the other end of a connection; None for one that has no seat."""
        if handle == self._root_handle:
            return 0
        if self.root is not None and handle in self.root.seats:
            return self.root.seats.index(handle)
        if handle in self._inbound:
            return self._process_of.get(self._inbound[handle].first_device)
        return next((seat for seat, dialled in self._dialled.items() if dialled == handle), None)


def group_key(members: SubGroup) -> bytes:
    """What frames of one communicator carry: 16 bytes that stand for its members, in order."""
    packed = b"".join(member.to_bytes(8, "little") for member in members)
    return blake2b(packed, digest_size=16).digest()


def _die() -> None:
    """The launcher is gone, and with it whoever could want our answer."""
    os._exit(1)
