"""Where groups land: footprints, rings, crossings, and worlds that do not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from rankmuster.checking import check
from rankmuster.clusters import cluster, parse
from rankmuster.copies import ProgramCopy
from rankmuster.deadlock import Settings
from rankmuster.finding import Finding, Severity
from rankmuster.formats.neuron_ls import NeuronDevice, NodeListing
from rankmuster.placement import survey
from rankmuster.placement.footprint import measure, ring
from rankmuster.placement.judge import WEIGHED
from rankmuster.placement.traffic import bits, traffic
from rankmuster.program import Loop, Program
from rankmuster.resolve import Resolved
from rankmuster.screen import Survey
from rankmuster.testing.build import op, program
from rankmuster.world import World


def mesh(shape: Sequence[int], axis: int) -> list[list[int]]:
    """The groups along one axis of a mesh whose last axis is the innermost."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for device, place in enumerate(product(*map(range, shape))):
        groups.setdefault((*place[:axis], *place[axis + 1 :]), []).append(device)
    return list(groups.values())


def land(name: str, world: int, held: Program, **rest: Any) -> Survey:
    return survey([Resolved(held)], parse(name), world, **rest)


def codes(found: Survey) -> list[str]:
    return [each.code for each in found.findings]


def only(found: Survey) -> Finding:
    (each,) = found.findings
    return each


def test_footprint_of_a_ring() -> None:
    """Two whole chips: six steps on a chip, two over the link between them."""
    found = land("trn2:1", 64, program(op("all_reduce", 64), groups=[mesh((8, 8), 1)]))
    (shape,) = found.placement["groups"][0]["shapes"]
    assert (shape["groups"], shape["first"], shape["size"], shape["chips"]) == (8, "0-7", 8, 2)
    assert (shape["nodes"], shape["pods"], shape["racks"], shape["even"]) == (1, None, None, True)
    assert shape["steps"] == {
        "same_chip": 6,
        "linked": 2,
        "unlinked": 0,
        "network": 0,
        "hops": 2,
        "max_hops": 1,
    }
    assert shape["algorithm"]["algorithm"] == "mesh"


def test_footprint_over_nodes() -> None:
    """One device of each of four nodes: every step goes over the network."""
    lies = measure((0, 64, 128, 192), ring((0, 64, 128, 192)), parse("trn2:4"))
    assert (lies.nodes, lies.per_node, lies.network, lies.same_places) == (4, 1, 4, True)
    in_pod = measure((0, 64, 128, 192), ring((0, 64, 128, 192)), parse("trn2u:4"))
    assert (in_pod.pods, in_pod.network, in_pod.linked) == (1, 0, 4)


def test_ring_of_two_is_one_step() -> None:
    """Two members have one link between them, one member none."""
    assert (ring((3, 5)), ring((3,)), ring(())) == (((3, 5),), (), ())


def test_devices_are_placed() -> None:
    """The JSON says node, chip, worker and sync processors of the first 64 devices."""
    placement = land("trn2:2", 128, program(groups=[mesh((2, 64), 1)])).placement
    assert len(placement["devices"]) == 64
    assert placement["devices"]["6"] == {
        "node": 0,
        "chip": 1,
        "worker": 2,
        "cores": [4, 5],
        "sync_processors": [8, 9, 10, 11],
        "pod": None,
        "pod_node": None,
        "rack": None,
    }
    json.dumps(placement)


@pytest.mark.parametrize("shape", [(4, 64), (4, 8, 8), (4, 2, 8, 4), (256,)])
def test_a_mesh_in_order_is_fine(shape: tuple[int, ...]) -> None:
    """A mesh whose axes fill chips, then nodes, then the cluster crosses nothing needlessly."""
    axes = range(len(shape))
    ops = [op("all_reduce", 1024, group=axis) for axis in axes]
    held = program(*ops, groups=[mesh(shape, axis) for axis in axes])
    assert set(codes(land("trn2:4", 256, held))) <= {"RM501"}


