"""Clusters: names, places, hops, pods, and listings of servers held against the catalogue."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import rankmuster as rm
from rankmuster.arch.instances import ALIASES, INSTANCES
from rankmuster.clusters import Cluster, Place, cluster, parse
from rankmuster.errors import InvalidCluster, InvalidProgram, UnreadableInput
from rankmuster.formats import neuron_ls

SIZES = {  # facts §3.1: ranks of one server at its default logical-core size
    "trn1.2xlarge": 2,
    "trn1.32xlarge": 32,
    "trn1n.32xlarge": 32,
    "inf2.xlarge": 2,
    "inf2.8xlarge": 2,
    "inf2.24xlarge": 12,
    "inf2.48xlarge": 24,
    "trn2.3xlarge": 4,
    "trn2.48xlarge": 64,
    "trn2u.48xlarge": 64,
    "trn2-ultraserver": 256,
    "trn3.3xlarge": 4,
    "trn3.48xlarge": 64,
    "trn3e.24xlarge": 16,
    "trn3p.48xlarge": 64,
    "trn3-gen1-ultraserver": 256,
    "trn3-gen2-ultraserver": 576,
}


def test_catalogue() -> None:
    """Every known server has the devices that its documentation gives it."""
    assert {name: parse(name).size for name in INSTANCES} == SIZES
    assert set(ALIASES.values()) <= set(INSTANCES)


@pytest.mark.parametrize(
    ("text", "size", "name"),
    [
        ("trn2.48xlarge:4", 256, "trn2.48xlarge:4"),
        ("trn2:2:lnc=1", 256, "trn2.48xlarge:2:lnc=1"),
        ("trn2-ultraserver:2", 512, "trn2-ultraserver:2"),
        ("trn2u:8:pod=x2h", 512, "trn2u.48xlarge:8:pod=x2h"),
        ("generic:8x4", 32, "generic:8x4"),
    ],
)
def test_names_read_back(text: str, size: int, name: str) -> None:
    """A cluster says its own name so that it can be read again."""
    read = parse(text)
    assert (read.size, read.name) == (size, name)
    assert parse(read.name) == read


def test_python_call() -> None:
    """`rm.cluster` takes the same words as arguments."""
    assert cluster("trn2.48xlarge", nodes=4, lnc=1) == parse("trn2:4:lnc=1")
    assert cluster("generic:2x8") == parse("generic:2x8")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("trn2.48xlarg", "did you mean 'trn2.48xlarge'"),
        ("trn2:0", "1 to 65536 nodes, not 0"),
        ("trn2:-1", "must be a number"),
        ("trn2:9999999", "1 to 65536 nodes"),
        ("trn2:1:lnc=3", "use lnc=1, 2"),
        ("trn2:1:lmc=1", "did you mean 'lnc'"),
        ("trn1:2:lnc=2", "no logical-core size 2"),
        ("inf2:2", "no network for collectives"),
        ("trn2:4:pod=x2h", "no UltraServer modes"),
        ("trn2u:4:pod=x5", "no pod mode 'x5'"),
        ("trn2:4:runtime=new", "is not like 2.34.10"),
        ("generic:8", "write generic:8x8"),
        ("generic:8x8:lnc=1", "write generic:8x8"),
        ("generic:8x0", "1 to 1024 devices"),
        ("listing.json", "nothing here may open them"),
        ("", "no cluster is called ''"),
        ("TRN2P.48xlarg", "did you mean 'trn2p.48xlarge'"),
        ("trn2:4:lnc=0", "no logical-core size 0"),
        ("trn2:2:3", "says the number of nodes twice"),
        ("trn2:2:lnc=1:lnc=2", "says lnc twice"),
    ],
)
def test_wrong_names(text: str, what: str) -> None:
    """What cannot be is refused with what is allowed."""
    with pytest.raises(InvalidCluster, match=what):
        parse(text)


def test_sizes_are_said_once() -> None:
    """A name that holds sizes takes no more of them."""
    with pytest.raises(InvalidCluster, match="say them once"):
        cluster("trn2:4", nodes=2)


@pytest.mark.parametrize("wrong", [{"nodes": 1.5}, {"nodes": "4"}, {"lnc": "2"}])
def test_numbers_are_numbers(wrong: dict[str, Any]) -> None:
    """Sizes that are no whole numbers are a wrong call."""
    with pytest.raises(TypeError):
        cluster("trn2", **wrong)


def test_locate() -> None:
    """A device lies on one node, chip and worker, with the sync processors of that worker."""
    assert parse("trn2u:4").locate(70) == Place(
        device=70,
        node=1,
        chip=1,
        worker=2,
        cores=(0, 1),
        sync_processors=(8, 9, 10, 11),
        pod=1,
        pod_node=1,
        rack=None,
    )


def test_physical_cores() -> None:
    """Trn2's cores come in the order of the chip's place, reversed by pairs on nodes 1 and 3."""
    alone, pod = parse("trn2:1"), parse("trn2u:4")
    chips = (0, 1, 4, 5)
    assert [alone.locate(4 * chip).cores for chip in chips] == [(4, 5), (2, 3), (0, 1), (6, 7)]
    assert [alone.locate(worker).cores for worker in range(4)] == [(4, 5), (6, 7), (2, 3), (0, 1)]
    flipped = [pod.locate(64 + worker).cores for worker in range(4)]
    assert flipped == [(0, 1), (2, 3), (6, 7), (4, 5)]
    assert parse("trn3:1").locate(1).cores == (2, 3)


@pytest.mark.parametrize("device", [-1, 256, 0xFFFFFFFF])
def test_locate_refuses(device: int) -> None:
    """A device that is not part of the cluster is named, with the range that is."""
    with pytest.raises(InvalidCluster, match=rf"device {device} .* 0 to 255"):
        parse("trn2:4").locate(device)
    with pytest.raises(InvalidCluster, match=rf"device {device} .* 0 to 255"):
        parse("trn2:4").hops(0, device)


def test_places_are_one_to_one() -> None:
    """No two devices of a cluster share a node, chip and worker."""
    here = parse("trn3-gen2-ultraserver")
    places = {(p.node, p.chip, p.worker) for p in map(here.locate, range(here.size))}
    assert len(places) == here.size
    assert [here.locate(device).rack for device in (0, 287, 288)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "a", "b", "hops"),
    [
        ("trn2:2", 0, 3, 0),  # one chip
        ("trn2:2", 0, 4, 1),  # chips 0 and 1
        ("trn2:2", 0, 40, 4),  # chips 0 and 10: across the torus
        ("trn2:2", 0, 64, None),  # only the network
        ("trn2u:4", 0, 64, 1),  # same chip of the next node of the pod
        ("trn2u:4", 0, 128, 2),  # same chip across the pod's ring
        ("trn2u:4", 0, 196, 2),  # next chip of the node before
        ("trn2u:8", 0, 256, None),  # another pod
        ("trn2u:4:pod=x1", 0, 64, None),
        ("trn2u:4:pod=x2h", 0, 128, 1),
        ("trn2u:3", 0, 64, None),  # three servers elect no pod
        ("trn3:2", 0, 64, 1),  # through the switch
        ("inf2", 0, 22, 1),  # chips 0 and 11 of the ring
        ("generic:2x8", 0, 7, 1),
    ],
)
def test_hops(name: str, a: int, b: int, hops: int | None) -> None:
    """Hops count links on the shortest way, and there are none over the network."""
    here = parse(name)
    assert (here.hops(a, b), here.hops(b, a)) == (hops, hops)


def test_room_for_communicators() -> None:
    """Twelve sets, sixteen from runtime 2.34.10, no limit where it is not Neuron."""
    names = ("trn2:1", "trn2:1:runtime=2.34.9", "trn2:1:runtime=2.34.10", "generic:1x8")
    assert [parse(name).max_communicators for name in names] == [12, 12, 16, None]


def listing(**changes: Any) -> bytes:
    """A trn2 server as neuron-ls shows it, with *changes* to chip 5."""
    neighbours = INSTANCES["trn2.48xlarge"].fabric.neighbours
    devices: list[dict[str, Any]] = [
        {
            "neuron_device": chip,
            "bdf": "cc:00.0",
            "connected_to": sorted(neighbours[chip]),
            "nc_count": 4,
            "logical_neuroncore_config": 2,
            "memory_size": 103079215104,
            "neuroncore_ids": list(range(4 * chip, 4 * chip + 4)),
            "neuron_processes": [],
        }
        for chip in range(16)
    ]
    devices[5] |= changes
    return json.dumps([{k: v for k, v in each.items() if v != "gone"} for each in devices]).encode()


def of(*files: bytes, text: str = "a.json") -> Cluster:
    """The cluster of these files."""
    named = dict(zip("ab", files, strict=False))
    return parse(text, lambda path: named[path.removesuffix(".json")])


def test_listing_is_a_cluster() -> None:
    """A server's own listing says which instance it is and with what logical-core size."""
    here = of(listing())
    assert here.name == "trn2.48xlarge:1"
    assert (here.core_size, here.claims) == (2, ())
    assert of(listing(), listing(), text="a.json,b.json").nodes == 2
    assert of(listing(), text="a.json:4").size == 256


