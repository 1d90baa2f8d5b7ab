"""What is wrong with where groups land: RM204, RM205, RM401 to RM404, and worlds that do not fit.

Every finding is about the cluster and one set; ids that do not exist are `verify`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from rankmuster.clusters import Cluster
from rankmuster.finding import Finding, finding
from rankmuster.group import SubGroup
from rankmuster.placement.footprint import Footprint, Shape
from rankmuster.placement.traffic import Traffic
from rankmuster.ranks import fold
from rankmuster.resolve import GroupSet, Resolved

ANY_TARGET = "*"
WEIGHED = 64  # sets, each against all others; no runtime has room for more than 16


@dataclass(frozen=True, slots=True)
class Placed:
    """A set and how its sub-groups lie."""

    set: GroupSet
    shapes: tuple[Shape, ...]


def check_claims(cluster: Cluster) -> Iterator[Finding]:
    """RM403 and RM404: servers contradict the cluster, or each other."""
    listed = cluster.listed_core_size
    if listed is not None and listed != cluster.core_size:
        yield finding(
            "RM403",
            f"the cluster is taken with logical-core size {cluster.core_size},"
            f" its servers say {listed}",
        )
    for claim in cluster.claims:
        yield finding("RM404", claim)


def check_world(cluster: Cluster, world_size: int) -> Iterator[Finding]:
    """RM002 and RM403: the world does not fit."""
    if world_size <= cluster.size:
        return
    fits = [size for size in cluster.instance.core_sizes if _capacity(cluster, size) == world_size]
    what = f"the world has {world_size} devices and {cluster.name} holds {cluster.size}"
    if fits:
        yield finding(
            "RM403",
            f"{what}: it fits logical-core size {fits[0]}, not {cluster.core_size}",
            fix=f"say lnc={fits[0]} if the program was compiled for it, or recompile",
        )
    else:
        yield finding("RM002", what, fix="take more nodes, or a program for a smaller world")


def check_part(cluster: Cluster, world_size: int) -> Iterator[Finding]:
    """RM404: the world takes a part of a server that the runtime's topology check refuses."""
    chip, server = cluster.workers_per_chip, cluster.local_rank_n
    parts = [chip * count for count in cluster.instance.chip_counts[1:-1]]
    if not parts or world_size <= chip or world_size in parts or world_size % server == 0:
        return
    whole = world_size // server * server
    below = max(size for size in (chip, *parts, whole) if size < world_size)
    above = min(size for size in (*parts, whole + server) if size > world_size)
    yield finding(
        "RM404",
        f"the runtime takes no world of {world_size} devices on {cluster.instance.name}:"
        f" up to {chip}, {', '.join(map(str, parts))} or a multiple of {server} are possible",
        fix=f"take {below} or {above} devices, and see what says {world_size}: a launcher's count,"
        " NEURON_RT_NUM_CORES, --world or the program",
    )


def _capacity(cluster: Cluster, core_size: int) -> int:
    return cluster.size * cluster.core_size // core_size


def check_targets(cluster: Cluster, programs: Sequence[Resolved]) -> Iterator[Finding]:
    """RM403 and RM404: a program was compiled for other cores, or other chips."""
    generation = cluster.instance.generation
    if generation is None:
        return
    sizes = {each.program.core_size for each in programs} - {None, cluster.core_size}
    for size in sorted(filter(None, sizes)):
        yield finding(
            "RM403",
            f"the program was compiled for logical-core size {size}, and {cluster.name} has"
            f" {cluster.core_size}",
        )
    chips = generation.name.lower()
    targets = {each.program.target for each in programs} - {None, ANY_TARGET, chips}
    for target in sorted(filter(None, targets)):
        yield finding(
            "RM404",
            f"the program was compiled for {target} chips, and those of {cluster.name} are {chips}",
            fix="compile for the cluster's chips, or name the cluster that it was compiled for",
        )


def check_room(cluster: Cluster, sets: Sequence[GroupSet]) -> Iterator[Finding]:
    """RM106: more sets than this cluster's runtime has communicators."""
    limit = cluster.max_communicators
    if limit is not None and len(sets) > limit:
        yield finding(
            "RM106", f"the program has {len(sets)} group sets, and the runtime room for {limit}"
        )


def check_pairs(cluster: Cluster, placed: Placed) -> Iterator[Finding]:
    """RM204, RM205: a permute on Neuron hardware runs along rings of direct links (facts §7.1)."""
    if placed.set.pairs is None or not cluster.is_neuron:
        return
    sends = Counter(source for source, _ in placed.set.pairs)
    receives = Counter(target for _, target in placed.set.pairs)
    open_ones = [
        members
        for members in chain.from_iterable(shape.groups for shape in placed.shapes)
        if any(sends[device] != 1 or receives[device] != 1 for device in members)
    ]
    if open_ones:
        yield finding(
            "RM204",
            f"pairs set {placed.set.id}: {_some(open_ones)} not a ring: some device does not both"
            " send and receive",
            group=placed.set.id,
            ranks=(device for members in open_ones for device in members),
        )
    broken = [shape for shape in placed.shapes if shape.footprint.unlinked]
    if broken:
        shape = broken[0]
        far = [step for step in shape.steps if (cluster.hops(*step) or 0) > 1]
        (source, target), *_ = far
        count = sum(each.footprint.unlinked * len(each.groups) for each in broken)
        yield finding(
            "RM205",
            f"pairs set {placed.set.id}: devices {source} and {target} sit on chips"
            f" {cluster.hops(source, target)} links apart"
            + (f" (and {count - 1} more pairs likewise)" if count > 1 else ""),
            group=placed.set.id,
            ranks=(device for each in broken for device in each.devices()),
        )


