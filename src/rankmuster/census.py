"""Who is in the world: the cards that processes hand in, and what they say taken together.

Knows no socket and no clock: connections are handles, and whoever asks says what time it is. It
never decides what a difference between programs means, only whether there may be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from rankmuster.finding import Finding, Value, finding
from rankmuster.ranks import fold
from rankmuster.world import World

HEAL_S = 5.0  # for what a better card could still put right
LOSS_S = 0.25  # after a loss, for those who are about to speak
MARGIN_SHARE, MARGIN_MIN_S, MARGIN_MAX_S = 0.1, 1.0, 5.0


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What one process says about itself.

    `content` is equal exactly where no check could tell two programs apart; b"" says that the
    process has no program, and `findings` why. `ledger` is that of its sends and receives.
    `suspect` says that its program alone has something to report, so that it must be looked at.
    `remaining_s` of `whole_s` seconds were left when the card was written.
    """

    process: int
    devices: tuple[int, ...]
    world_size: int
    host: str
    pid: int
    version: str
    whole_s: float
    remaining_s: float
    digest: bytes = b""
    content: bytes = b""
    ledger: bytes = bytes(16)
    suspect: bool = False
    address: str = ""
    path: str = ""
    instance: str = ""
    virtual_core_size: int = 0
    read_s: float = 0.0
    findings: tuple[Finding, ...] = ()

    @property
    def who(self) -> str:
        """The process as messages name it."""
        return f"process {self.process} (pid {self.pid} on {self.host})"


def margin_s(whole_s: float) -> float:
    """How long before a deadline the root must answer, so that the answer still arrives."""
    wanted = min(max(MARGIN_SHARE * whole_s, MARGIN_MIN_S), MARGIN_MAX_S)
    return min(wanted, whole_s / 4)


