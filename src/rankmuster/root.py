"""What the root says to whom: the census, the comparison, and the plan for the bootstrap.

A conversation without I/O: messages of connections come in with the time, messages go out. Handle 0
is the root's own process, which takes part like every other. The comparison is `check`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import msgspec

from rankmuster.address import Ends, Reach, reach_of, reachable, seen_on, split_address
from rankmuster.census import Card, Census
from rankmuster.checking import check
from rankmuster.copies import ProgramCopy
from rankmuster.errors import InvalidProgram
from rankmuster.finding import Finding, Severity, finding
from rankmuster.formats import json_program
from rankmuster.program import Program
from rankmuster.ranks import fold
from rankmuster.report import Report
from rankmuster.seating import AddressBook, Seating, seating

OWN = 0
PROGRAMS_BYTES = 64 << 20  # of all programs that the root asks for
NO_TEXT = b"null"
NOTE_S = 5.0
OVERSLEPT_S = 1.0  # who looks at the clock so late stood still meanwhile, and is itself at fault
MODULUS = 1 << 128


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Hand in your program, if it takes no more than *limit* bytes."""

    limit: int


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A program on its way to the root, and what its own format knew beyond program/1.

    `text` is null where the program takes `size` bytes, more than was asked for.
    """

    text: msgspec.Raw
    size: int
    format: str
    target: str | None = None
    core_size: int | None = None
    not_recorded: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root's word on the census: go on and form the groups, or end with these findings.

    `seating` numbers the processes from here on; there is none where the plan is to end.
    `addresses` are those that this process asked for, by seat: a table of all would take 300 MB in
    a world of 2048 processes. `local` are the seats on its host. The root's last answer comes
    within `answer_s`.
    """

    go_on: bool
    findings: tuple[Finding, ...] = ()
    absent: tuple[int, ...] = ()
    answer_s: float = 0.0
    seating: Seating | None = None
    addresses: dict[int, str] = {}
    local: str = ""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A process was lost while groups form: nobody need wait for it."""

    process: int
    why: str


class Strangers(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a process turned away at its own door: how many of each kind."""

    kinds: dict[str, int]


Message: TypeAlias = Card | Ask | Copy | Plan | Gone | Strangers


class Outgoing(NamedTuple):
    """A message for the process behind *handle*."""

    handle: int
    message: Message


def pack_program(program: Program, limit: int) -> Copy:
    """The program as a message, or only its size where it takes more than *limit* bytes."""
    text = json_program.write(program)
    return Copy(
        text=msgspec.Raw(text if len(text) <= limit else NO_TEXT),
        size=len(text),
        format=program.format,
        target=program.target,
        core_size=program.core_size,
        not_recorded=tuple(sorted(program.not_recorded)),
        findings=program.findings,
    )


def unpack_program(copy: Copy, where: str) -> Program:
    """The program of a message. Raises `InvalidProgram`."""
    return msgspec.structs.replace(
        json_program.read(bytes(copy.text), where=where, world=None),
        format=copy.format,
        target=copy.target,
        core_size=copy.core_size,
        not_recorded=frozenset(copy.not_recorded),
        findings=copy.findings,
    )


