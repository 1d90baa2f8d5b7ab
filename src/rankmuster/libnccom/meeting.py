"""The rendezvous at the root address: every device says who it is, and hears who the others are.

Device 0 listens (facts D18). No tree and no ticket: it is how the first communicator comes to be
(facts D17). The root answers each with the whole table, or with what is wrong.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec

from rankmuster.errors import (
    DeadlineExceeded,
    MusterError,
    PeerLost,
    RemoteProtocolError,
    SetupFailed,
    WorldMismatch,
)
from rankmuster.libnccom.info import PeerInfo
from rankmuster.libnccom.links import Links
from rankmuster.transport.base import Deadline, Joined, Lost, Received, Role
from rankmuster.transport.framing import Frame, Kind
from rankmuster.transport.handshake import WORDS, Why
from rankmuster.transport.tcp import TcpEndpoint
from rankmuster.wording import who

ROOT = 0
NOTE_S = 5.0
HEAL_S = 5.0  # for a better card than one that was refused
PAUSE_S = 0.05  # before dialling again where another context meets at the moment
OTHER_CONTEXT = WORDS[Why.EPOCH]
MARGIN_SHARE, MARGIN_MAX_S = 0.1, 2.0  # before the deadline, so that the root's no still arrives


# How a no is told, on every device alike.
KINDS: dict[str, type[MusterError]] = {
    "claims": WorldMismatch,
    "lost": PeerLost,
    "late": DeadlineExceeded,
}
FIXES = {
    "claims": "start every process with the same count and settings, and its own id",
    "lost": "look at the logs of those processes",
    "late": "look at the logs of those processes",
}


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a device tells the root: who it is, how large it takes the world to be, its door.

    `settings` are those that must be alike, by name: groups of others would wait for other frames.
    """

    peer: PeerInfo
    world_size: int
    address: str
    settings: dict[str, bool | str] = {}


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The root's answer: the world, or why not (`refused`) and which kind of no that is."""

    hellos: tuple[Hello, ...] = ()
    cluster_id: int = 0
    epoch: int = 0
    refused: str = ""
    kind: str = ""


class Roll:
    """Who has come, at the root. Pure: connections are handles."""

    def __init__(self, mine: Hello) -> None:
        self.mine, self.size = mine, mine.world_size
        self.hellos = {mine.peer.device: mine}
        self.handles: dict[int, int] = {}  # device -> connection
        self.left: set[int] = set()
        self.problem = ""

    def take(self, handle: int, hello: Hello) -> str:
        """Enter a device; return why not, "" where it was entered."""
        device, who = hello.peer.device, f"process {hello.peer.pid} on {hello.peer.host}"
        if hello.world_size != self.size:
            why = (
                f"device {device} ({who}) takes the world for {hello.world_size} devices, "
                f"device 0 for {self.size}"
            )
        elif other := self._other_setting(hello):
            why = f"device {device} ({who}) has {other}"
        elif not 0 <= device < self.size:
            why = f"device {device} ({who}) is outside a world of {self.size}"
        elif device in self.hellos:
            rival = self.hellos[device].peer
            why = f"device {device} is claimed by process {rival.pid} on {rival.host} and by {who}"
        else:
            self.hellos[device], self.handles[device] = hello, handle
            self.left.discard(device)
            return ""
        self.problem = self.problem or why
        return why

    def _other_setting(self, hello: Hello) -> str:
        for name, value in self.mine.settings.items():
            if hello.settings.get(name) != value:
                return f"{name}={hello.settings.get(name)!s}, device 0 has {value!s}"
        return ""

    def forget(self, handle: int) -> None:
        """A connection ended: whoever it was may come again."""
        gone = [device for device, known in self.handles.items() if known == handle]
        for device in gone:
            del self.hellos[device], self.handles[device]
            self.left.add(device)

    @property
    def complete(self) -> bool:
        """Whether everybody is here."""
        return len(self.hellos) == self.size

    @property
    def unsettled(self) -> bool:
        """Whether something is wrong that only a better card can put right."""
        return bool(self.problem or self.left)

    def verdict(self) -> tuple[str, str]:
        """Why the world does not come up, and which kind of no that is."""
        if self.problem:
            return self.problem, "claims"
        if self.left:
            return f"{who(self.left)} came and went away", "lost"
        return f"{self.missing} never came", "late"

    @property
    def missing(self) -> str:
        """Who is not, for people."""
        absent = (device for device in range(self.size) if device not in self.hellos)
        return f"{who(absent)} of {self.size}"


