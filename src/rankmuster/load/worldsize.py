"""How large the world is that some program files are for, and who said so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rankmuster.errors import UnreadableInput
from rankmuster.finding import Finding, Severity, finding
from rankmuster.load.devices import WORLD_MAX, Place
from rankmuster.load.options import LoadOptions
from rankmuster.program import Program
from rankmuster.wording import reference, whereabouts
from rankmuster.world import World, WorldSource


def world_of(programs: Sequence[Program], places: Sequence[Place], options: LoadOptions) -> World:
    """The world: as stated, else what most programs claim, else the least that holds them all."""
    size, source = claimed(programs) or (0, "inferred")
    if options.world is not None:
        size, source = options.world, "option"
    elif source == "inferred":
        size = max(size, least(programs, places, options))
    if size > WORLD_MAX:
        what = f"a world of {size} devices is larger than {WORLD_MAX}"
        if source == "inferred":
            what += naming(programs, places, size - 1)
        raise UnreadableInput(what, fix="say --world")
    return World(size=size, source=source)


def naming(programs: Iterable[Program], places: Iterable[Place], device: int) -> str:
    """Who names *device*: file, op and source line of the first op on a set that does."""
    for program, place in zip(programs, places, strict=False):
        groups = [
            max(map(max, filter(None, g.members)), default=-1) for g in program.replica_groups
        ]
        pairs = [max(map(max, p.pairs), default=-1) for p in program.src_target_pairs]
        index = 0
        for op in program.walk():
            most = groups[op.group] if op.group is not None else pairs[op.pairs or 0]
            if most == device:
                ref = reference(op, index, 0)
                return f": {place.path} names device {device}{whereabouts(program, ref)}"
            index += op.places
    return ""


def claimed(programs: Iterable[Program]) -> tuple[int, WorldSource] | None:
    """The world size that most programs state, the larger on a tie; stated before inferred."""
    claims = Counter(
        (program.world_source != "inferred", program.world_size)
        for program in programs
        if program.world_size is not None
    )
    if not claims:
        return None
    best = max(claims, key=lambda claim: (claim[0], claims[claim], claim[1]))
    return best[1], next(
        program.world_source
        for program in programs
        if (program.world_source != "inferred", program.world_size) == best
    )


def least(programs: Iterable[Program], places: Sequence[Place], options: LoadOptions) -> int:
    """The smallest world of whole processes with every id, every file and every stated device."""
    ids = (device for program in programs for device in named(program))
    numbers = (place.number for place in places if place.number is not None)
    processes = max(len(places), max(numbers, default=-1) + 1)
    counts = options.devices_per_process
    stated_ids = (*options.devices, *(device for devices, _ in options.ranks for device in devices))
    size = max(max(ids, default=0), max(stated_ids, default=0)) + 1
    if len(counts) > 1:
        return max(size, sum(counts))
    each = counts[0] if counts and not stated_ids else 1
    return max(processes, -(-size // each)) * each


def named(program: Program) -> Iterator[int]:
    """The largest device id of each group and pair in the program."""
    for groups in program.replica_groups:
        yield from (max(group) for group in groups.members if group)
    for pairs in program.src_target_pairs:
        yield from (max(pair) for pair in pairs.pairs)


def larger(programs: Iterable[Program], world: World) -> tuple[Finding, ...]:
    """RM003, where the size that was said is larger than what the programs are for.

    A warning: they are only looked at here; a bring-up refuses them.
    """
    sizes = {each.world_size for each in programs if each.world_source != "inferred"} - {None}
    smaller = sorted(size for size in sizes if size is not None and size < world.size)
    if world.source != "option" or not smaller:
        return ()
    return (
        finding(
            "RM003",
            f"the program is for {smaller[0]} devices, and the world is said to have {world.size}",
            severity=Severity.WARNING,
            fix="compile it for this world, or leave its size to the program",
        ),
    )


def inferred(world: World) -> tuple[Finding, ...]:
    """The note that nobody stated the size of the world."""
    if world.source != "inferred":
        return ()
    text = f"world size {world.size} was inferred: no file and no option states it"
    return (finding("RM704", text, fix="say --world"),)
