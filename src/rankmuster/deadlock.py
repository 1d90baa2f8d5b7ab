"""The two deadlock screens that run before a program may load (S4 §4), with their reasons.

Gates first and in their order: while one is closed, topology is not looked at. Knows nodes through
two questions only (`Topology`), so that the order can be tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from rankmuster.arch import mapping
from rankmuster.clusters import Cluster
from rankmuster.errors import InvalidCluster
from rankmuster.group import SubGroup
from rankmuster.ranks import fold
from rankmuster.resolve import GroupSet
from rankmuster.screen import Screen

FORCE_2DEV_PROXY = "NEURON_RT_DBG_FORCE_2DEV_PROXY"
# The second spelling is an alias of the runtime's (facts §6.2).
DISABLE_ROUTING = ("NEURON_RT_DBG_DISABLE_RMV_DST_ROUTING", "NEURON_RT_DBG_DISABLE_RMV_DST_ROUTE")
GROUP_SIZE = 8
GRID_SIDE = 4  # chips of a 4x4 node: row = id // 4, column = id % 4
SCREENED_RANKS = 64
SCREENED_CORE_SIZE = 2


class Topology(Protocol):
    """What the screens ask of a node once their gates are open."""

    def mla_device_idx(self, participant: int) -> int:
        """The chip of a global device id, counted inside its node."""
        ...

    def directly_connected(self, a: int, b: int) -> bool:
        """Whether two chips of one node are joined by a port, or are one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What is known without looking at topology."""

    trn2_trn3: bool
    switch_v1: bool
    core_size: int
    local_rank_n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Debug switches and modes that open or bypass a screen.

    `disable_rmv_dst_routing` is None where nobody has set it; `streams` counts the program's.
    """

    force_2dev_proxy: bool = False
    disable_rmv_dst_routing: bool | None = None
    host_driven: bool = False
    streams: int = 1

    @staticmethod
    def of(environ: Mapping[str, str], *, streams: int = 1) -> Settings:
        """The switches as a process's environment sets them. Raises InvalidCluster for nonsense."""
        routing = next((_flag(environ, name) for name in DISABLE_ROUTING if name in environ), None)
        return Settings(
            force_2dev_proxy=_flag(environ, FORCE_2DEV_PROXY),
            disable_rmv_dst_routing=routing,
            streams=streams,
        )


def _flag(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "0").strip().lower()
    if value not in {"0", "1", "true", "false", ""}:
        raise InvalidCluster(f"{name}={value!r} is neither 0 nor 1")
    return value in {"1", "true"}


@dataclass(frozen=True)
class NodeTopology:
    """A cluster's node as the screens see it: through the accessors and maps of its chip."""

    cluster: Cluster

    @cached_property
    def _built(self) -> Cluster:
        chips = range(self.cluster.instance.chips)
        rids = dict(enumerate(self.cluster.instance.fabric.rids))
        mapping.build_port_and_rid_map(self.cluster.chip, 0, chips, chips, rids)
        return self.cluster

    @cached_property
    def _chips(self) -> tuple[int, ...]:
        local = range(self.cluster.local_rank_n)
        return tuple(self.cluster.chip.mla_device_idx(nec_dev) for nec_dev in local)

    def mla_device_idx(self, participant: int) -> int:
        """The chip of a global device id, counted inside its node (D58)."""
        return self._chips[participant % self.cluster.local_rank_n]

    def directly_connected(self, a: int, b: int) -> bool:
        """Whether the node's maps show a port between two chips."""
        return mapping.peer_directly_connected(self._built.chip, 0, a, b)


def gates_of(cluster: Cluster, world_size: int) -> Gates:
    """The gates of a world of *world_size* devices on *cluster*."""
    return Gates(
        trn2_trn3=cluster.instance.trn2_trn3,
        switch_v1=cluster.switch_v1,
        core_size=cluster.core_size,
        local_rank_n=min(cluster.local_rank_n, world_size),
    )


def screen(
    sets: Sequence[GroupSet], gates: Gates, topology: Topology, settings: Settings | None = None
) -> Screen:
    """Run both screens (`check_neff_replica_groups_for_deadlock_scenarios`).

    The answer holds for the program: a latch is set where any device would set it.
    """
    settings = settings or Settings()
    proxy, why_proxy = _two_device_proxy(sets, gates, topology, settings)
    routing, why_routing = _routing(sets, gates, topology, settings)
    return Screen(
        use_2dev_proxy=proxy,
        disable_rmv_dst_routing=routing,
        because=(f"two-device proxy: {why_proxy}", f"destination routing: {why_routing}"),
    )