@dataclass(slots=True)
class Census:
    """The cards so far, for a world of `world.size` devices led by a process of *version*.

    `cards` holds the accepted ones by handle, `refused` the others; neither is ever empty-handed
    about why: `findings` names every conflict.
    """

    world: World
    version: str
    cards: dict[int, Card] = field(default_factory=dict)
    refused: dict[int, Card] = field(default_factory=dict)
    reading: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    proven: set[int] = field(default_factory=set)
    conflict_since: float | None = None
    loss_since: float | None = None
    answer_by: float = float("inf")
    _owner: dict[int, Card] = field(default_factory=dict)
    _conflicts: list[Finding] = field(default_factory=list)
    _losses: list[Finding] = field(default_factory=list)

    def knock(self, handle: int, process: int, first_device: int, count: int) -> None:
        """Someone with the secret is at the door and reads its program now."""
        devices = range(first_device, min(first_device + count, self.world.size))
        self.reading[handle] = (process, tuple(devices))

    def join(self, handle: int) -> None:
        """That someone is who it says: from now on its loss is the loss of a process."""
        self.proven.add(handle)

    def hand_in(self, handle: int, card: Card, now: float) -> bool:
        """Take a card; return whether it was accepted. A refused one is a conflict from now on."""
        self.reading.pop(handle, None)
        self.answer_by = min(self.answer_by, now + card.remaining_s - margin_s(card.whole_s))
        conflicts = self._objections(card)
        if handle in self.cards:
            conflicts = (finding("RM605", f"{card.who} handed in two cards", ranks=card.devices),)
        if conflicts:
            self.refused[handle] = card
            self._conflicts += conflicts
            self.conflict_since = now if self.conflict_since is None else self.conflict_since
            return False
        self.cards[handle] = card
        self._owner |= dict.fromkeys(card.devices, card)
        return True

    def lose(self, handle: int, why: str, phase: str, now: float) -> None:
        """A connection ended before the answer."""
        card = self.cards.get(handle)
        if card is not None:
            devices, name = card.devices, card.who
        elif handle in self.reading and handle in self.proven:
            process, devices = self.reading.pop(handle)
            name, phase = f"process {process}", "reading its program"
        else:
            self.reading.pop(handle, None)
            return  # somebody repeated a hello, or was refused and knows why
        self.lose_process(devices, f"{name} was lost while {phase}: {why}", now)

    def lose_process(self, devices: Iterable[int], message: str, now: float) -> None:
        """A process is known to be gone, however we know; the first message about it stays."""
        ranks = tuple(devices)
        if not self._lost().intersection(ranks):
            self._losses.append(finding("RM602", message, ranks=ranks))
        self.loss_since = now if self.loss_since is None else self.loss_since

    @property
    def complete(self) -> bool:
        """Whether every device of the world has an accepted card."""
        return len(self._owner) == self.world.size

    @property
    def absent(self) -> tuple[int, ...]:
        """The devices that nobody has shown any sign of."""
        here = {*self._owner, *self._still_reading(), *self._lost()}
        return tuple(device for device in range(self.world.size) if device not in here)

    def ended(self, now: float) -> bool:
        """Whether there is no point in waiting for more cards."""
        return (
            (self.complete and not self._losses)
            or now >= self.answer_by
            or (self.conflict_since is not None and now >= self.conflict_since + HEAL_S)
            or (self.loss_since is not None and now >= self.loss_since + LOSS_S)
        )

    def next_look(self, now: float) -> float:
        """When `ended` may change by itself."""
        times = [self.answer_by]
        if self.conflict_since is not None:
            times.append(self.conflict_since + HEAL_S)
        if self.loss_since is not None:
            times.append(self.loss_since + LOSS_S)
        return max(now, min(times))

    def findings(self) -> tuple[Finding, ...]:
        """Everything that speaks against this world, once the census has ended."""
        found = [*self._conflicts, *self._losses]
        if self.complete:
            return tuple(found)
        still = self._still_reading()
        if absent := self.absent:
            found.append(
                finding(
                    "RM601",
                    f"{_devices(absent)} of {self.world.size} never came",
                    ranks=absent,
                    others=self._owner,
                )
            )
        if still:
            found.append(
                finding(
                    "RM603",
                    f"{_devices(still)} came, but had not read the program in time",
                    ranks=still,
                )
            )
        return tuple(found)

    def waiting_for(self) -> str:
        """Who is missing, for people: "device 5 (not here), devices 6-7 (reading)"."""
        still = self._still_reading()
        parts = [(self.absent, "not here"), (still, "reading the program")]
        return ", ".join(f"{_devices(devices)} ({why})" for devices, why in parts if devices)

    def _lost(self) -> set[int]:
        return {device for loss in self._losses for device in loss.ranks}

    def _still_reading(self) -> set[int]:
        reading = {device for _, devices in self.reading.values() for device in devices}
        return reading - self._lost() - set(self._owner)

    def _objections(self, card: Card) -> tuple[Finding, ...]:
        if card.version != self.version:
            message = f"{card.who} runs version {card.version}, the root {self.version}"
            return (finding("RM607", message, ranks=card.devices),)
        if card.world_size != self.world.size:
            return (self._other_world(card),)
        if not card.devices or not all(0 <= d < self.world.size for d in card.devices):
            message = f"{card.who} claims {_devices(card.devices)} of a world of {self.world.size}"
            return (finding("RM001", message, ranks=card.devices),)
        rivals = {self._owner[d].who: d for d in card.devices if d in self._owner}
        return tuple(
            finding(
                "RM605",
                f"device {device} is claimed by {rival} and by {card.who}",
                ranks=(device,),
            )
            for rival, device in rivals.items()
        )

    def _other_world(self, card: Card) -> Finding:
        mine = tuple(self._owner)
        return finding(
            "RM001",
            f"{card.who} was started for a world of {card.world_size} devices, the root for "
            f"{self.world.size}",
            ranks=card.devices,
            others=mine,
            field="world_size",
            values=(
                Value(ranks=mine, value=self.world.size),
                Value(ranks=card.devices, value=card.world_size),
            ),
        )


def _devices(devices: Iterable[int]) -> str:
    ids = sorted(set(devices))
    return f"device{'s' if len(ids) != 1 else ''} {fold(ids) or 'none'}"