def meet(
    links: Links,
    mine: Hello,
    root_address: str,
    deadline: Deadline,
    *,
    say: Callable[[str], None],
    heal_s: float = HEAL_S,
) -> Table:
    """Come together; returns the table and leaves *links* with everybody's address.

    Raises `WorldMismatch` where claims contradict each other, `PeerLost` where the root went away
    and `DeadlineExceeded` with the missing devices.
    """
    if mine.peer.device == ROOT:
        table = _call_the_roll(links, mine, deadline, say, heal_s)
    else:
        table = _be_counted(links, mine, root_address, deadline)
    links.addresses = {each.peer.device: each.address for each in table.hellos}
    return table


def _call_the_roll(
    links: Links, mine: Hello, deadline: Deadline, say: Callable[[str], None], heal_s: float
) -> Table:
    roll = Roll(mine)
    began = noted = time.monotonic()
    until = deadline.at - min(MARGIN_SHARE * deadline.whole_s, MARGIN_MAX_S)
    while not roll.complete:
        now = time.monotonic()
        if now >= until:
            raise _no(links, roll)
        if now >= noted + NOTE_S:
            say(f"{now - began:.0f} s: waiting for {roll.missing}")
            noted = now
        _hear(links.endpoint, roll, min(until, noted + NOTE_S) - now)
        if roll.unsettled:
            until = min(until, now + heal_s)
    hellos = tuple(roll.hellos[device] for device in range(roll.size))
    table = Table(hellos=hellos, cluster_id=secrets.randbits(63) + 1, epoch=int(time.time()))
    _tell(links, roll, table)
    for device, handle in roll.handles.items():
        links.device_of[handle] = device
    return table


def _hear(endpoint: TcpEndpoint, roll: Roll, wait_s: float) -> None:
    for event in endpoint.poll(wait_s):
        match event:
            case Received(handle, Frame(kind=Kind.CARD, payload=payload)):
                try:
                    why = roll.take(handle, msgspec.msgpack.decode(payload, type=Hello))
                except msgspec.DecodeError as error:
                    why = f"a hello cannot be read: {error}"
                if why:
                    no = pack(Table(refused=why, kind="claims"))
                    endpoint.send(handle, Frame(Kind.PLAN, no))
            case Lost(handle):
                roll.forget(handle)


def _tell(links: Links, roll: Roll, table: Table) -> None:
    packed = pack(table)
    for handle in roll.handles.values():
        links.endpoint.send(handle, Frame(Kind.PLAN, packed))


def pack(table: Table) -> bytes:
    """The root's answer as it goes over the wire."""
    return msgspec.msgpack.encode(table)


def _no(links: Links, roll: Roll) -> MusterError:
    """Tell everybody who is here that the world does not come up, and why."""
    why, kind = roll.verdict()
    _tell(links, roll, Table(refused=why, kind=kind))
    links.drain(Deadline.after(MARGIN_MAX_S))
    return KINDS[kind](why, fix=FIXES[kind])


def _be_counted(links: Links, mine: Hello, root_address: str, deadline: Deadline) -> Table:
    handle, joined, answer = _dial(links, mine, root_address), False, b""
    while not answer and not deadline.passed:
        for event in links.endpoint.poll(deadline.remaining()):
            match event:
                case Received(by, frame) if by == handle and frame.kind is Kind.PLAN:
                    links.device_of[handle], answer = ROOT, frame.payload
                case Joined(by) if by == handle:
                    joined = True
                case Lost(by, why) if by == handle and OTHER_CONTEXT in why:
                    time.sleep(PAUSE_S)
                    handle = _dial(links, mine, root_address)
                case Lost(by, why) if by == handle and not answer:
                    raise PeerLost(f"the root at {root_address} was lost: {why}")
                case _:  # from a peer that was answered before us
                    links.take(event)
    if answer:
        return _read(answer, mine.world_size)
    silent = "answered, but not everybody came" if joined else "was not there"
    raise DeadlineExceeded(
        f"the root at {root_address} {silent} within {deadline.whole_s:g} s",
        fix="see what the process of device 0 says",
    )


def _dial(links: Links, mine: Hello, root_address: str) -> int:
    handle = links.endpoint.dial(root_address, Role.CENSUS)
    links.endpoint.send(handle, Frame(Kind.CARD, msgspec.msgpack.encode(mine)))
    return handle


def _read(payload: bytes, size: int) -> Table:
    try:
        table = msgspec.msgpack.decode(payload, type=Table)
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"the root's answer cannot be read: {error}") from error
    if table.refused:
        raise KINDS.get(table.kind, SetupFailed)(f"device 0 says: {table.refused}")
    if [each.peer.device for each in table.hellos] != list(range(size)):
        raise RemoteProtocolError("the root's table is not one of all devices in order")
    return table
