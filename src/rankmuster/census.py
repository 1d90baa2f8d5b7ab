"""Who is in the world: the cards that processes hand in, and what they say taken together.

Knows no socket and no clock: connections are handles, and whoever asks says what time it is. It
never decides what a difference between programs means, only whether there may be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import msgspec

from rankmuster.finding import Finding, Value, finding
from rankmuster.hosts import fold_hosts
from rankmuster.pulse import NEVER, Pulse
from rankmuster.ranks import fold
from rankmuster.world import World

HEAL_S = 5.0  # for what a better card could still put right
LOSS_S = 0.25  # after a loss, for those who are about to speak
MARGIN_SHARE, MARGIN_MIN_S, MARGIN_MAX_S = 0.1, 1.0, 5.0


ROOT = 0  # its own handle
NAMED = 3  # processes that a message names one by one
LOCAL_NUMBERS = (
    "every host claims the same devices: number processes in the whole job, not on their host "
    "(host * processes per host + local number)"
)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What one process says about itself.

    `content` is equal exactly where no check could tell two programs apart; b"" says that the
    process has no program, and `findings` why. `ledger` is that of its sends and receives.
    `suspect` says that its program alone has something to report, so that it must be looked at.
    `remaining_s` of `whole_s` seconds were left when the card was written. `wants` are the devices
    that it may dial. `instance` and `core_size` are what the process believes of its server.
    """

    process: int
    devices: tuple[int, ...]
    world_size: int
    host: str
    pid: int
    version: str
    epoch: int = 0
    instance: str = ""
    core_size: int | None = None
    whole_s: float
    remaining_s: float
    content: bytes = b""
    ledger: bytes = bytes(16)
    suspect: bool = False
    address: str = ""
    wants: str = ""
    path: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def who(self) -> str:
        """The process as messages name it."""
        return f"process {self.process} (pid {self.pid} on {self.host})"


@lru_cache(maxsize=256)  # all of a job have the same deadline, mostly
def margin_s(whole_s: float) -> float:
    """How long before a deadline the root must answer, so that the answer still arrives."""
    wanted = min(max(MARGIN_SHARE * whole_s, MARGIN_MIN_S), MARGIN_MAX_S)
    return min(wanted, whole_s / 4)


class Refusal(NamedTuple):
    """A card that does not fit, and since when.

    `findings` say why, but for another world's card and for one whose devices others hold.
    """

    card: Card
    since: float
    findings: tuple[Finding, ...]
    claims: tuple[int, ...] = ()  # devices that others hold


