"""What one group occupies of a cluster: chips, nodes, pods, racks, and the links of its ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rankmuster.clusters import Cluster
from rankmuster.group import SubGroup
from rankmuster.resolve import GroupSet

Step = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """`per_node` is the members on each node, None where nodes contribute unevenly.

    `same_places` says that every node gives the devices of the same numbers. Steps of the ring (or
    of the pairs) stay on a chip, cross a direct link, have to pass `unlinked` other chips, or leave
    over the `network`; `max_hops` and `hops` count links. `whole_chips` says that each chip takes
    part with all its devices.
    """

    size: int
    chips: int
    nodes: int
    pods: int
    racks: int
    per_node: int | None
    same_places: bool
    whole_chips: bool
    same_chip: int
    linked: int
    unlinked: int
    network: int
    hops: int
    max_hops: int

    def to_dict(self, cluster: Cluster) -> dict[str, Any]:
        """The footprint as the report shows it; None for pods and racks that do not exist."""
        return {
            "size": self.size,
            "chips": self.chips,
            "nodes": self.nodes,
            "pods": self.pods if cluster.has_pods else None,
            "racks": self.racks if cluster.instance.rack_nodes else None,
            "per_node": self.per_node,
            "even": self.per_node is not None,
            "same_places": self.same_places,
            "steps": {
                "same_chip": self.same_chip,
                "linked": self.linked,
                "unlinked": self.unlinked,
                "network": self.network,
                "hops": self.hops,
                "max_hops": self.max_hops,
            },
        }


def measure(members: SubGroup, steps: Sequence[Step], cluster: Cluster) -> Footprint:
    """The footprint of *members* whose neighbours are *steps*; all are devices of *cluster*."""
    local = cluster.local_rank_n
    nodes = Counter(device // local for device in members)
    chips = Counter(map(cluster.chip_of, members))
    places: dict[int, set[int]] = {}
    for device in members:
        places.setdefault(device // local, set()).add(device % local)
    counts = set(nodes.values())
    hops = [cluster.hops(source, target) for source, target in steps]
    known = [count for count in hops if count is not None]
    return Footprint(
        size=len(members),
        chips=len(chips),
        nodes=len(nodes),
        pods=len({cluster.pod_of(device) for device in members}),
        racks=len({cluster.rack_of(device) for device in members}),
        per_node=counts.pop() if len(counts) == 1 else None,
        same_places=len({frozenset(each) for each in places.values()}) <= 1,
        whole_chips=set(chips.values()) == {cluster.workers_per_chip},
        same_chip=hops.count(0),
        linked=hops.count(1),
        unlinked=sum(count > 1 for count in known),
        network=hops.count(None),
        hops=sum(known),
        max_hops=max(known, default=0),
    )


def ring(members: SubGroup) -> tuple[Step, ...]:
    """Each member and the next in written order, closed; two members make one step."""
    if len(members) < 2:
        return ()
    steps = tuple(zip(members, (*members[1:], members[0]), strict=True))
    return steps[:1] if len(members) == 2 else steps


@dataclass(slots=True)
class Shape:
    """The sub-groups of one set that lie alike: the first, how many, and who they are."""

    footprint: Footprint
    first: SubGroup
    steps: tuple[Step, ...]
    groups: list[SubGroup] = field(default_factory=list)

    def devices(self) -> Iterable[int]:
        """Everybody in these sub-groups."""
        return chain.from_iterable(self.groups)


@dataclass
class Surveyor:
    """Measures sets on one cluster; sub-groups that differ by whole pods are measured once."""

    cluster: Cluster
    seen: dict[tuple[SubGroup, tuple[Step, ...]], Footprint] = field(default_factory=dict)

    def shapes(self, each: GroupSet, world_size: int) -> tuple[Shape, ...]:
        """The set's sub-groups by how they lie; ids that do not exist are left to `verify`."""
        found: dict[Footprint, Shape] = {}
        limit = min(world_size, self.cluster.size)
        for members, steps in neighbours(each):
            if not members or min(members) < 0 or max(members) >= limit:
                continue
            footprint = self._measure(members, steps)
            shape = found.setdefault(footprint, Shape(footprint, members, steps))
            shape.groups.append(members)
        return tuple(found.values())

    def _measure(self, members: SubGroup, steps: tuple[Step, ...]) -> Footprint:
        base = self._base(members[0])
        key = (
            tuple(device - base for device in members),
            tuple((source - base, target - base) for source, target in steps),
        )
        if key not in self.seen:
            self.seen[key] = measure(members, steps, self.cluster)
        return self.seen[key]

    def _base(self, device: int) -> int:
        """Where the device's pod begins; 0 where the last pod is not full, so nothing is shared."""
        room = self.cluster.instance.pod_nodes
        if self.cluster.nodes % room:
            return 0
        unit = self.cluster.local_rank_n * room
        return device // unit * unit


def neighbours(each: GroupSet) -> Iterator[tuple[SubGroup, tuple[Step, ...]]]:
    """Each sub-group with its steps: its ring, or the pairs inside it."""
    if each.pairs is None:
        yield from ((members, ring(members)) for members in each.members)
        return
    own: dict[int, list[Step]] = {}
    for source, target in each.pairs:
        if source != target:
            own.setdefault(source, []).append((source, target))
    for members in each.members:
        yield members, tuple(chain.from_iterable(own.get(device, ()) for device in members))
