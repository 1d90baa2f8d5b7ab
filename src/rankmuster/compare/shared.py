"""The communicators that different programs share, and what each program holds there.

Programs whose collectives are the same are *kin*, whatever messages they exchange besides: between
kin nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankmuster.copies import ProgramClass
from rankmuster.group import SubGroup
from rankmuster.signature.canonical import communicator_digest, program_digest, set_digest
from rankmuster.signature.digest import Digest


def kin(classes: Sequence[ProgramClass]) -> tuple[ProgramClass, ...]:
    """Join the classes that post the same collectives on the same table of sets."""
    alike: dict[object, list[ProgramClass]] = {}
    for each in classes:
        sets = tuple(set_digest(each.resolved, one.id) for one in each.resolved.sets)
        key = (program_digest(each.resolved), sets, each.resolved.program.not_recorded)
        alike.setdefault(key, []).append(each)
    return tuple(
        ProgramClass(
            number,
            group[0].resolved,
            tuple(sorted(device for each in group for device in each.devices)),
            tuple(copy for each in group for copy in each.copies),
            group[0].name,
        )
        for number, group in enumerate(alike.values())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Programs that hold the same on one communicator, and which of its members run them.

    `digest` is None, and `set_ids` empty, where these programs have no such communicator. `set_ids`
    are those of `first`, the program that speaks for all.
    """

    digest: Digest | None
    programs: tuple[ProgramClass, ...]
    set_ids: tuple[int, ...]
    devices: tuple[int, ...]

    @property
    def first(self) -> ProgramClass:
        """The program that speaks for this side."""
        return self.programs[0]

    @property
    def runners(self) -> frozenset[int]:
        """All devices that run its programs, of the communicator or not."""
        return frozenset(device for each in self.programs for device in each.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A communicator whose members run programs that are not all kin, and its sides."""

    members: SubGroup
    sides: tuple[Side, ...]


def shared_communicators(programs: Sequence[ProgramClass]) -> Iterator[Shared]:
    """Every member list of two or more that a member's own program names, if not kin share it."""
    runs = {device: each for each in programs for device in each.devices}
    seen: set[SubGroup] = set()
    for each in programs:
        for members in each.resolved.sets_by_members:
            if len(members) < 2 or members in seen:
                continue
            held: dict[int, list[int]] = {}
            for device in dict.fromkeys(members):
                if (program := runs.get(device)) is not None:
                    held.setdefault(program.number, []).append(device)
            if each.number in held:
                seen.add(members)
                if len(held) > 1:
                    yield Shared(members=members, sides=sides(programs, members, held))


def sides(
    programs: Sequence[ProgramClass], members: SubGroup, held: dict[int, list[int]]
) -> tuple[Side, ...]:
    """Sort the programs on a communicator by what they hold there, lowest devices first."""
    alike: dict[Digest | None, list[int]] = {}
    for number in held:
        resolved = programs[number].resolved
        known = members in resolved.sets_by_members
        digest = communicator_digest(resolved, members) if known else None
        alike.setdefault(digest, []).append(number)
    found = [
        Side(
            digest=digest,
            programs=tuple(programs[number] for number in numbers),
            set_ids=programs[numbers[0]].resolved.sets_by_members.get(members, ()),
            devices=tuple(sorted(device for number in numbers for device in held[number])),
        )
        for digest, numbers in alike.items()
    ]
    return tuple(sorted(found, key=lambda side: side.devices))
