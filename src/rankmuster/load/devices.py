"""Which devices each program file stands for. Pure arithmetic over numbers and counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankmuster.errors import UnreadableInput
from rankmuster.finding import Finding, finding
from rankmuster.ranks import fold
from rankmuster.wording import short, who

WORLD_MAX = 1 << 20  # ten times the largest machines in use; each device costs memory
SAY_RANKS = "say --ranks 0-3=a.hlo --ranks 4-7=b.hlo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which process one file says it is of: `process` by its name, `rank` by its text.

    `alone` is the process of a single file's name, which stands for everybody all the same.
    """

    path: str
    process: int | None = None
    rank: int | None = None
    alone: int | None = None

    @property
    def number(self) -> int | None:
        """The number of its process; what the text says wins."""
        return self.process if self.rank is None else self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The consecutive devices of one process; empty where a file got none."""

    process: int | None
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Each file's block, in the order of the files, and the devices that nobody speaks for."""

    blocks: tuple[Block, ...]
    absent: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()


NOWHERE = Block(process=None, devices=())


def seat(
    places: Sequence[Place],
    world_size: int,
    counts: tuple[int, ...] = (),
    processes: frozenset[int] = frozenset(),
) -> Seating:
    """Give each of *places* its devices in a world of *world_size*.

    *counts* says how many devices a process holds: one number for all, or one each; none leaves
    it to the number of files. *processes* are numbers known to exist beside those of the places.
    Raises `UnreadableInput` where files without numbers do not divide the world.
    """
    if len(places) == 1 and places[0].number is None:
        everybody = Block(process=None, devices=tuple(range(world_size)))
        return Seating(blocks=(everybody,), findings=tuple(forgotten(places[0], world_size)))
    layout = Layout.of(places, world_size, counts, processes)
    blocks: list[Block] = []
    findings: list[Finding] = []
    taken: dict[int | None, str] = {}
    for ordinal, place in enumerate(places):
        block = layout.block_of(place, ordinal)
        if not block.devices:
            findings.append(outside(place, block, world_size))
        elif block.process in taken:
            findings.append(twice(place, block, taken[block.process]))
            block = NOWHERE
        taken.setdefault(block.process, place.path)
        blocks.append(block)
    covered = {device for block in blocks for device in block.devices}
    absent = tuple(device for device in range(world_size) if device not in covered)
    findings += inferred(places, blocks)
    if absent:
        findings.append(missing(absent, layout, world_size))
    return Seating(blocks=tuple(blocks), absent=absent, findings=tuple(findings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """First device of each process, by its number; the last entry ends the last process."""

    starts: tuple[int, ...]

    @classmethod
    def of(
        cls,
        places: Sequence[Place],
        world_size: int,
        counts: tuple[int, ...],
        processes: frozenset[int],
    ) -> Layout:
        """Lay the world out by *counts*, else by how many files there are."""
        each = counts if len(counts) > 1 else ()
        if not each:
            size = counts[0] if counts else devices_each(places, world_size, processes)
            each = (size,) * -(-world_size // size)
        starts = [0]
        for size in each:
            starts.append(min(starts[-1] + size, world_size))
        return cls(starts=tuple(starts))

    def block_of(self, place: Place, ordinal: int) -> Block:
        """The block of a file: by its text, else by its name, else by its turn."""
        process = ordinal if place.number is None else place.number
        if process >= len(self.starts) - 1:
            return Block(process=process, devices=())
        devices = tuple(range(self.starts[process], self.starts[process + 1]))
        return Block(process=process, devices=devices)

    def process_of(self, device: int) -> int | None:
        """The process that holds *device*; None outside the world."""
        return bisect_right(self.starts, device) - 1 if device < self.starts[-1] else None

    def processes_of(self, devices: Sequence[int]) -> tuple[int, ...]:
        """The processes that hold *devices*, ascending."""
        return tuple(sorted({p for d in devices if (p := self.process_of(d)) is not None}))


def devices_each(places: Sequence[Place], world_size: int, processes: frozenset[int]) -> int:
    """How many devices a process holds, when nobody says: the world divided by the processes.

    Where that does not divide, numbered files hold one device each and the rest of the world is
    absent; files without numbers would have to be guessed at.
    """
    said = [place.number for place in places if place.number is not None]
    known = max([*said, *processes], default=len(places) - 1) + 1
    if known <= world_size and world_size % known == 0:
        return world_size // known
    if len(said) == len(places):
        return 1
    names = ", ".join(place.path for place in places[:4]) + ", ..." * (len(places) > 4)
    raise UnreadableInput(
        f"{len(places)} files cannot stand for {world_size} devices in equal parts: {names}",
        fix=SAY_RANKS,
    )


def refuse_misfit(counts: Sequence[int], world_size: int) -> None:
    """Raise `UnreadableInput` where processes of *counts* devices cannot make up the world."""
    if len(counts) == 1 and world_size % counts[0]:
        what = f"processes of {counts[0]} devices do not make up a world of {world_size}"
    elif len(counts) > 1 and sum(counts) != world_size:
        what = (
            f"{len(counts)} processes hold {sum(counts)} devices, and the world holds {world_size}"
        )
    else:
        return
    raise UnreadableInput(
        f"--devices-per-process {short(','.join(map(str, counts)))}: {what}",
        fix="let them fit (NEURON_PJRT_PROCESSES_NUM_DEVICES says it, too)",
    )


def outside(place: Place, block: Block, world_size: int) -> Finding:
    """A file whose number lies beyond the world."""
    return finding(
        "RM101",
        f"{place.path}: process {block.process} is outside a world of {world_size} "
        "(files count from 0)",
        fix="number the files from 0, or say --world",
    )


def twice(place: Place, block: Block, first: str) -> Finding:
    """Two files for the same devices."""
    return finding(
        "RM605",
        f"{first} and {place.path} both stand for {who(block.devices)}",
        ranks=block.devices,
        fix="give each process one file, or say which with --ranks IDS=FILE",
    )


def missing(absent: tuple[int, ...], layout: Layout, world_size: int) -> Finding:
    """Devices without a program."""
    text = f"no program for {who(absent)} of {world_size}"
    if processes := layout.processes_of(absent):
        text += f" (process{'es' if len(processes) > 1 else ''} {short(fold(processes))})"
    return finding("RM601", text, ranks=absent)


def inferred(places: Sequence[Place], blocks: Sequence[Block]) -> Iterator[Finding]:
    """What was assumed: several devices to a file, and numbers by turn."""
    sizes = {len(block.devices) for block in blocks if block.devices}
    if sizes and max(sizes) > 1:
        runs = "; ".join(
            f"{p.path}: {fold(b.devices)}" for p, b in zip(places[:4], blocks, strict=False)
        )
        more = f" and {len(places) - 4} more" if len(places) > 4 else ""
        yield finding("RM704", f"each file stands for consecutive devices ({runs}{more})")
    if any(place.number is None for place in places):
        order = ", ".join(place.path for place in places[:4])
        yield finding("RM704", f"files without numbers are taken in the order given: {order}")


def forgotten(place: Place, world_size: int) -> Iterator[Finding]:
    """The question whether one file, named as if there were more, is everybody's."""
    if place.alone is not None and world_size > 1:
        yield finding(
            "RM704",
            f"{place.path} is taken as the program of all {world_size} devices; its name looks like"
            f" process {place.alone}'s, and the files of the others were not given",
            fix="give all of them: their folder, or a pattern with {rank}",
        )


def seats_by_ids(places: Sequence[tuple[tuple[int, ...], str]], world_size: int) -> Seating:
    """The seating that `--ranks IDS=FILE` states; ids that nobody states are absent (RM601).

    Raises `UnreadableInput` for ids outside the world, and for one that two places state.
    """
    owner: dict[int, int] = {}
    for number, (devices, path) in enumerate(places):
        for device in devices:
            if not 0 <= device < world_size:
                what = f"device {device} for {path}: the world holds 0-{world_size - 1}"
                raise UnreadableInput(what, fix="say --world")
            if (first := owner.setdefault(device, number)) != number:
                raise UnreadableInput(f"device {device} is named for {places[first][1]} and {path}")
    absent = tuple(device for device in range(world_size) if device not in owner)
    gap = [finding("RM601", f"no program for {who(absent)} of {world_size}", ranks=absent)]
    return Seating(
        blocks=tuple(Block(process=None, devices=devices) for devices, _ in places),
        absent=absent,
        findings=tuple(gap if absent else ()),
    )
