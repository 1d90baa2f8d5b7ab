"""The steps of one process's bring-up: be counted, form the groups, hear *go*.

What each step waits for and what it makes of the outcome stands here; how messages travel is the
switchboard's. Knows no launcher and no file: its place is given to it, and so is its card.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol, TypeVar

from rankmuster.address import split_address
from rankmuster.census import Card, margin_s
from rankmuster.errors import MusterError
from rankmuster.finding import Finding, Severity, finding
from rankmuster.group import SubGroup
from rankmuster.launch.base import Place
from rankmuster.program import Program
from rankmuster.protocol.barrier import arrive
from rankmuster.protocol.bootstrap import bootstrap
from rankmuster.protocol.causes import LOST, SILENT, UNREACHABLE, Cause
from rankmuster.protocol.closing import ROOT, Answer, blame, closing
from rankmuster.protocol.frames import NO_SIGNATURE, NO_UNIQUE_ID
from rankmuster.protocol.odd import Signed
from rankmuster.protocol.refusal import GroupRefused, graver, is_hearsay
from rankmuster.protocol.steps import Steps
from rankmuster.protocol.unique_id import NONCE_BYTES, UniqueId
from rankmuster.ranks import fold
from rankmuster.report import Report
from rankmuster.resolve import Resolved
from rankmuster.root import OVERSLEPT_S, Copy
from rankmuster.signature.canonical import communicator_digest
from rankmuster.switchboard import CLOSING_KEY, Switchboard, Wait, Waits
from rankmuster.transport.base import Connections, Deadline
from rankmuster.transport.framing import Kind

T = TypeVar("T")
FIRST_LOOK_S, LOOK_GROWTH, LAST_LOOK_S = 0.002, 1.2, 0.05  # at work that is done aside
# In a unique id, whose nonce is enough, where nobody listens.
NOWHERE = ("0.0.0.0", 0)  # noqa: S104 nobody binds to it
ROOT_UNREACHED = "give all processes an address of device 0's host that every host reaches"
# What the handshake says to who is turned away, as findings.
TURNED_AWAY = {
    "refused: wrong secret": ("RM606", "it has another secret, or is the root of another job"),
    "refused: other version": ("RM607", "it runs another version"),
}


class Work(Protocol):
    """Something that is under way."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""


class Ended(MusterError):
    """The bring-up ended in a no; `findings` say why, as far as this process was told."""

    def __init__(self, findings: Sequence[Finding], absent: Sequence[int] = ()) -> None:
        self.findings, self.absent = tuple(findings), tuple(absent)
        super().__init__("; ".join(found.message for found in findings) or "the answer is no")