def test_heavy_axis_outside() -> None:
    """The axis that moves most lies across nodes: RM401 says which lighter set lies tighter."""
    ops = [op("all_reduce", 1 << 20, group=0), op("all_reduce", 16, group=1)]
    held = program(*ops, groups=[mesh((8, 32), 0), mesh((8, 32), 1)])
    found = only(land("trn2:4", 256, held))
    assert (found.code, found.group, found.severity) == ("RM401", 0, Severity.WARNING)
    assert "8 members lie on 4 nodes where 1 would do" in found.message
    assert found.message.endswith("than what lies tighter: set 1")
    assert found.ranks == tuple(range(256))


def test_light_axis_outside() -> None:
    """The same mesh with the traffic the other way round is in order."""
    ops = [op("all_reduce", 16, group=0), op("all_reduce", 1 << 20, group=1)]
    held = program(*ops, groups=[mesh((8, 32), 0), mesh((8, 32), 1)])
    assert codes(land("trn2:4", 256, held)) == []


def test_room_that_nobody_uses() -> None:
    """A group over nodes whose members would fit one node beside their neighbours is RM401."""
    held = program(groups=[mesh((4, 8, 8), 2), mesh((4, 8, 8), 0)])
    assert "4 members lie on 4 nodes where 1 would do" in only(land("trn2:4", 256, held)).message


def test_very_many_sets_take_no_time() -> None:
    """Sets are weighed against each other only up to a bound: a short text can name thousands."""
    held = program(groups=[[[at, at + 4]] for at in range(2000)])
    found = land("trn2:64", 4096, held)
    assert 0 < codes(found).count("RM401") <= WEIGHED
    assert len(found.placement["groups"]) == 2000


def test_the_world_justifies_nothing() -> None:
    """A set of everybody takes no room from anybody."""
    groups = [mesh((4, 8, 8), 2), mesh((4, 8, 8), 0), mesh((256,), 0)]
    held = program(op("all_reduce", 1 << 20, group=2), groups=groups)
    assert codes(land("trn2:4", 256, held)) == ["RM401"]


def test_crossing_a_pod() -> None:
    """Between pods the dearest boundary is named."""
    held = program(groups=[mesh((2, 256), 0)])
    assert "2 pods where 1 would do" in only(land("trn2u:8", 512, held)).message


def test_uneven_nodes() -> None:
    """A group with 3 members on one node and 1 on another is RM402."""
    held = program(groups=[[[0, 1, 2, 64]]])
    found = [each for each in land("trn2:2", 128, held).findings if each.code == "RM402"]
    assert "nodes give 0: 3, 1: 1 members" in found[0].message
    assert found[0].ranks == (0, 1, 2, 64)


def test_other_places_on_each_node() -> None:
    """Nodes that give devices of different numbers are RM402 on Neuron, and fine elsewhere."""
    held = program(groups=[[[*range(32), *range(96, 128)]]])
    assert "RM402" in codes(land("trn2:2", 128, held))
    assert "RM402" not in codes(land("generic:2x64", 128, held))


def test_a_chain_is_no_ring() -> None:
    """A chain of pairs is RM204 on a Neuron cluster only; swaps and self pairs are rings."""
    chain = program(op("permute"), pairs=[[(0, 1), (1, 2)]])
    found = only(land("trn2:1", 64, chain))
    assert (found.code, found.group, found.ranks) == ("RM204", 0, (0, 1, 2))
    assert codes(land("generic:1x64", 64, chain)) == []
    assert codes(land("trn2:1", 64, program(pairs=[[(0, 1), (1, 0), (2, 2)]]))) == []


def test_ring_without_a_link() -> None:
    """Neighbours of a permute on chips without a link are RM205, and the first pair is named."""
    held = program(op("permute"), pairs=[[(0, 20), (20, 0)]])  # chips 0 and 5
    found = next(f for f in land("trn2:1", 64, held).findings if f.code == "RM205")
    assert "devices 0 and 20 sit on chips 2 links apart (and 1 more pairs" in found.message
    behind_switch = land("trn3:1", 64, held)
    assert "RM205" not in codes(behind_switch)


