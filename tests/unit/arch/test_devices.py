"""Device maps: built once, queried with preconditions, and the same in their 772-byte image."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.arch import mapping
from rankmuster.arch.chip import Chip, Generation, chip_for
from rankmuster.arch.devices import IMAGE, DeviceMaps, server_id
from rankmuster.arch.fabric import INF2_CHAIN, TRN1_TORUS, TRN2_TORUS, TRN3_SWITCH, Fabric
from rankmuster.arch.nec import NecCallbacks
from rankmuster.errors import InvalidCluster, InvalidProgram, InvariantError
from rankmuster.status import Status

TRN2_RIDS = dict(enumerate(TRN2_TORUS.rids))


def built(fabric: Fabric = TRN2_TORUS, chips: list[int] | None = None) -> Chip:
    """A node whose maps know *chips*, or all of them."""
    generation = Generation.MARIANA if fabric.switch_v1 else Generation.CAYMAN
    chip = chip_for(generation, fabric, core_size=2)
    seen = list(range(fabric.chips)) if chips is None else chips
    mapping.build_port_and_rid_map(chip, 0, seen, seen, dict(enumerate(fabric.rids)))
    return chip


@pytest.mark.parametrize("fabric", [TRN1_TORUS, TRN2_TORUS, INF2_CHAIN], ids=lambda f: f.name)
def test_port_map_is_the_neighbour_table(fabric: Fabric) -> None:
    """Built from get_peer_rid, the port map equals the neighbour table."""
    maps = built(fabric).resource_pool(0).maps
    assert maps.port_map[: fabric.chips] == fabric.ports
    assert maps.mla_to_rid[: fabric.chips] == fabric.rids


def test_image_layout() -> None:
    """The three tables stand at 4, 516 and 644, with fills -2, -4 and -3."""
    image = DeviceMaps().pack()
    assert len(image) == IMAGE.size == 772
    assert struct.unpack_from("<i", image, 4) == (-2,)
    assert struct.unpack_from("<i", image, 516) == (-4,)
    assert struct.unpack_from("<i", image, 644) == (-3,)
    assert image[0] == 0


@given(st.sets(st.integers(0, 15), min_size=1))
def test_image_round_trip(chips: set[int]) -> None:
    """Whatever part of a node is visible, maps read back from their image as they were."""
    maps = built(chips=sorted(chips)).resource_pool(0).maps
    assert DeviceMaps.unpack(maps.pack()) == maps


def test_queries() -> None:
    """Chips, routing ids and ports answer as the tables say."""
    chip = built()
    assert mapping.is_mla_available(chip, 0, 15)
    assert not mapping.is_mla_available(chip, 0, 16)
    assert mapping.mla_idx_to_rid(chip, 0, 1) == 8
    assert mapping.rid_to_mla_idx(chip, 0, 8) == 1
    assert mapping.rid_to_mla_idx(chip, 0, 20) == -3
    assert [mapping.get_peer_mla_idx(chip, 0, 0, port) for port in range(4)] == [12, 1, 3, 4]
    assert mapping.peer_directly_connected(chip, 0, 0, 12)
    assert mapping.peer_directly_connected(chip, 0, 5, 5)
    assert not mapping.peer_directly_connected(chip, 0, 0, 5)


def test_no_peer_and_hidden_peer() -> None:
    """A port without a cable gives -22; a cable to a chip that is not visible gives -3 (D48)."""
    assert mapping.get_peer_mla_idx(built(INF2_CHAIN), 0, 0, 0) == -22
    half = built(chips=[0, 1])
    assert [mapping.get_peer_mla_idx(half, 0, 0, port) for port in range(4)] == [-3, 1, -3, -3]
    image = half.resource_pool(0).maps.pack()
    assert struct.unpack_from("<4i", image, 4) == (-3, 1, -3, -3)
    assert struct.unpack_from("<4i", image, 4 + 16 * 5) == (-2, -2, -2, -2)


def test_queries_refuse_bad_questions() -> None:
    """A chip that is not there, and a port or routing id that cannot be, are refused."""
    chip = built()
    with pytest.raises(InvariantError, match="for chip 16"):
        mapping.mla_idx_to_rid(chip, 0, 16)
    with pytest.raises(InvariantError, match="port 4"):
        mapping.get_peer_mla_idx(chip, 0, 0, 4)
    with pytest.raises(InvariantError, match="routing id 32"):
        mapping.rid_to_mla_idx(chip, 0, 32)
    with pytest.raises(InvariantError, match="NEC_NET_MLA_DEV"):
        mapping.is_mla_available(chip, 0xFFFFFFFF, 0)


QUERIES: dict[str, Callable[..., object]] = {
    "is_mla_available": mapping.is_mla_available,
    "mla_idx_to_rid": mapping.mla_idx_to_rid,
    "get_peer_mla_idx": lambda chip, dev, mla: mapping.get_peer_mla_idx(chip, dev, mla, 0),
    "connected": lambda chip, dev, mla: mapping.peer_directly_connected(chip, dev, mla, mla),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_preconditions_of_every_query(query: Callable[..., object]) -> None:
    """Whatever is asked, a real core, a chip below 32 and built maps are asserted first (S4 §3)."""
    chip = built()
    for nec_dev, mla, what in (
        (0xFFFFFFFF, 0, "NEC_NET_MLA_DEV"),
        (0, 32, "mla_idx < MAX_MLA_DEVICES"),
        (0, -1, "mla_idx < MAX_MLA_DEVICES"),
        (1, 0, "device_id_maps_build"),
    ):
        with pytest.raises(InvariantError, match=what):
            query(chip, nec_dev, mla)


def test_switch_family_masks_the_server() -> None:
    """Behind a switch the low nibble is the chip and the rest the server, which must be mine."""
    chip = chip_for(Generation.MARIANA, TRN3_SWITCH, core_size=2)
    rids = {host: 0x20 + host for host in range(16)}  # server 2
    mapping.build_port_and_rid_map(chip, 0, range(16), range(16), rids)
    assert mapping.mla_idx_to_rid(chip, 0, 7) == 7
    assert mapping.rid_to_mla_idx(chip, 0, 0x27) == 7
    with pytest.raises(InvariantError, match="lies in server 1, this device in 2"):
        mapping.rid_to_mla_idx(chip, 0, 0x17)
    assert mapping.get_peer_mla_idx(chip, 0, 0, 0) == -22


def test_server_id() -> None:
    """The server stands above four bits."""
    assert [server_id(rid) for rid in (0, 0xF, 0x10, 0x3F)] == [0, 0, 1, 3]


@pytest.mark.parametrize(
    ("chips", "hosts", "rids", "what"),
    [
        ([0, 1], [0], {0: 0}, "2 chip indexes stand beside 1"),
        ([0, 0], [0, 1], {0: 0, 1: 1}, "listed twice"),
        ([0], [9], {0: 0}, r"host devices \[9\]"),
        ([32], [0], {0: 0}, "chip 32 is not one"),
        ([-1], [0], {0: 0}, "chip -1 is not one"),
        ([0, 1], [0, 1], {0: 3, 1: 3}, "two chips claim one routing id"),
        ([0], [0], {0: 16}, "Mismatching routing ID 16"),
        ([0], [0], {0: -1}, "Mismatching routing ID -1"),
    ],
)
def test_build_refuses(chips: list[int], hosts: list[int], rids: dict[int, int], what: str) -> None:
    """Lists that do not fit each other or the node are refused, and the maps stay unbuilt."""
    chip = chip_for(Generation.CAYMAN, TRN2_TORUS)
    with pytest.raises(InvalidCluster, match=what):
        mapping.build_port_and_rid_map(chip, 0, chips, hosts, rids)
    assert not chip.resource_pool(0).maps.built


def test_build_refuses_an_id_below_the_switch() -> None:
    """Masking makes no chip of a negative routing id."""
    chip = chip_for(Generation.MARIANA, TRN3_SWITCH)
    with pytest.raises(InvalidCluster, match="Mismatching routing ID -1"):
        mapping.build_port_and_rid_map(chip, 0, [0], [0], {0: -1})


def test_build_refuses_a_core_that_is_not_there() -> None:
    """Cores that the node has not get no maps."""
    chip = chip_for(Generation.CAYMAN, TRN2_TORUS, core_size=2)
    with pytest.raises(InvariantError, match="vcore != NULL"):
        mapping.build_port_and_rid_map(chip, 64, [0], [0], TRN2_RIDS)


def test_maps_of_no_chips() -> None:
    """A device that sees no chip has maps of nobody."""
    assert not mapping.is_mla_available(built(chips=[]), 0, 0)


@pytest.mark.parametrize("nec_dev", [-1, 256, 0xFFFFFFFE])
def test_resource_pool_is_bounded(nec_dev: int) -> None:
    """A core beyond the 256 possible has no pool (D55)."""
    with pytest.raises(InvalidCluster, match=str(nec_dev)):
        built().resource_pool(nec_dev)


def test_two_nodes_in_one_process() -> None:
    """Maps belong to a chip's own pools: another chip knows nothing of them."""
    assert built().resource_pool(0).maps.built
    assert not chip_for(Generation.CAYMAN, TRN2_TORUS).resource_pool(0).maps.built


