"""The deadlock screens: gates first and in their order, then topology, and the reason always."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from rankmuster.clusters import parse
from rankmuster.deadlock import (
    Gates,
    NodeTopology,
    Settings,
    gates_of,
    is_one_rank_per_chip,
    screen,
)
from rankmuster.errors import InvalidCluster
from rankmuster.group import SubGroup
from rankmuster.resolve import GroupSet

NEIGHBOURS = tuple(tuple(range(8 * at, 8 * at + 8)) for at in range(8))  # two chips of 4 each
SPREAD = tuple(  # one rank on each chip of two rows
    tuple(4 * chip + worker for chip in range(8 * half, 8 * half + 8))
    for half in range(2)
    for worker in range(4)
)
OPEN = Gates(trn2_trn3=True, switch_v1=False, core_size=2, local_rank_n=64)
SWITCH = Gates(trn2_trn3=True, switch_v1=True, core_size=2, local_rank_n=64)


def sets(*members: tuple[SubGroup, ...]) -> list[GroupSet]:
    return [GroupSet(id=at, kind="replica_groups", members=m) for at, m in enumerate(members)]


@dataclass
class Counting:
    """A real node that counts what it is asked."""

    node: NodeTopology = field(default_factory=lambda: NodeTopology(parse("trn2:1")))
    calls: int = 0

    def mla_device_idx(self, participant: int) -> int:
        self.calls += 1
        return self.node.mla_device_idx(participant)

    def directly_connected(self, a: int, b: int) -> bool:
        self.calls += 1
        return self.node.directly_connected(a, b)


def test_both_layouts_force_the_proxy() -> None:
    """Eight ranks on two neighbours and eight on one chip each, in one program, force it."""
    found = screen(sets(NEIGHBOURS, SPREAD), OPEN, Counting())
    assert found.use_2dev_proxy
    assert found.because[0] == (
        "two-device proxy: forced: group 0 puts 8 ranks on two neighbour chips and group 1 one"
        " rank on each of 8 chips, both with device 0"
    )
    assert [each.code for each in found.findings()] == ["RM501"]


@pytest.mark.parametrize("one", [NEIGHBOURS, SPREAD])
def test_one_layout_is_harmless(one: tuple[SubGroup, ...]) -> None:
    """Either layout twice forces nothing (D56)."""
    assert not screen(sets(one, one), OPEN, Counting()).use_2dev_proxy


CLOSED = [
    (replace(OPEN, trn2_trn3=False, core_size=1, local_rank_n=9), 1, "Trn2 or Trn3"),
    (replace(OPEN, core_size=1, local_rank_n=9), 1, "logical-core size 1"),
    (replace(OPEN, local_rank_n=32), 1, "32 local ranks"),
    (OPEN, 1, "no more than one group"),
]


@pytest.mark.parametrize(("gates", "count", "reason"), CLOSED)
def test_closed_gates_ask_nothing(gates: Gates, count: int, reason: str) -> None:
    """While a gate is closed topology is not looked at, and the first closed one is the reason."""
    topology = Counting()
    found = screen(sets(NEIGHBOURS, SPREAD)[:count], gates, topology)
    assert (topology.calls, found.use_2dev_proxy) == (0, False)
    assert reason in found.because[0]


def test_open_gates_ask() -> None:
    """With all gates open topology is looked at."""
    topology = Counting()
    screen(sets(NEIGHBOURS, SPREAD), OPEN, topology)
    assert topology.calls > 0


def test_the_debug_override_wins() -> None:
    """The debug switch forces the proxy before any gate, and asks nothing."""
    topology = Counting()
    settings = Settings(force_2dev_proxy=True)
    found = screen([], replace(OPEN, trn2_trn3=False), topology, settings)
    assert (found.use_2dev_proxy, topology.calls) == (True, 0)
    assert "NEURON_RT_DBG_FORCE_2DEV_PROXY" in found.because[0]


def test_exactly_eight_on_one_node() -> None:
    """Nine ranks, or eight of two nodes, are no such group (D56, D58)."""
    nine = (tuple(range(9)),)
    two_nodes = ((*range(4), *range(64, 68)),)
    for other in (nine, two_nodes):
        assert not screen(sets(other, SPREAD), OPEN, Counting()).use_2dev_proxy


def test_two_chips_apart() -> None:
    """Two chips without a link between them are no neighbours."""
    apart = ((*range(4), *range(20, 24)),)  # chips 0 and 5
    assert not screen(sets(apart, SPREAD), OPEN, Counting()).use_2dev_proxy


@pytest.mark.parametrize(
    ("chips", "is_layout"),
    [
        (range(8), True),  # two rows
        ([0, 1, 2, 3, 12, 13, 14, 15], True),  # the first and the last row
        ([0, 4, 8, 12, 1, 5, 9, 13], True),  # two columns
        ([0, 2, 5, 7, 8, 10, 13, 15], False),  # a checkerboard
        ([0, 1, 4, 5, 2, 3, 6, 15], False),
        (range(7), False),
        ([], False),
    ],
)
def test_two_by_four(chips: list[int], *, is_layout: bool) -> None:
    """One rank a chip means two full rows or two full columns (D57)."""
    assert is_one_rank_per_chip(frozenset(chips)) is is_layout


def test_routing_behind_a_switch() -> None:
    """Behind a switch, a group of two chips disables destination routing (D61)."""
    topology = NodeTopology(parse("trn3:1"))
    found = screen(sets(((0, 1), (2, 4))), SWITCH, topology)
    assert found.disable_rmv_dst_routing
    assert "holds devices 2 and 4" in found.because[1]
    assert [each.code for each in found.findings()] == ["RM502"]
    assert not screen(sets(((0, 1), (2, 3))), SWITCH, topology).disable_rmv_dst_routing


@pytest.mark.parametrize(
    ("gates", "settings", "disabled", "reason"),
    [
        (OPEN, Settings(disable_rmv_dst_routing=True), False, "switch-v1"),
        (SWITCH, Settings(disable_rmv_dst_routing=True, host_driven=True), True, "disabled by"),
        (SWITCH, Settings(disable_rmv_dst_routing=False, streams=2), False, "kept by"),
        (SWITCH, Settings(host_driven=True, streams=2), False, "host-driven"),
        (SWITCH, Settings(streams=2), False, "2 streams"),
    ],
)
def test_routing_gates(gates: Gates, settings: Settings, reason: str, *, disabled: bool) -> None:
    """Family, override, host-driven, streams: in this order, and topology is never asked."""
    topology = Counting()
    found = screen(sets(((0, 4),)), replace(gates, trn2_trn3=False), topology, settings)
    assert (found.disable_rmv_dst_routing, topology.calls) == (disabled, 0)
    assert reason in found.because[1]


def test_settings_of_an_environment() -> None:
    """The debug switches are read from the variables of the runtime, alias included."""
    environ = {
        "NEURON_RT_DBG_FORCE_2DEV_PROXY": "1",
        "NEURON_RT_DBG_DISABLE_RMV_DST_ROUTE": "0",
    }
    assert Settings.of(environ, streams=2) == Settings(
        force_2dev_proxy=True, disable_rmv_dst_routing=False, streams=2
    )
    assert Settings.of({}) == Settings()
    with pytest.raises(InvalidCluster, match="neither 0 nor 1"):
        Settings.of({"NEURON_RT_DBG_FORCE_2DEV_PROXY": "maybe"})


def test_gates_of_a_cluster() -> None:
    """A world that fills no node has fewer local ranks, and closes the gate."""
    assert gates_of(parse("trn2:1"), 32).local_rank_n == 32
    assert gates_of(parse("trn2:4"), 256) == OPEN
    assert gates_of(parse("trn3:1"), 64) == SWITCH