def test_too_small() -> None:
    """A world larger than the cluster is RM002, and nothing is placed."""
    found = land("trn2:1", 256, program(groups=[mesh((4, 64), 1)]))
    assert only(found).code == "RM002"
    assert "the world has 256 devices and trn2.48xlarge:1 holds 64" in only(found).message
    assert found.placement["groups"] == []


@pytest.mark.parametrize(
    ("name", "world", "nearest"),
    [("trn1", 24, "16 or 32"), ("trn1", 4, "2 or 8"), ("trn1n:2", 48, "32 or 64")],
)
def test_a_part_of_a_server_that_the_runtime_refuses(name: str, world: int, nearest: str) -> None:
    """24 cores of a trn1 cannot be had: that is said, with what can be, before anybody compiles."""
    found = only(land(name, world, program(groups=[[[0, 1]]])))
    assert (found.code, found.severity) == ("RM404", Severity.WARNING)
    assert found.message.endswith("up to 2, 8, 16 or a multiple of 32 are possible")
    assert found.fix.startswith(f"take {nearest} devices, and see what says {world}")


@pytest.mark.parametrize("world", [1, 2, 8, 16, 32, 64])
def test_parts_of_a_server_that_the_runtime_takes(world: int) -> None:
    """One chip, 4, 8, and whole servers are what people use; elsewhere no limit is known."""
    assert codes(land("trn1:2", world, program())) == []
    assert codes(land("trn2", 24, program())) == []


def test_program_of_another_core_size() -> None:
    """A program that says which logical-core size it was compiled for is held to it."""
    held = program(groups=[[[0, 1]]], core_size=1)
    found = [each for each in land("trn2", 2, held).findings if each.code == "RM403"]
    assert [each.message for each in found] == [
        "the program was compiled for logical-core size 1, and trn2.48xlarge:1 has 2"
    ]
    assert "RM403" not in codes(land("trn2:1:lnc=1", 2, held))


def test_program_for_other_chips() -> None:
    """A program that says which chips it was compiled for is held to them; "*" fits any."""
    held = program(groups=[[[0, 1]]], target="cayman")
    found = [each for each in land("trn1", 2, held).findings if each.code == "RM404"]
    assert [each.message for each in found] == [
        "the program was compiled for cayman chips, and those of trn1.32xlarge:1 are sunda"
    ]
    for name, target in (("trn2", "cayman"), ("trn1", "*"), ("trn1", None), ("generic:1x2", "x")):
        assert "RM404" not in codes(land(name, 2, program(groups=[[[0, 1]]], target=target)))


def test_other_core_size() -> None:
    """A world that would fill the cluster at the other logical-core size is RM403."""
    found = only(land("trn2:1", 128, program(groups=[mesh((2, 64), 1)])))
    assert (found.code, found.severity) == ("RM403", Severity.ERROR)
    assert found.fix.startswith("say lnc=1")


def test_servers_contradict() -> None:
    """What servers say against the catalogue or the option is RM404 and RM403."""
    chips = [
        NeuronDevice(neuron_device=at, connected_to=(), nc_count=4, memory_size=96 << 30)
        for at in range(16)
    ]
    listing = NodeListing(devices=tuple(chips), where="node7.json")
    here = cluster("trn2", lnc=2, listings=[listing])
    found = survey([], here, 64)
    assert [(each.code, each.severity) for each in found.findings] == [
        ("RM403", Severity.ERROR),
        ("RM404", Severity.WARNING),
    ]
    assert "node7.json: 4 cores a chip where trn2.48xlarge has 8" in found.findings[1].message


def test_too_many_sets() -> None:
    """Thirteen sets do not fit the runtime before 2.34.10 (RM106)."""
    held = program(groups=[mesh((64,), 0)] * 13)
    names = ("trn2:1", "trn2:1:runtime=2.34.10", "generic:1x64")
    assert [codes(land(name, 64, held)) for name in names] == [["RM106"], [], []]