@dataclass(slots=True)
class Census:
    """The cards so far, for a world of `world.size` devices led by a process of *version*.

    `pulse` is that of the process that leads.

    `cards` holds the accepted ones by handle. Refused ones speak against the world for as long as
    their process stays: once it is gone, a better card may put things right.
    """

    world: World
    version: str
    cards: dict[int, Card] = field(default_factory=dict)
    answer_by: float = float("inf")
    pulse: Pulse = field(default_factory=Pulse)
    _refused: dict[int, Refusal] = field(default_factory=dict)
    _reading: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    _proven: set[int] = field(default_factory=set)
    _owner: dict[int, Card] = field(default_factory=dict)
    _losses: list[Finding] = field(default_factory=list)
    _loss_since: float | None = None
    _complete_since: float | None = None
    _unheard_since: dict[int, float] = field(default_factory=dict)
    _came: dict[int, tuple[float, float]] = field(default_factory=dict)  # at the earliest, and seen

    def knock(self, handle: int, process: int, first_device: int, count: int) -> None:
        """Someone with the secret is at the door and reads its program now."""
        devices = range(first_device, min(first_device + count, self.world.size))
        self._reading[handle] = (process, tuple(devices))
        if self.pulse.unseen_since < NEVER:
            self._unheard_since[handle] = self.pulse.unseen_since  # its card waited for our answer

    def join(self, handle: int) -> None:
        """That someone is who it says: from now on its loss is the loss of a process."""
        self._proven.add(handle)

    def hand_in(self, handle: int, card: Card, now: float) -> None:
        """Take a card, or refuse it."""
        self._reading.pop(handle, None)
        objections = self._objections(handle, card)
        other_world = card.world_size != self.world.size
        claims = () if other_world else tuple(d for d in card.devices if d in self._owner)
        if objections or other_world or claims:
            self._refused[handle] = Refusal(card, now, objections, claims)
            return
        self.cards[handle] = card
        held_up = self._unheard_since.get(handle, now) + card.whole_s - card.remaining_s
        self._came[handle] = min(now, self.pulse.unseen_since, held_up), now
        self._owner |= dict.fromkeys(card.devices, card)
        self.answer_by = min(self.answer_by, now + card.remaining_s - margin_s(card.whole_s))
        if self.complete:
            self._complete_since = now

    def forget(self, handle: int) -> None:
        """It was the process that leads, which had dialled itself."""
        self._reading.pop(handle, None)
        self._proven.discard(handle)

    def lose(self, handle: int, why: str, phase: str, now: float) -> None:
        """A connection ended before the answer."""
        card = self.cards.get(handle)
        if card is not None:
            self.lose_process(card.devices, f"{card.who} was lost while {phase}: {why}", now)
        elif handle in self._reading and handle in self._proven:
            process, devices = self._reading[handle]
            message = f"process {process} was lost while reading its program: {why}"
            self.lose_process(devices, message, now)
        # Nothing is lost with somebody who repeated a hello that was overheard, or was refused.
        self._reading.pop(handle, None)
        self._refused.pop(handle, None)

    def lose_process(self, devices: Iterable[int], message: str, now: float) -> None:
        """A process is known to be gone, however we know; the first message about it stays."""
        ranks = tuple(devices)
        if not self._lost().intersection(ranks):
            self._losses.append(finding("RM602", message, ranks=ranks))
        self._loss_since = now if self._loss_since is None else self._loss_since

    @property
    def complete(self) -> bool:
        """Whether every device of the world has an accepted card."""
        return len(self._owner) == self.world.size

    @property
    def loss(self) -> bool:
        """Whether some process is known to be gone."""
        return self._loss_since is not None

    @property
    def absent(self) -> tuple[int, ...]:
        """The devices that nobody has shown any sign of."""
        here = {*self._owner, *self._still_reading(), *self._lost()}
        return tuple(device for device in range(self.world.size) if device not in here)

    def ended(self, now: float) -> bool:
        """Whether there is no point in waiting for more cards."""
        agreed = self.complete and not self._losses and not self._refused
        return (agreed and not self._surplus()) or now >= self.next_look()

    def next_look(self) -> float:
        """When it will have ended, if nothing more comes in."""
        times = [self.answer_by, *(each.since + HEAL_S for each in self._refused.values())]
        if self._loss_since is not None:
            times.append(self._loss_since + LOSS_S)
        if self._complete_since is not None:
            times.append(self._complete_since + HEAL_S)
        return min(times)

    def findings(self) -> tuple[Finding, ...]:
        """Everything that speaks against this world, once the census has ended."""
        refused = chain.from_iterable(
            (*each.findings, *each.card.findings) for each in self._refused.values()
        )
        found = [*self._world_sizes(), *refused, *self._claims(), *self._losses]
        if self._losses:
            return tuple(found)  # which ended it soon: who was not here yet is not to blame
        for card in self._too_late():
            message = f"{card.who} handed in its card when no time was left to form groups"
            found.append(finding("RM603", message, ranks=card.devices))
        for process, devices in self._surplus():
            message = f"process {process} came for {_devices(devices)}, which others hold"
            found.append(finding("RM605", message, ranks=devices))
        if absent := self._never_came():
            message = f"{_devices(absent)} of {self.world.size} never came"
            found.append(finding("RM601", message, ranks=absent, others=self._owner))
        if still := self._still_reading():
            message = f"{_devices(still)} came, but had not read the program in time"
            found.append(finding("RM603", message, ranks=still))
        return (*found, *self._servers())

    def _too_late(self) -> list[Card]:
        """The cards after which groups have no time; the root's alone, if it was late itself.

        Or if it stood still while they may have come. None where somebody did not come at all: then
        no card would have been in time.
        """
        if not self.complete:
            return []
        no_time = {
            handle: self.answer_by - margin_s(card.whole_s) for handle, card in self.cards.items()
        }
        seen = {handle for handle, at in no_time.items() if self._came[handle][1] > at}
        came = {handle for handle in seen if self._came[handle][0] > no_time[handle]}
        late = {ROOT} if ROOT in seen or (seen and not came) else came
        return [self.cards[handle] for handle in sorted(late)]

    def _surplus(self) -> list[tuple[int, tuple[int, ...]]]:
        """Those who have shown that they are ours, and read a program for devices that are taken.

        Their card will say more; a world must not go while somebody in it is one too many.
        """
        if not self.complete:
            return []
        return [who for handle, who in self._reading.items() if handle in self._proven]

    def _never_came(self) -> tuple[int, ...]:
        """The absent ones that no process of another world speaks for: those came."""
        others = [each.card for each in self._of_other_worlds()]
        if 2 * len(others) > len(others) + len(self.cards):
            return ()  # the root itself is the odd one: of its world nothing is known
        came = {device for card in others for device in card.devices}
        return tuple(device for device in self.absent if device not in came)

    def waiting_for(self) -> str:
        """Who is missing or does not fit: "device 5 (not here), process 3 (one too many)"."""
        parts = [(self.absent, "not here"), (self._still_reading(), "reading the program")]
        said = [f"{_devices(devices)} ({why})" for devices, why in parts if devices]
        said += [f"process {process} (one too many)" for process, _ in self._surplus()]
        if self._refused:
            refused = _listed([each.card.who for each in self._refused.values()])
            said.append(f"a better card than that of {refused}")
        return ", ".join(said)

    def _lost(self) -> set[int]:
        return {device for loss in self._losses for device in loss.ranks}

    def _still_reading(self) -> set[int]:
        reading = {device for _, devices in self._reading.values() for device in devices}
        return reading - self._lost() - set(self._owner)

    def _objections(self, handle: int, card: Card) -> tuple[Finding, ...]:
        if handle in self.cards:
            message = f"{card.who} handed in two cards"
            return (finding("RM605", message, ranks=card.devices),)
        if card.version != self.version:
            message = f"{card.who} runs version {card.version}, the root {self.version}"
            return (finding("RM607", message, ranks=card.devices),)
        if not card.devices or not all(0 <= d < card.world_size for d in card.devices):
            message = f"{card.who} claims {_devices(card.devices)} of a world of {card.world_size}"
            return (finding("RM001", message, ranks=card.devices),)
        return ()

    def _of_other_worlds(self) -> list[Refusal]:
        """Who was refused for its world size alone."""
        return [
            each
            for each in self._refused.values()
            if not each.findings and each.card.world_size != self.world.size
        ]

    def _claims(self) -> Iterator[Finding]:
        """RM605, once for the devices that the same processes claim."""
        rivals: dict[int, list[Card]] = {}
        for refusal in self._refused.values():
            for device in refusal.claims:
                rivals.setdefault(device, [self._owner[device]]).append(refusal.card)
        alike: dict[tuple[str, ...], list[int]] = {}
        for device, cards in rivals.items():
            alike.setdefault(tuple(card.who for card in cards), []).append(device)
        for who, devices in alike.items():
            cards = rivals[devices[0]]
            hosts = fold_hosts(card.host for card in cards)
            verb = "is" if len(devices) == 1 else "are"
            by = f"{len(who)} processes on {hosts}: {_listed(who)}" if len(who) > 2 else _both(who)
            yield finding(
                "RM605",
                f"{_devices(devices)} {verb} claimed by {by}",
                ranks=devices,
                fix=LOCAL_NUMBERS if self._counts_locally() else None,
            )

    def _counts_locally(self) -> bool:
        """Whether every host claims the same devices, and nobody the rest."""
        by_host: dict[str, set[int]] = {}
        for card in (*self.cards.values(), *(each.card for each in self._refused.values())):
            by_host.setdefault(card.host, set()).update(card.devices)
        claims = list(by_host.values())
        return len(claims) > 1 and bool(self.absent) and all(each == claims[0] for each in claims)

    def _servers(self) -> Iterator[Finding]:
        """RM404 where the processes believe to run on servers of different kinds."""
        kinds: dict[str, list[int]] = {}
        for card in self.cards.values():
            if card.instance or card.core_size is not None:
                cores = (
                    "" if card.core_size is None else f" with logical-core size {card.core_size}"
                )
                kind = f"{card.instance or 'a server'}{cores}"
                kinds.setdefault(kind, []).extend(card.devices)
        if len(kinds) > 1:
            said = "; ".join(f"{kind}: {_devices(devices)}" for kind, devices in kinds.items())
            values = tuple(Value(ranks=tuple(sorted(d)), value=kind) for kind, d in kinds.items())
            yield finding(
                "RM404",
                f"the processes run on different servers: {said}",
                ranks=chain.from_iterable(kinds.values()),
                field="instance",
                values=values,
            )

    def _world_sizes(self) -> tuple[Finding, ...]:
        """RM001 where processes were started for worlds of different sizes; the root may be odd."""
        sides: dict[int, list[Card]] = {self.world.size: list(self.cards.values())}
        for refusal in self._of_other_worlds():
            sides.setdefault(refusal.card.world_size, []).append(refusal.card)
        if len(sides) == 1:
            return ()
        count = sum(map(len, sides.values()))
        usual = next((size for size, cards in sides.items() if 2 * len(cards) > count), None)
        devices = {
            size: tuple(sorted({d for card in cards for d in card.devices}))
            for size, cards in sides.items()
        }
        said = "; ".join(
            f"{size} by {_listed([card.who for card in cards])}" for size, cards in sides.items()
        )
        return (
            finding(
                "RM001",
                f"the world was given different sizes: {said}",
                ranks=chain.from_iterable(d for size, d in devices.items() if size != usual),
                others=devices.get(usual, ()) if usual is not None else (),
                majority=usual is not None,
                field="world_size",
                values=tuple(Value(ranks=d, value=size) for size, d in devices.items()),
            ),
        )


def _devices(devices: Iterable[int]) -> str:
    ids = sorted(set(devices))
    return f"device{'s' if len(ids) != 1 else ''} {fold(ids) or 'none'}"


def _listed(who: Sequence[str]) -> str:
    more = f" and {len(who) - NAMED} more" if len(who) > NAMED else ""
    return ", ".join(who[:NAMED]) + more


def _both(who: Sequence[str]) -> str:
    return " and by ".join(who)
