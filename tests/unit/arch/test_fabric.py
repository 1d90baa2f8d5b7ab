"""Wiring: neighbour tables are symmetric, tori are hypercubes, and hops are popcounts."""

from __future__ import annotations

import pytest

from rankmuster.arch import fabric
from rankmuster.arch.chip import Generation, chip_for
from rankmuster.arch.fabric import Fabric

TORI = [fabric.TRN1_TORUS, fabric.TRN2_TORUS]
WIRED = [*TORI, fabric.INF2_RING, fabric.INF2_CHAIN]
# facts §3.3: the public driver's masks, the first eight routing ids of each.
TRN1_MASKS = (
    *([8, 4, 1, 2], [1, 4, 8, 2], [8, 2, 1, 4], [1, 2, 8, 4]),
    *([8, 2, 1, 4], [1, 2, 8, 4], [8, 4, 1, 2], [1, 4, 8, 2]),
)


def name(each: Fabric) -> str:
    return f"{each.name} {each.rids[1:3]}"


@pytest.mark.parametrize("each", WIRED, ids=name)
def test_links_have_two_ends(each: Fabric) -> None:
    """Whoever is a neighbour has one."""
    for chip, peers in enumerate(each.neighbours):
        assert [peer for peer in peers if chip not in each.neighbours[peer]] == []


@pytest.mark.parametrize("each", TORI, ids=name)
def test_a_link_flips_one_bit(each: Fabric) -> None:
    """On the tori, neighbours differ in exactly one bit of the routing id."""
    for chip, peers in enumerate(each.neighbours):
        assert {(each.rids[chip] ^ each.rids[peer]).bit_count() for peer in peers} == {1}
        assert len(peers) == 4


@pytest.mark.parametrize("each", TORI, ids=name)
def test_hops_are_popcounts(each: Fabric) -> None:
    """The distance of any two chips is the number of bits in which their routing ids differ."""
    for a in range(16):
        for b in range(16):
            assert each.hops(a, b) == (each.rids[a] ^ each.rids[b]).bit_count()


@pytest.mark.parametrize("each", WIRED, ids=name)
def test_peer_rid_gives_the_port_map(each: Fabric) -> None:
    """What get_peer_rid answers, port by port, is the neighbour table."""
    chips = range(each.chips)
    found = [[each.peer_rid(each.rids[chip], port) for port in range(4)] for chip in chips]
    assert (
        tuple(tuple(None if rid is None else each.chip_of_rid[rid] for rid in row) for row in found)
        == each.ports
    )


def test_trn2_masks() -> None:
    """Trn2's ports flip 4, 8, 1, 2 where bits 0 and 3 of the routing id agree, else 8, 4, 2, 1."""
    chip = chip_for(Generation.CAYMAN, fabric.TRN2_TORUS)
    for rid in range(16):
        masks = [4, 8, 1, 2] if (rid & 1) == (rid >> 3) else [8, 4, 2, 1]
        assert [chip.peer_rid(rid, port) for port in range(4)] == [rid ^ mask for mask in masks]


def test_trn1_masks() -> None:
    """Trn1's ports flip the bits of the public driver's table."""
    for rid, masks in enumerate(TRN1_MASKS):
        peers = [fabric.TRN1_TORUS.peer_rid(rid, port) for port in range(4)]
        assert peers == [rid ^ mask for mask in masks]


def test_both_tori_are_one_graph() -> None:
    """The two generations order their ports differently and are wired alike."""
    assert fabric.TRN1_TORUS.neighbours == fabric.TRN2_TORUS.neighbours


def test_chain_ends() -> None:
    """Beyond the ends of a chain there is no peer, and the far end is five links away."""
    chain = fabric.INF2_CHAIN
    assert [chain.peer_rid(0, 0), chain.peer_rid(5, 1), chain.peer_rid(0, 2)] == [None] * 3
    assert (chain.hops(0, 5), fabric.INF2_RING.hops(0, 11)) == (5, 1)


@pytest.mark.parametrize(("rid", "port"), [(16, 0), (-1, 0), (0, 4), (0, -1)])
def test_no_such_port(rid: int, port: int) -> None:
    """A routing id or port that does not exist has no peer."""
    assert fabric.TRN2_TORUS.peer_rid(rid, port) is None
    assert fabric.TRN2_TORUS.port_to(rid, 0) is None or rid == 0


def test_a_switch_has_no_ports() -> None:
    """Behind a switch every chip is one step from every other, and no port leads there (D49)."""
    switch = fabric.TRN3_SWITCH
    assert {switch.hops(0, chip) for chip in range(1, 16)} == {1}
    assert switch.neighbours[0] == frozenset()