def test_the_cluster_at_hand_has_the_word_on_room() -> None:
    """A program for Neuron is counted once, by the runtime that the cluster runs."""
    held = program(groups=[mesh((64,), 0)] * 13, target="cayman")
    copy = ProgramCopy(program=held, devices=tuple(range(64)))
    for name, expected in (
        ("trn2:1", 1),
        ("trn2:1:runtime=2.34.10", 0),
        ("generic:1x64", 1),
        (None, 1),
    ):
        report = check([copy], World(size=64, source="file"), cluster=name and parse(name))
        assert [each.code for each in report.findings].count("RM106") == expected


def test_ids_that_do_not_exist_are_left_alone() -> None:
    """Ids outside the world are verify's to report; here they place nothing."""
    held = program(groups=[[[0, 1 << 40], [-1, 2], [3, 4], []]])
    found = land("trn2:1", 64, held)
    assert [shape["first"] for shape in found.placement["groups"][0]["shapes"]] == ["3-4"]


def test_pairs_that_do_not_exist_are_left_alone() -> None:
    """Findings name only devices that exist, of pairs too."""
    held = program(op("permute"), pairs=[[(0, 0xFFFFFFFF), (1, 2)]])
    found = only(land("trn2:1", 64, held))
    assert (found.code, found.ranks) == ("RM204", (1, 2))


@pytest.mark.parametrize(
    ("dtype", "width"),
    [("bf16", 16), ("f8e4m3fn", 8), ("pred", 8), ("c64", 64), ("s4", 4), ("unknown", 32)],
)
def test_widths(dtype: str, width: int) -> None:
    """The width of a type is the first number of its name."""
    assert bits(dtype) == width


def test_traffic() -> None:
    """Loops multiply, gathers count all ranks, and unknown counts run once."""
    gather = op("all_gather", 100, "bf16", group=0, dimension=0)
    held = program(
        Loop(trips=10, body=(gather, Loop(trips=None, body=(op("all_reduce", 50),)))),
        groups=[mesh((8,), 0)],
    )
    moved = traffic(Resolved(held))[0]
    assert (moved.total, moved.largest, moved.kind) == (10 * 1600 + 10 * 200, 1600, "all_gather")


def test_check_holds_it_all() -> None:
    """`check` on a cluster fills placement and screen, and its findings join the others."""
    two = [list(range(8 * at, 8 * at + 8)) for at in range(8)]
    rows = [[4 * c + w for c in range(8 * h, 8 * h + 8)] for h in range(2) for w in range(4)]
    held = program(op("all_reduce", group=0), op("all_reduce", group=1), groups=[two, rows])
    copies = [ProgramCopy(held, tuple(range(64)))]
    report = check(copies, World(size=64, source="option"), cluster=parse("trn2:1"))
    answer = report.to_dict()
    assert answer["world"]["cluster"] == "trn2.48xlarge:1"
    assert answer["screen"]["use_2dev_proxy"] is True
    assert [each["code"] for each in answer["findings"]] == ["RM501"]
    assert len(answer["placement"]["groups"]) == 2
    assert report.verdict == "agree"
    assert report.exit_code() == 0


def test_programs_of_many_processes() -> None:
    """Every program that names other sets is judged, and equal ones once."""
    one = Resolved(program(groups=[[[0, 1]]]))
    other = Resolved(program(groups=[[[0, 1]]]))
    far = Resolved(program(groups=[[[0, 20]]]))
    found = survey([one, other, far], parse("trn2:1"), 64)
    assert codes(found) == ["RM401"]
    assert found.placement["groups"][0]["shapes"][0]["first"] == "0-1"


def test_settings_reach_the_screens() -> None:
    """A forced proxy is RM501 whatever the program."""
    settings = Settings(force_2dev_proxy=True)
    found = land("generic:1x8", 8, program(groups=[[[0, 1]]]), settings=settings)
    assert codes(found) == ["RM501"]