def _two_device_proxy(
    sets: Sequence[GroupSet], gates: Gates, topology: Topology, settings: Settings
) -> tuple[bool, str]:
    # check_replica_groups_8r_2_neighbor_dev_one_rank_per_dev
    if settings.force_2dev_proxy:
        return True, f"forced by {FORCE_2DEV_PROXY}"
    if closed := _closed(sets, gates):
        return False, f"not screened: {closed}"
    neighbours, spread = _layouts(sets, gates, topology)
    both = sorted(neighbours.keys() & spread.keys())
    if not both:
        return False, "no device is in both an 8-rank group on two neighbour chips and one on eight"
    device = both[0]
    return True, (
        f"forced: group {neighbours[device]} puts 8 ranks on two neighbour chips and group"
        f" {spread[device]} one rank on each of 8 chips, both with device {device}"
    )


def _closed(sets: Sequence[GroupSet], gates: Gates) -> str:
    """The first gate of the proxy screen that is closed, "" for none."""
    if not gates.trn2_trn3:
        return "not the Trn2 or Trn3 family"
    if gates.core_size != SCREENED_CORE_SIZE:
        return f"logical-core size {gates.core_size}, not {SCREENED_CORE_SIZE}"
    if gates.local_rank_n != SCREENED_RANKS:
        return f"{gates.local_rank_n} local ranks, not {SCREENED_RANKS}"
    return "" if len(sets) > 1 else "no more than one group"


def _layouts(
    sets: Sequence[GroupSet], gates: Gates, topology: Topology
) -> tuple[dict[int, int], dict[int, int]]:
    neighbours: dict[int, int] = {}
    spread: dict[int, int] = {}
    for each in sets:
        for members in each.members:
            chips = _chips_of_eight(members, gates, topology)
            if is_two_neighbours(chips, topology):
                neighbours |= dict.fromkeys(members, each.id)
            elif is_one_rank_per_chip(chips):
                spread |= dict.fromkeys(members, each.id)
    return neighbours, spread


def _chips_of_eight(members: SubGroup, gates: Gates, topology: Topology) -> frozenset[int]:
    """The chips of a group of exactly 8 ranks on one node (D56, D58); else none."""
    if len(members) != GROUP_SIZE or len({each // gates.local_rank_n for each in members}) > 1:
        return frozenset()
    return frozenset(topology.mla_device_idx(member) for member in members)


def is_two_neighbours(chips: frozenset[int], topology: Topology) -> bool:
    """Exactly two chips with a link between them (`cayman_is_group_vnc2_8r_2_neighbor_dev`)."""
    return len(chips) == 2 and topology.directly_connected(*sorted(chips))


def is_one_rank_per_chip(chips: frozenset[int]) -> bool:
    """Eight chips that fill two rows or two columns of the 4x4 grid (D57).

    `cayman_is_group_vnc2_8r_one_rank_per_dev`.
    """
    rows = {chip // GRID_SIDE for chip in chips}
    columns = {chip % GRID_SIDE for chip in chips}
    return len(chips) == GROUP_SIZE and 2 in {len(rows), len(columns)}


def _routing(
    sets: Sequence[GroupSet], gates: Gates, topology: Topology, settings: Settings
) -> tuple[bool, str]:
    # check_replica_groups_for_deadlock_with_rmv_dst_routing
    if not gates.switch_v1:
        return False, "not screened: not the switch-v1 family"
    if settings.disable_rmv_dst_routing is not None:
        state = "disabled" if settings.disable_rmv_dst_routing else "kept"
        return settings.disable_rmv_dst_routing, f"{state} by {DISABLE_ROUTING[0]}"
    if settings.host_driven:
        return False, "not screened: host-driven collectives"
    if settings.streams > 1:
        return False, f"not screened: {settings.streams} streams"
    for each in sets:
        for members in each.members:
            if apart := _apart(members, gates, topology):
                return True, (
                    f"disabled: group {each.id} ({fold(members)}) holds devices {apart[0]} and"
                    f" {apart[1]}, whose chips share no port"
                )
    return False, "no group holds two chips without a port between them"


def _apart(members: SubGroup, gates: Gates, topology: Topology) -> tuple[int, int] | None:
    """Two members whose chips are not directly connected; on two nodes they never are."""
    chips: dict[tuple[int, int], int] = {}
    for member in members:
        place = member // gates.local_rank_n, topology.mla_device_idx(member)
        for (node, chip), other in chips.items():
            same = node == place[0]
            if not same or not topology.directly_connected(chip, place[1]):
                return other, member
        chips.setdefault(place, member)
    return None