def test_callbacks() -> None:
    """The five thunks answer as the queries behind them."""
    nec = NecCallbacks(chip_for(Generation.CAYMAN, TRN2_TORUS), TRN2_RIDS)
    assert nec.nec_build_port_and_rid_map(0, [*range(16), 99], range(17), 16) is Status.SUCCESS
    assert nec.nec_is_mla_available(0, 3)
    assert nec.nec_mla_idx_to_rid(0, 3) == 1
    assert nec.nec_rid_to_mla_idx(0, 1) == 3
    assert nec.nec_get_peer_mla_idx(0, 3, 1) == 15


def test_callback_reports_a_status() -> None:
    """A driver without a map makes the build callback answer NRT_INVALID."""
    nec = NecCallbacks(chip_for(Generation.CAYMAN, TRN2_TORUS), None)
    assert nec.nec_build_port_and_rid_map(0, [0], [0], 1) is Status.INVALID


@pytest.mark.parametrize(
    ("change", "offset"),
    [((0, b"\2"), 0), ((2, b"\1"), 0), ((4, b"\x20"), 4), ((516, b"\xff"), 516)],
)
def test_image_with_nonsense(change: tuple[int, bytes], offset: int) -> None:
    """A word that is no id and no sentinel is refused, with its byte."""
    image = bytearray(built().resource_pool(0).maps.pack())
    image[change[0] : change[0] + 1] = change[1]
    if offset == 516:
        image[517] = 1
    with pytest.raises(InvalidProgram) as caught:
        DeviceMaps.unpack(bytes(image))
    assert caught.value.offset == offset


@given(st.binary(min_size=772, max_size=772) | st.binary(max_size=80))
def test_any_bytes(image: bytes) -> None:
    """Any bytes are maps or an InvalidProgram."""
    with contextlib.suppress(InvalidProgram):
        assert DeviceMaps.unpack(image).pack() == image