def _some(groups: Sequence[SubGroup]) -> str:
    if len(groups) == 1:
        return f"the component of devices {fold(groups[0])} is"
    return f"{len(groups)} components, such as {fold(groups[0])}, are"


def check_even(cluster: Cluster, placed: Placed) -> Iterator[Finding]:
    """RM402: nodes give a group different numbers of members, or members of other numbers."""
    if placed.set.pairs is not None:
        return
    wrong = [shape for shape in placed.shapes if _uneven(shape.footprint, cluster)]
    if wrong:
        shape = wrong[0]
        local = cluster.local_rank_n
        counts = Counter(device // local for device in shape.first)
        if shape.footprint.per_node is None:
            what = (
                "nodes give " + ", ".join(f"{node}: {n}" for node, n in _few(counts)) + " members"
            )
        else:
            what = "nodes give devices of different numbers"
        yield finding(
            "RM402",
            f"group set {placed.set.id}: {_of(shape)}: {what}",
            group=placed.set.id,
            ranks=(device for each in wrong for device in each.devices()),
        )


def _few(counts: Mapping[int, int], limit: int = 6) -> list[tuple[int, int]]:
    return sorted(counts.items())[:limit]


def _uneven(footprint: Footprint, cluster: Cluster) -> bool:
    return footprint.per_node is None or (cluster.is_neuron and not footprint.same_places)


def _of(shape: Shape) -> str:
    more = len(shape.groups) - 1
    return f"devices {fold(shape.first)}" + (f" (and {more} more groups)" if more else "")


@dataclass(frozen=True, slots=True)
class Level:
    """A boundary: its name, how many devices lie within one unit, and a footprint's field."""

    name: str
    capacity: int
    field: str

    def spans(self, footprint: Footprint) -> int:
        """How many units a group occupies."""
        spans: int = getattr(footprint, self.field)
        return spans

    def needs(self, size: int) -> int:
        """How many units a group of *size* needs at least."""
        return -(-size // self.capacity)

    def is_tight(self, footprint: Footprint) -> bool:
        """Whether a group occupies no more units than it needs."""
        return self.spans(footprint) == self.needs(footprint.size)


def levels(cluster: Cluster) -> tuple[Level, ...]:
    """The boundaries of a cluster that a group can cross, the dearest first."""
    local = cluster.local_rank_n
    pod = max(seat.size for seat in cluster.seats)
    every = (
        Level("racks", cluster.instance.rack_nodes * local, "racks"),
        Level("pods", pod * local if pod > 1 else 0, "pods"),
        Level("nodes", local, "nodes"),
        Level("chips", cluster.workers_per_chip, "chips"),
    )
    return tuple(level for level in every if 1 < level.capacity < cluster.size)


def check_crossings(
    cluster: Cluster, sets: Sequence[Placed], moved: Mapping[int, Traffic]
) -> Iterator[Finding]:
    """RM401: a set crosses a boundary although another order of the mesh axes would spare it.

    A crossing is justified where sets that lie as tightly as they can, and move at least as much,
    would not leave room: the group together with their groups of its members fills more units than
    the group needs by itself. A group that holds all of this one takes no room away from it. One
    finding a set, for the dearest boundary; of very many sets only the first are weighed.
    """
    bounds = levels(cluster)
    for placed in sets[:WEIGHED]:
        needless = (_needless(placed, level, sets[:WEIGHED], moved) for level in bounds)
        yield from islice((found for found in needless if found is not None), 1)


def _needless(
    placed: Placed, level: Level, sets: Sequence[Placed], moved: Mapping[int, Traffic]
) -> Finding | None:
    crossing = [shape for shape in placed.shapes if not level.is_tight(shape.footprint)]
    if not crossing:
        return None
    own = moved[placed.set.id].total
    tight = [
        other
        for other in sets
        if other is not placed and all(level.is_tight(shape.footprint) for shape in other.shapes)
    ]
    heavy = [other for other in tight if moved[other.set.id].total >= own]
    for shape in crossing:
        room = level.needs(shape.footprint.size) * level.capacity
        if _reach(shape.first, heavy, room) <= room:
            # Lighter sets are told where they alone would have justified the crossing.
            light = [each for each in tight if each not in heavy]
            told = [
                each.set.id for each in light if _reach(shape.first, [*heavy, each], room) > room
            ]
            return _crossing(placed, level, shape, told, own)
    return None


def _reach(members: SubGroup, tight: Sequence[Placed], room: int) -> int:
    """How many devices hang together with *members* through tight sets; stops above *room*."""
    found = set(members)
    tight = [each for each in tight if not found.issubset(each.set.by_device.get(members[0], ()))]
    queue = list(found)
    for device in queue:  # grows while it is read
        for each in tight:
            new = set(each.set.by_device.get(device, ())) - found
            found |= new
            queue += new
        if len(found) > room:
            break
    return len(found)


def _crossing(
    placed: Placed, level: Level, shape: Shape, lighter: Sequence[int], moved: int
) -> Finding:
    footprint = shape.footprint
    because = (
        f", and it moves more ({moved} bytes) than what lies tighter: set"
        f" {', '.join(map(str, lighter))}"
        if lighter
        else ""
    )
    return finding(
        "RM401",
        f"group set {placed.set.id}: {_of(shape)}: {footprint.size} members lie on"
        f" {level.spans(footprint)} {level.name} where {level.needs(footprint.size)} would"
        f" do{because}",
        group=placed.set.id,
        ranks=shape.devices(),
    )