def test_a_listing_from_python(tmp_path: Path) -> None:
    """`rm.cluster` and `rm.check` open listings by their names, as the command line does."""
    path = tmp_path / "node0.json"
    path.write_bytes(listing())
    assert rm.cluster(str(path)).name == "trn2.48xlarge:1"
    assert rm.cluster(f"trn2u:4:ls={path}").claims == ()
    with pytest.raises(UnreadableInput, match="no such file"):
        rm.cluster(str(tmp_path / "gone.json"))


def test_listing_against_a_name() -> None:
    """A listing is held against the name that it is given for."""
    here = of(listing(connected_to=[4, 9, 1]), text="trn2u:4:ls=a.json")
    assert here.claims == (
        "a.json: chip 5 is connected to [1, 4, 9] where trn2u.48xlarge has [1, 4, 6, 9]",
    )
    assert of(listing(), text="trn1:1:ls=a.json:lnc=1").claims == (
        "a.json: 8 cores a chip where trn1.32xlarge has 2",
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"nc_count": "gone"}, "missing required field `nc_count`"),
        ({"connected_to": "gone"}, "missing required field `connected_to`"),
        ({"memory_size": "much"}, "Expected `int`, got `str`"),
        ({"neuron_device": 6}, "chips 0 to N-1"),
        ({"nc_count": 8}, "different"),
    ],
)
def test_bad_listing(changes: dict[str, Any], what: str) -> None:
    """A listing that lacks something names the file, the entry and the field."""
    with pytest.raises(InvalidProgram, match=what) as caught:
        of(listing(**changes))
    assert "a.json" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 5000, b"1" * (5 << 20)])
def test_no_listing(data: bytes) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidProgram):
        neuron_ls.read(data, where="x.json")


def test_unknown_server() -> None:
    """A server of no known shape asks for its name."""
    one = json.loads(listing())[:3]
    for each in one:
        each["connected_to"] = None
    with pytest.raises(InvalidCluster, match="3 chips of 8 cores and 96 GiB"):
        of(json.dumps(one).encode())


def test_listing_without_core_size() -> None:
    """Where no server fits because the listing leaves out the core size, the field is named."""
    whole = json.loads(listing())
    bare = [{k: v for k, v in each.items() if k != "logical_neuroncore_config"} for each in whole]
    with pytest.raises(
        InvalidCluster, match="logical_neuroncore_config 1; 1 where that is missing"
    ):
        of(json.dumps(bare).encode())


def test_clusters_are_values() -> None:
    """Equal clusters are equal, and another logical-core size is another cluster."""
    here = parse("trn2:4")
    assert here == parse("trn2.48xlarge:4")
    assert dataclasses.replace(here, core_size=1).size == 512