class Root:
    """The root's side of steps 1 and 2 of a bring-up; `plan` is None until they have ended.

    *program* is the root process's own, None where it could not be read; give it before its card.
    """

    def __init__(self, census: Census, now: float) -> None:
        self.census = census
        self.program: Program | None = None
        self.plan: Plan | None = None
        self.census_ended: float | None = None
        self.seats: list[int] = []
        """The handles of the plan's processes, by seat."""
        self.ends: dict[int, Ends] = {}
        """Both addresses of each connection, where there are any."""
        self._report: Report | None = None
        self._out: list[Outgoing] = []
        self._handles: set[int] = {OWN}
        self._process_of: dict[int, int] = {}
        self._done_with: set[int] = set()  # processes that heard the plan, or were lost
        self._programs: dict[bytes, Program] = {}
        self._asked: dict[int, bytes] = {}  # handle -> class of its program
        self._problems: list[Finding] = []
        self._overslept: list[Finding] = []
        self._began = self._noted = now

    # what comes in

    def knock(self, handle: int, process: int, first_device: int, count: int) -> None:
        """A process showed that it knows the secret, or somebody repeats one that did."""
        if self.plan is None:
            self.census.knock(handle, process, first_device, count)

    def join(self, handle: int, process: int, first_device: int, count: int) -> None:
        """The process proved to be no replay."""
        self._process_of[handle] = process
        if self.plan is None:
            self._handles.add(handle)
            self.census.join(handle)
            return
        devices = range(first_device, first_device + min(count, self.census.world.size))
        self._turn_away(handle, f"process {process} came when the census was over", devices)

    def receive(self, handle: int, message: Message, now: float) -> None:
        """A message came; after the plan, cards and programs mean nothing any more."""
        if self.plan is not None:
            return
        if isinstance(message, Card) and self.census_ended is None:
            self.census.hand_in(handle, message, now)
        elif isinstance(message, Copy) and handle in self._asked:
            self._keep(handle, message)
        self.look(now)

    def forget(self, handle: int) -> None:
        """A connection turned out to be our own."""
        self._handles.discard(handle)
        self._process_of.pop(handle, None)
        self.census.forget(handle)

    def lose(self, handle: int, why: str, now: float) -> None:
        """A connection ended."""
        self._handles.discard(handle)
        if handle in self._process_of:
            self._done_with.add(self._process_of[handle])
        if self.plan is None:
            phase = "waiting in the census" if self.census_ended is None else "being compared"
            self.census.lose(handle, why, phase, now)
            self.look(now)

    def die(self, process: int, devices: Iterable[int], now: float) -> None:
        """The launcher says that a process ended; its connection, if any, may say so later."""
        self._done_with.add(process)
        if self.plan is None:
            message = f"process {process} ended before it handed in its card"
            self.census.lose_process(devices, message, now)
            self.look(now)

    def look(self, now: float) -> None:
        """Draw the conclusions that the time or the last message allows."""
        if self.plan is None and self.census_ended is None and self.census.ended(now):
            self.census_ended = now
            late_s = now - self.census.answer_by
            if late_s > OVERSLEPT_S or self.census.pulse.unseen_since < self.census.answer_by < now:
                message = f"the root stood still for {late_s:.0f} s past its deadline"
                self._overslept = [finding("RM603", message, ranks=(0,))]
            self._compare(now)
        if self.plan is None and self.census_ended is not None:
            self._look_at_comparison(now)

    def next_look(self, now: float) -> float:
        """When to `look` again if nothing comes in."""
        if self.census_ended is not None:
            return self.census.answer_by
        return max(now, min(self.census.next_look(), self._noted + NOTE_S))

    # what goes out

    def outgoing(self) -> list[Outgoing]:
        """Hand over the messages to send; each is given once."""
        out, self._out = self._out, []
        return out

    def note(self, now: float) -> str:
        """Every five seconds: who is missing; "" in between and once nobody is."""
        if self.census_ended is not None or now < self._noted + NOTE_S:
            return ""
        self._noted = now
        return f"{now - self._began:.0f} s: waiting for {self.census.waiting_for()}"

    def report(self) -> Report:
        """The full report, made once; of an agreeing world only when somebody asks."""
        assert self.plan is not None
        if self._report is None:
            self._report = self._check()
        return self._report

    def _turn_away(self, handle: int, why: str, devices: Iterable[int] = ()) -> None:
        """Say no to a process that the world has no place for."""
        assert self.plan is not None
        why = why or "this process handed in no card before the world was complete"
        if self.plan.go_on:
            late = finding("RM605", why, ranks=devices)
            self._say(handle, Plan(go_on=False, findings=(late,)))
        else:
            self._say(handle, self.plan)

    # the comparison

    def _compare(self, now: float) -> None:
        """One class and a zero ledger agree; otherwise ask one process of each class."""
        cards = self.census.cards
        if self.program is not None and OWN in cards:
            self._programs[cards[OWN].content] = self.program
        if self._is_plain():
            self._plan(now, go_on=True)
            return
        if now >= self.census.answer_by:
            return  # no time is left in which anybody could answer
        classes = {card.content: handle for handle, card in cards.items() if card.content}
        wanted = [handle for content, handle in classes.items() if content not in self._programs]
        for handle in wanted:
            self._asked[handle] = cards[handle].content
            self._say(handle, Ask(limit=PROGRAMS_BYTES // len(wanted)))

    def _is_plain(self) -> bool:
        census = self.census
        cards = census.cards.values()
        ledger = sum(int.from_bytes(card.ledger, "little") for card in cards) % MODULUS
        return (
            census.complete
            and not self._overslept
            and not census.findings()
            and not ledger
            and len({card.content for card in cards}) == 1
            and not any(card.suspect or card.findings for card in cards)
        )

    def _keep(self, handle: int, copy: Copy) -> None:
        content = self._asked.pop(handle)
        card = self.census.cards[handle]
        where = card.path or card.who
        if copy.text == NO_TEXT:
            self._problems.append(_too_large(card, copy.size))
            return
        try:
            self._programs[content] = unpack_program(copy, where)
        except InvalidProgram as error:
            self._problems.append(finding("RM701", str(error), ranks=card.devices))
            self._problems += copy.findings

    def _look_at_comparison(self, now: float) -> None:
        late = now >= self.census.answer_by
        if self._asked and not late and not self.census.loss:
            return
        self._problems += (_late_copy(self.census.cards[handle]) for handle in self._asked if late)
        self._asked.clear()
        self._report = self._check()
        self._plan(now, go_on=self._report.ok)

    def _check(self) -> Report:
        cards = self.census.cards.values()
        copies = [
            ProgramCopy(self._programs[card.content], card.devices, card.process, card.path)
            for card in sorted(cards, key=lambda card: card.devices)
            if card.content in self._programs
        ]
        here = {device for copy in copies for device in copy.devices}
        return check(
            copies,
            self.census.world,
            findings=merged(
                (
                    *(self._overslept or self.census.findings()),
                    *(found for card in cards for found in card.findings),
                    *self._problems,
                    *self._odd_addresses(),
                )
            ),
            absent=(device for device in range(self.census.world.size) if device not in here),
        )

    def _odd_addresses(self) -> Iterator[Finding]:
        """RM608 for processes that say they listen elsewhere than where they are seen."""
        odd: dict[str, list[tuple[str, Card]]] = {}
        for handle, card in self.census.cards.items():
            if card.address and (ends := self.ends.get(handle)) is not None:
                said, seen = split_address(card.address)[0], split_address(ends.theirs)[0]
                reach = {reach_of(said), reach_of(seen)}
                if said != seen and reach.isdisjoint({Reach.NAME}) and reach != {Reach.LOOPBACK}:
                    odd.setdefault(said, []).append((seen, card))
        for said, processes in odd.items():
            devices = [device for _, card in processes for device in card.devices]
            hosts = sorted({seen for seen, _ in processes})
            yield finding(
                "RM608",
                f"device(s) {fold(devices)} advertise {said} ({reach_of(said)}), and are seen from "
                f"{', '.join(hosts[:3])}{' and others' if len(hosts) > 3 else ''}",
                ranks=devices,
            )

    def _plan(self, now: float, *, go_on: bool) -> None:
        report, cards = self._report, self.census.cards
        self.seats = sorted(self.census.cards, key=lambda h: min(self.census.cards[h].devices))
        self.plan = plan = Plan(
            go_on=go_on,
            findings=report.findings if report else (),
            absent=report.absent if report else (),
            answer_s=self.census.answer_by - now,
        )
        if not go_on:
            for handle in sorted(self._handles):
                self._say(handle, plan)
            return
        seated = seating([sorted(cards[handle].devices) for handle in self.seats])
        self.plan = plan = msgspec.structs.replace(plan, seating=seated)
        book = AddressBook(
            seated,
            [seen_on(cards[handle].host, self.ends.get(handle)) for handle in self.seats],
            [cards[handle].wants for handle in self.seats],
        )
        said = [cards[handle].address for handle in self.seats]
        ends = [self.ends.get(handle) for handle in self.seats]
        for seat, handle in enumerate(self.seats):
            local, wanted = book.local_to(seat), book.wanted_by(seat)
            addresses = {each: reachable(said[each], ends[each], ends[seat]) for each in wanted}
            self._say(handle, msgspec.structs.replace(plan, local=local, addresses=addresses))
        for handle in sorted(self._handles.difference(self.seats)):
            self._turn_away(handle, "")

    def done_with(self, processes: int) -> bool:
        """Whether all *processes* but our own have heard the plan, or were lost."""
        return len(self._done_with) >= processes - 1

    def _say(self, handle: int, message: Message) -> None:
        if isinstance(message, Plan) and handle in self._process_of:
            self._done_with.add(self._process_of[handle])
        self._out.append(Outgoing(handle, message))


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that say the same of several processes, told once of all their devices."""
    told: dict[tuple[str, str], Finding] = {}
    for found in findings:
        known = told.get((found.code, found.message))
        ranks = sorted({*found.ranks, *(known.ranks if known else ())})
        told[found.code, found.message] = replace(found, ranks=tuple(ranks))
    return tuple(told.values())


def is_suspect(findings: Iterable[Finding]) -> bool:
    """Whether a program's own findings call for a look at the program itself."""
    return any(found.severity is not Severity.INFO for found in findings)


def _too_large(card: Card, size: int) -> Finding:
    return finding(
        "RM701",
        f"the program of {card.who} takes {size} bytes, too many to compare here",
        ranks=card.devices,
        fix="compare the files with 'rankmuster check'",
    )


def _late_copy(card: Card) -> Finding:
    message = f"{card.who} did not hand in its program in time"
    return finding("RM603", message, ranks=card.devices)