@dataclass(slots=True)
class Stopwatch:
    """Seconds by phase, each from the end of the one before."""

    now: Callable[[], float]
    began: float
    last: float
    phases: dict[str, float] = field(default_factory=dict)

    def mark(self, phase: str) -> None:
        """End *phase* now."""
        now = self.now()
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
        say: Callable[[str], None],
        on_phase: Callable[[str], None],
        endpoint: Connections | None = None,
    ) -> None:
        self.place, self.deadline, self._on_phase = place, deadline, on_phase
        self.phase = "start"
        self.unique_ids: dict[SubGroup, bytes] = {}
        self.watch = Stopwatch(deadline.now, began := deadline.now(), began)
        self.board = Switchboard(place, deadline, say, endpoint)
        self._address = ""

    def begin(self, phase: str) -> None:
        """Say that *phase* begins."""
        self.phase = phase
        self._on_phase(phase)

    def status(self) -> str:
        """Where this process stands, and for whom it waits, for people who ask."""
        own = f"process {self.place.process} of {self.place.processes}"
        left = f"{self.deadline.remaining():.0f} s are left"
        return f"{own}, {self.phase}: {self._waits_for()}; {left}"

    def _waits_for(self) -> str:
        board = self.board
        if board.root is not None and board.plan is None:
            return f"waiting for {board.root.census.waiting_for() or 'programs to compare'}"
        if board.plan is None:
            return f"waiting for the root at {self.place.root}"
        if self.phase == "closing":
            seats = set(board.closing.waiting().values())
            return f"waiting for process(es) {fold(seats)} to be ready"
        return f"waiting for device(s) {fold(board.groups.waiting().values())}"

    def wait_for(self, work: Work) -> Waits[None]:
        """Answer others until *work* is done. Raises `Ended` where that is of no use any more."""
        board, now = self.board, self.deadline.now
        pause_s = FIRST_LOOK_S
        while not work.done:
            done = lambda: work.done or board.plan is not None  # noqa: E731 - asked below
            yield Wait(done, min(self.deadline.at, now() + pause_s))
            pause_s = min(pause_s * LOOK_GROWTH, LAST_LOOK_S)
            self._check_root()
            if board.plan is not None:
                yield from board.linger()
                yield from board.drain()
                raise Ended(board.plan.findings, board.plan.absent)

    def reach_root(self, *, heard: bool = True) -> Waits[None]:
        """Show the root that we are here, before we read anything that takes long."""
        self.begin("connect")
        yield from self.board.reach_root(heard=heard)

    def give_program(self, program: Program | None) -> None:
        """Before the card: let the root compare our program, None where it could not be read."""
        if self.board.root is not None:
            self.board.root.program = program

    def find_root(self) -> Waits[None]:
        """Wait until there is a way to the root: our own address is where that begins."""
        if self.board.root is None:
            yield Wait(self.board.endpoint.has_spoken, self.deadline.at)
            self._check_root()

    def listen(self) -> str:
        """Open our own door, for peers that have something to send to us; return its address.

        The rule of the interface: the one that is asked for, else the one that leads to the root.
        """
        self._address = self.board.listen()
        return self._address

    def census(self, card: Card, pack: Callable[[int], Copy]) -> Waits[None]:
        """Hand in *card*, and what `pack` makes if the root asks; return once the root has a plan.

        Raises `Ended` where the plan is to end, or none comes.
        """
        self.begin("census")
        board = self.board
        board.tell_root(card)
        while board.plan is None:
            yield Wait(lambda: board.plan is not None or bool(board.asked), self.deadline.at)
            while board.asked:
                board.tell_root(pack(board.asked.popleft().limit))
            self._check_root()
        self.watch.mark("census")
        if not board.plan.go_on:
            yield from board.linger()
            yield from board.drain()
            raise Ended(board.plan.findings, board.plan.absent)

    def form_groups(self, resolved: Resolved) -> Waits[Cause | None]:
        """Bootstrap our devices' communicators, then the local barrier; return what failed."""
        self.begin("bootstrap")
        ours: dict[bytes, SubGroup] = {}
        for device in self.place.devices:
            for members in resolved.communicators(device):
                key = group_key(members)
                ours[key] = members
                self._start_group(resolved, key, members, members.index(device))
        yield from self._run_groups_in_time()
        cause = self._first_cause(ours, "bootstrap")
        outcomes = self.board.groups.outcome
        self.unique_ids = {
            ours[key]: unique_id
            for (key, _), unique_id in outcomes.items()
            if isinstance(unique_id, bytes)
        }
        outcomes.clear()
        self.watch.mark("bootstrap")
        cause = yield from self._local_barrier(cause)
        self.watch.mark("barrier")
        return cause

    def close_round(self, cause: Cause | None) -> Waits[None]:
        """Report ready or *cause*, and return when the root says go. Raises `Ended` on its no."""
        self.begin("closing")
        board = self.board
        peers = board.peers
        assert peers.seating is not None
        seats = range(peers.seating.processes)
        board.tell_strangers()
        margin = margin_s(self.deadline.whole_s)
        latest = board.answer_by + margin / 2
        steps = closing(
            peers.seat,
            len(seats),
            cause,
            in_time=lambda: board.now() < latest,
            still_s=lambda: board.pulse.still_s,
        )
        board.closing.add(CLOSING_KEY, seats, peers.seat, steps)
        if board.root is not None and not (yield Wait(lambda: board.closing.done, board.answer_by)):
            if board.pulse.still_s:  # the others may have waited for us: let them say so
                yield Wait(lambda: board.closing.done, board.now() + margin / 4)
            board.closing.expire(1)
        if not (yield Wait(lambda: board.closing.done, self.deadline.at)):
            board.closing.expire()
        answer = board.closing.outcome[CLOSING_KEY, peers.seat]
        assert isinstance(answer, Answer)
        board.answered = True
        yield from board.finish()
        self.watch.mark("closing")
        if not answer.go:
            # Who loses the root leaves. That others then see it go is no cause.
            lost_root = [c for c in answer.causes if (c.code, c.process) == (LOST, ROOT)]
            told = list(map(self._finding_of, lost_root or answer.causes))
            silent_root = any((c.code, c.process) == (SILENT, ROOT) for c in answer.causes)
            raise Ended((self._overslept() if lost_root or silent_root else []) or told)
        self.begin("go")

    def run(
        self, key: bytes, members: SubGroup, make: Callable[[int], Steps[T]], deadline: Deadline
    ) -> dict[int, T | MusterError]:
        """After *go*: run what *make* makes of each of our ranks in a group of *members*.

        Once a run has passed its deadline, all later ones do so at once.
        """
        board = self.board
        board.groups_kind = Kind.CALLER
        ours = [device for device in self.place.devices if device in members]
        for device in ours:
            rank = members.index(device)
            board.groups.add(key, members, rank, make(rank))
        board.drive(self._exchange(deadline.at))
        return {device: board.groups.outcome.pop((key, device)) for device in ours}

    def root_report(self) -> Report | None:
        """The full report, on the process that leads and once it has a plan; None elsewhere."""
        board = self.board
        if board.root is None or board.root.plan is None:
            return None
        report = board.root.report()
        new = [found for found in board.strangers() if found not in report.findings]
        if not board.root.ends and report.absent and (odd := board.doorway.misplaced_root()):
            new.append(odd)
        return report.adding(*new, timings=self.watch.phases)

    def close(self) -> None:
        """Close every connection; closing twice is fine."""
        self.board.close()

    def _start_group(self, resolved: Resolved, key: bytes, members: SubGroup, rank: int) -> None:
        signature = bytes(communicator_digest(resolved, members))
        unique_id = self._make_unique_id() if rank == 0 else NO_UNIQUE_ID
        steps = bootstrap(rank, len(members), signature, unique_id)
        self.board.groups.add(key, members, rank, steps)

    def _make_unique_id(self) -> bytes:
        host, port = NOWHERE
        if self._address and self.place.transport is None:
            host, port = split_address(self._address)
        return UniqueId(host=host, port=port, nonce=secrets.token_bytes(NONCE_BYTES)).pack()

    def _local_barrier(self, cause: Cause | None) -> Waits[Cause | None]:
        """Nobody goes on before all processes of this host have come so far (S0 §5).

        On the root's host all tell the root that they have, and its answer in the closing round
        lets them go. Elsewhere it runs over the trees of a bootstrap: their connections are mostly
        open already, and a connection costs far more than a round.
        """
        self.begin("barrier")
        board = self.board
        peers = board.peers
        assert peers.seating is not None
        members = peers.seating.firsts_of(peers.local)
        key = group_key(members, b"barrier")
        rank = members.index(min(self.place.devices))
        no = GroupRefused("this process failed before", hearsay=True) if cause else None
        steps: Steps[bytes | MusterError | None]
        if peers.by_root:
            steps = arrive(rank, len(members), no)
        else:
            steps = bootstrap(rank, len(members), NO_SIGNATURE, NO_UNIQUE_ID, no)
        board.groups.add(key, members, rank, steps)
        yield from self._run_groups_in_time()
        cause = cause or self._first_cause({key: members}, "barrier")
        board.groups.outcome.clear()
        return cause

    def _run_groups_in_time(self) -> Waits[None]:
        """Run what was added, and give up a margin before the root's answer."""
        board, margin = self.board, margin_s(self.deadline.whole_s)
        if not (yield from self._run_groups(board.answer_by - margin)):
            # What we owe now may go to somebody new: it is heard before it is blamed.
            board.turn(0.0)
            yield Wait(lambda: not board.unreached(), board.now() + margin / 4)

    def _run_groups(self, until: float) -> Waits[bool]:
        """Run what was added to its end; return whether that was in time."""
        board = self.board
        in_time = yield Wait(lambda: board.groups.done and not board.unreached(), until)
        if not in_time:
            board.turn(0.0)  # who stood still looks at what came before it gives up
            board.groups.expire(0)
        return in_time

    def _exchange(self, until: float) -> Waits[None]:
        """Run what was added, and write what we owe: nobody writes for us until the next call."""
        yield from self._run_groups(until)
        self.board.turn(0.0)
        yield Wait(self.board.endpoint.idle, until)

    def _first_cause(self, members_of: dict[bytes, SubGroup], phase: str) -> Cause | None:
        """The gravest reason among our groups' outcomes to say no, None if there is none."""
        for seat, why in self.board.unreached().items():
            us = f"process {self.board.peers.seat} on {self.place.host}"
            message = f"{us} cannot reach process {seat} at {why}"
            return Cause(message=message, code=UNREACHABLE, phase=phase, process=seat)
        no: MusterError | None = None
        cause: Cause | None = None
        for (key, _), outcome in self.board.groups.outcome.items():
            if isinstance(outcome, MusterError) and graver(no, outcome) is not no:
                no, cause = outcome, self._cause_of(outcome, key, members_of, phase)
        return cause

    def _cause_of(
        self, no: MusterError, key: bytes, members_of: dict[bytes, SubGroup], phase: str
    ) -> Cause:
        members = members_of[key]
        rank = no.rank if isinstance(no, GroupRefused) else None
        if rank is not None and isinstance(no.__cause__, MusterError):
            seat = self.board.peers.seat_of(members[rank])
            return blame(seat, no.__cause__, "while others waited for it", phase)
        signatures = no.signatures if isinstance(no, GroupRefused) else {}
        # A signature that differs although the root found all programs alike: some process's card
        # and its frames contradict each other.
        code = "" if is_hearsay(no) else "RM006"
        return Cause(
            message=str(no),
            code=code,
            phase=phase,
            hearsay=is_hearsay(no),
            signed=tuple(dict.fromkeys(self._signed(members_of))) if signatures else (),
        )

    def _signed(self, members_of: dict[bytes, SubGroup]) -> Iterator[Signed]:
        """All signatures that differ, in all our groups."""
        for (key, _), no in self.board.groups.outcome.items():
            for rank, signature in no.signatures.items() if isinstance(no, GroupRefused) else ():
                members = members_of[key]
                yield Signed(
                    group=key.hex(),
                    size=len(members),
                    rank=rank,
                    process=self.board.peers.seat_of(members[rank]),
                    signature=signature.hex(),
                )

    def _finding_of(self, cause: Cause) -> Finding:
        seating = self.board.peers.seating
        assert seating is not None
        ranks = () if cause.process is None else seating.devices_of(cause.process)
        phase = f" (in the {cause.phase} phase)" if cause.phase else ""
        code = cause.code or "RM602"
        severity = Severity.ERROR if code == UNREACHABLE else None
        message = cause.message + phase
        return finding(code, message, ranks=ranks, fix=cause.fix or None, severity=severity)

    def _overslept(self) -> list[Finding]:
        """RM603 of ourselves, where we stood still beyond our deadline: the others have left."""
        late_s = self.board.now() - self.deadline.at
        if late_s < (0.0 if self.board.pulse.still_s else OVERSLEPT_S):
            return []
        message = f"process {self.place.process} stood still for {late_s:.0f} s past its deadline"
        return [finding("RM603", message, ranks=self.place.devices)]

    def _check_root(self) -> None:
        """Raise `Ended` where no plan can come any more."""
        board = self.board
        if board.plan is not None:
            return
        if overslept := self._overslept():
            raise Ended(overslept)
        if board.root_lost:
            if board.root_lost in TURNED_AWAY:
                code, why = TURNED_AWAY[board.root_lost]
                message = f"the root at {self.place.root} turned this process away: {why}"
                raise Ended([finding(code, message)])
            message = (
                f"the root (the process of device 0) was lost in the census: {board.root_lost}"
            )
            raise Ended([finding("RM602", message, ranks=(0,))])
        if self.deadline.passed:
            fix = None
            message = f"no answer from the root within {self.deadline.whole_s:g} s"
            if why := board.root_trouble():
                message, fix = f"{message}: {why}", ROOT_UNREACHED
            raise Ended([finding("RM603", message, ranks=(0,), fix=fix)])


def group_key(members: SubGroup, purpose: bytes = b"group") -> bytes:
    """What frames of one communicator carry: 16 bytes that stand for its members, in order."""
    packed = struct.pack(f"<{len(members)}Q", *members)
    return blake2b(packed, digest_size=16, person=purpose).digest()
