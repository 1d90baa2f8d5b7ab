"""The main job, top to bottom: reach the root, read, be counted, form the groups, hear *go*.

The only file that wires the layers together. What happens in each step is told elsewhere.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

from rankmuster import launch
from rankmuster.api import Readable, read
from rankmuster.background import Background, told_on_signal
from rankmuster.bringup import BringUp, Ended, Work
from rankmuster.census import Card
from rankmuster.checking import check
from rankmuster.communicator import Communicator
from rankmuster.copies import ProgramCopy
from rankmuster.errors import (
    InvalidProgram,
    OutOfResources,
    UnreadableInput,
    UnsupportedFormat,
    WorldMismatch,
)
from rankmuster.finding import Finding, Severity, finding
from rankmuster.group import SubGroup
from rankmuster.launch import engines
from rankmuster.launch.base import NO_OPTIONS, LaunchOptions, Place
from rankmuster.launch.place import carried
from rankmuster.pairing import ledger
from rankmuster.program import Program
from rankmuster.protocol.edges import neighbours
from rankmuster.ranks import fold
from rankmuster.report import Disagreement, Report
from rankmuster.resolve import Resolved
from rankmuster.root import is_suspect, pack_program
from rankmuster.signature.canonical import content_digest
from rankmuster.switchboard import Waits
from rankmuster.transport.base import Deadline, Transport
from rankmuster.transport.interfaces import NoSuchInterface
from rankmuster.transport.limits import allow, needed
from rankmuster.verify import verify
from rankmuster.version import VERSION
from rankmuster.world import World

DEADLINE_S = 60.0


class Session:
    """A world that came up: every process in it holds a program that agrees with all others.

    A context manager; leaving it closes this process's connections.
    """

    def __init__(
        self, up: BringUp, world: World, report: Callable[[], Report], resolved: Resolved
    ) -> None:
        self.world = world
        self._up, self._make_report, self._resolved = up, report, resolved
        self._report: Report | None = None
        self._communicators: dict[SubGroup, Communicator] = {}

    @property
    def report(self) -> Report:
        """What the bring-up found out; the fullest one is that of the process of device 0."""
        if self._report is None:
            self._report = self._make_report()
        return self._report

    def communicator(self, members: int | Sequence[int]) -> Communicator:
        """The communicator of these devices, in this order, or of this process's share in a set.

        *members* is a member list of the program, or the id of one of its group sets. Raises
        `WorldMismatch` if this process has no such communicator.
        """
        found = self._members_of(members)
        if found not in self._communicators:
            unique_id = self._up.unique_ids[found]
            self._communicators[found] = Communicator(found, unique_id, self._up)
        return self._communicators[found]

    def close(self) -> None:
        """Close this process's connections; closing twice is fine."""
        self._up.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _members_of(self, members: int | Sequence[int]) -> SubGroup:
        known = self._up.unique_ids
        if not isinstance(members, int):
            found = tuple(members)
        elif 0 <= members < len(self._resolved.sets):
            by_device = self._resolved.sets[members].by_device
            found = next((by_device[d] for d in self._up.place.devices if d in by_device), ())
        else:
            found = ()
        if found not in known:
            raise WorldMismatch(
                f"this process is in no communicator {members!r}",
                fix=f"it is in {', '.join(map(str, known)) or 'none'}",
            )
        return found


def muster(
    program: Program | Readable,
    *,
    deadline_s: float = DEADLINE_S,
    engine: str | Transport = engines.AUTO,
    options: LaunchOptions = NO_OPTIONS,
    environ: Mapping[str, str] = os.environ,
) -> Session:
    """Join the world that this process was launched in, and return once all agree.

    *program* is a `Program` or whatever `read` takes. *engine* carries the messages: "tcp", "mpi",
    "torch", a `Transport` of your own, or what fits the launcher; *options* beat what the launcher
    says. Without a launcher this process is the whole world. Raises `Disagreement`, which carries
    the report, if the answer is no, what `read` raises if there is no launcher, `BrokenLaunch` and
    `BadSecret` where our place cannot be found, and `MissingPackage` or `PeerLost` where the engine
    cannot be had. ValueError for a deadline that is not ahead.
    """
    deadline = Deadline.after(deadline_s)

    def read_it() -> Program:
        return program if isinstance(program, Program) else read(program)

    place = _place(engine, environ, options, deadline)
    if place is None:
        known = read_it()
        place = alone(known)
        return join(place, lambda: known, deadline)
    path = program if isinstance(program, str) else ""
    return join(place, read_it, deadline, path=path, reads=not isinstance(program, Program))


def _place(
    engine: str | Transport, environ: Mapping[str, str], options: LaunchOptions, deadline: Deadline
) -> Place | None:
    """Where we stand by whatever launched us; None where nothing did."""
    if not isinstance(engine, str):
        return carried(engine, environ, options)
    name = engines.choose(engine, environ, options)
    if name == engines.TCP:
        return launch.place(environ, options, deadline)
    transport = engines.connect(name, environ, deadline)
    return carried(transport, environ, options, launch.detect(environ))


def alone(program: Program) -> Place:
    """The place of a process that nobody launched: all devices are its own."""
    size = program.world_size or 1
    return Place(
        process=0,
        processes=1,
        devices=tuple(range(size)),
        world_size=size,
        root="127.0.0.1:1",  # nobody dials it
        job=secrets.token_bytes(16),
        epoch=0,
        secret=secrets.token_bytes(32),
    )


def join(
    place: Place,
    read_program: Callable[[], Program],
    deadline: Deadline,
    *,
    path: str = "",
    reads: bool = True,
    say: Callable[[str], None] = lambda _: None,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Session:
    """Come up at *place*, and return the session. Raises `Disagreement`.

    *path* is what messages call the program; *reads* says that `read_program` may take long, so
    that others are answered meanwhile. *say* takes lines about the progress, and *on_phase* the
    name of every phase as it begins. SIGUSR1 prints what this process waits for.
    """
    if place.is_root:
        allow(needed(place.processes))  # where that fails, a dial or an accept will say so
    carrier = place.transport
    endpoint = carrier.open(place.identity, deadline) if carrier else None
    up = BringUp(place, deadline, say=say, on_phase=on_phase, endpoint=endpoint)
    try:
        with told_on_signal(up.status):
            aside = Background if reads and place.processes > 1 else None
            return up.board.drive(come_up(up, read_program, path, aside=aside))
    except BaseException:
        up.close()
        if place.at_plan is not None:  # nobody will come any more
            place.at_plan()
        raise


def come_up(
    up: BringUp, read_program: Callable[[], Program], path: str, *, aside: Aside | None = None
) -> Waits[Session]:
    """The whole of it, as steps for a driver; raises `Disagreement` when the answer is no.

    With *aside*, which puts work under way, others are answered while the program is read.
    """
    world = World(size=up.place.world_size, source="launcher")
    try:
        yield from up.reach_root(heard=aside is not None)
        held = yield from _hold(up, read_program, aside=aside)
        up.give_program(None if held.problems else held.program)
        yield from up.find_root()
        yield from up.census(_card(up, held, path), lambda limit: pack_program(held.program, limit))
        yield from up.close_round((yield from up.form_groups(held.resolved)))
    except Ended as ended:
        raise Disagreement(_report(up, world, ended)) from ended

    def report() -> Report:
        copy = ProgramCopy(held.program, up.place.devices, up.place.process, path)
        return up.root_report() or check([copy], world, timings=up.watch.phases)

    return Session(up, world, report, held.resolved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """This process's program, and all that its card says of it.

    Of one that could not be read, *problems* say why; the program is then an empty one. *peers* are
    the devices of other processes that we may dial.
    """

    program: Program
    problems: tuple[Finding, ...]
    resolved: Resolved
    content: bytes
    ledger: int
    suspect: bool
    peers: frozenset[int]


class Reading(Work, Protocol):
    """A program on its way into this process."""

    def result(self) -> Held:
        """The program, once it is there."""


Aside: TypeAlias = Callable[[Callable[[], Held]], Reading]


def _hold(up: BringUp, read_program: Callable[[], Program], *, aside: Aside | None) -> Waits[Held]:
    up.begin("read")
    if aside is not None:
        work = aside(lambda: _held(up.place, read_program))
        yield from up.wait_for(work)
        held = work.result()
    else:
        held = _held(up.place, read_program)
    up.watch.mark("read")
    return held


def _held(place: Place, read_program: Callable[[], Program]) -> Held:
    program, problems = _read(place, read_program)
    resolved = Resolved(program)
    own = (*program.findings, *verify(resolved, place.world_size))
    readable = not problems
    return Held(
        program=program,
        problems=problems or (*_smaller_world(program, place), *_other_process(program, place)),
        resolved=resolved,
        content=bytes(content_digest(resolved)) if readable else b"",
        ledger=ledger(resolved, place.devices),
        suspect=is_suspect(own),
        peers=_peers(resolved, place),
    )


def _peers(resolved: Resolved, place: Place) -> frozenset[int]:
    found: set[int] = set()
    for device in place.devices:
        for members in resolved.communicators(device):
            there = neighbours(members.index(device), len(members))
            found |= {members[rank] for rank in there}
    return frozenset(found).difference(place.devices)


def _read(place: Place, read_program: Callable[[], Program]) -> tuple[Program, tuple[Finding, ...]]:
    """The program, or an empty one and what is wrong with it: the root must be told."""
    try:
        return read_program(), ()
    except (InvalidProgram, UnreadableInput) as error:
        code = "RM702" if isinstance(error, UnsupportedFormat) else "RM701"
        problem = finding(code, error.what, ranks=place.devices, fix=error.fix or None)
    return Program(format="none"), (problem,)


def _card(up: BringUp, held: Held, path: str) -> Card:
    place = up.place
    address, trouble = _door(up) if place.processes > 1 else ("", ())
    return Card(
        process=place.process,
        devices=place.devices,
        world_size=place.world_size,
        host=place.host,
        pid=place.pid,
        version=VERSION,
        epoch=place.epoch,
        instance=place.instance,
        core_size=place.core_size,
        whole_s=up.deadline.whole_s,
        remaining_s=up.deadline.remaining(),
        content=held.content,
        ledger=held.ledger.to_bytes(16, "little"),
        suspect=held.suspect,
        address=address,
        wants=fold(held.peers),
        path=path,
        findings=(*place.findings, *held.problems, *trouble),
    )


def _door(up: BringUp) -> tuple[str, tuple[Finding, ...]]:
    """Where our peers reach us, which the local barrier does; or why they cannot: all are told."""
    try:
        return up.listen(), ()
    except (NoSuchInterface, OutOfResources) as error:
        message = f"process {up.place.process} on {up.place.host}: {error.what}"
        severity, fix = Severity.ERROR, error.fix or None
        trouble = finding("RM608", message, ranks=up.place.devices, severity=severity, fix=fix)
        return "", (trouble,)


def _smaller_world(program: Program, place: Place) -> tuple[Finding, ...]:
    """RM003: the world comes up whole first, whatever a program needs of it (S0 §6)."""
    claimed = None if program.world_source == "inferred" else program.world_size
    if claimed is None or claimed >= place.world_size:
        return ()
    message = f"the program is for {claimed} devices, and the world has {place.world_size}"
    fix = "start as many devices as the program names, or compile it for this world"
    return (finding("RM003", message, ranks=place.devices, fix=fix),)


def _other_process(program: Program, place: Place) -> tuple[Finding, ...]:
    """RM006: the file names the process that it is for, and we are another."""
    if program.rank in (None, place.process):
        return ()
    message = f'the program is that of process {program.rank} ("rank"), not of process '
    fix = "give each process its own file (a pattern with {rank}), or leave out 'rank'"
    return (finding("RM006", message + str(place.process), ranks=place.devices, fix=fix),)


def _report(up: BringUp, world: World, ended: Ended | None) -> Report:
    """The report of this process: the root's holds everything, the others' what they were told."""
    told = () if ended is None else ended.findings
    if (report := up.root_report()) is not None:
        return report.adding(*(found for found in told if found not in report.findings))
    absent = () if ended is None else ended.absent
    return Report(world=world, findings=told, absent=absent, timings=up.watch.phases)
