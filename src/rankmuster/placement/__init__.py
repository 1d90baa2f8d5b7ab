"""Where the groups of a program land on a cluster, before anybody pays for the machines.

One pure call, `survey`: footprints, algorithm families, deadlock screens and findings of programs
that are already resolved. Knows no file and no terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rankmuster.algorithm import Question, choose
from rankmuster.clusters import Cluster
from rankmuster.deadlock import NodeTopology, Settings, gates_of, screen
from rankmuster.finding import Finding
from rankmuster.placement import judge
from rankmuster.placement.footprint import Shape, Surveyor
from rankmuster.placement.judge import Placed
from rankmuster.placement.traffic import Traffic, traffic
from rankmuster.ranks import fold
from rankmuster.resolve import Resolved
from rankmuster.screen import Screen, Survey

SHOWN_DEVICES = 64
SHOWN_SHAPES = 16
LISTED = 1 << 16  # a finding about more devices than this names them in its message only


def survey(
    programs: Sequence[Resolved],
    cluster: Cluster,
    world_size: int,
    *,
    settings: Settings | None = None,
) -> Survey:
    """Place the group sets of *programs* on *cluster* and screen them.

    The first program is the one whose groups are shown; those that name other sets are judged
    too. A world larger than the cluster is a finding, and nothing is placed then.
    """
    findings = [*judge.check_claims(cluster), *judge.check_world(cluster, world_size)]
    findings += judge.check_part(cluster, world_size)
    findings += judge.check_targets(cluster, programs)
    shown: dict[str, Any] = {"cluster": cluster.to_dict(), "devices": {}, "groups": []}
    if world_size > cluster.size:
        return Survey(placement=shown, findings=tuple(findings))
    shown["devices"] = _devices(cluster, world_size)
    surveyor = Surveyor(cluster)
    screened = Screen()
    for number, resolved in enumerate(_distinct(programs)):
        placed = [Placed(each, surveyor.shapes(each, world_size)) for each in resolved.sets]
        moved = traffic(resolved)
        findings += _judge(cluster, placed, moved, resolved)
        screened = _both(screened, _screen(resolved, cluster, world_size, settings))
        if number == 0:
            shown["groups"] = [
                _group(each, moved[each.set.id], cluster, resolved) for each in placed
            ]
    findings += screened.findings()
    return Survey(
        judged=frozenset() if cluster.max_communicators is None else frozenset({"RM106"}),
        placement=shown,
        screen=screened,
        findings=_once(findings),
    )


def _distinct(programs: Sequence[Resolved]) -> list[Resolved]:
    tables: dict[tuple[object, ...], Resolved] = {}
    for resolved in programs:
        table = tuple((each.kind, each.members, each.pairs) for each in resolved.sets)
        tables.setdefault(table, resolved)
    return list(tables.values())


def _judge(
    cluster: Cluster, placed: Sequence[Placed], moved: dict[int, Traffic], resolved: Resolved
) -> Iterator[Finding]:
    yield from judge.check_room(cluster, resolved.sets)
    for each in placed:
        yield from judge.check_pairs(cluster, each)
        yield from judge.check_even(cluster, each)
    yield from judge.check_crossings(cluster, placed, moved)


def _screen(
    resolved: Resolved, cluster: Cluster, world_size: int, settings: Settings | None
) -> Screen:
    chosen = replace(settings or Settings(), streams=resolved.program.num_streams)
    gates = gates_of(cluster, world_size)
    return screen(resolved.sets, gates, NodeTopology(cluster), chosen)


def _both(one: Screen, other: Screen) -> Screen:
    """The latches of two programs of one world: each is set where either sets it."""
    if not one.because:
        return other
    proxy = one if one.use_2dev_proxy else other
    routing = one if one.disable_rmv_dst_routing else other
    return Screen(
        use_2dev_proxy=proxy.use_2dev_proxy,
        disable_rmv_dst_routing=routing.disable_rmv_dst_routing,
        because=(proxy.because[0], routing.because[1]),
    )


def _once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Each finding once, whichever programs it was found in, and without endless device lists."""
    told = {(each.code, each.message): each for each in reversed(findings)}
    return tuple(
        replace(each, ranks=()) if len(each.ranks) > LISTED else each
        for each in reversed(told.values())
    )


def _devices(cluster: Cluster, world_size: int) -> dict[str, Any]:
    places = (cluster.locate(device) for device in range(min(world_size, SHOWN_DEVICES)))
    return {str(place.device): _place(asdict(place)) for place in places}


def _place(fields: dict[str, Any]) -> dict[str, Any]:
    del fields["device"]
    return {key: list(each) if isinstance(each, tuple) else each for key, each in fields.items()}


def _group(placed: Placed, moved: Traffic, cluster: Cluster, resolved: Resolved) -> dict[str, Any]:
    return {
        "id": placed.set.id,
        "kind": placed.set.kind,
        "op": moved.kind and str(moved.kind),
        "bytes": moved.largest,
        "moved": moved.total,
        "shapes": [
            {
                "groups": len(shape.groups),
                "first": fold(shape.first),
                **shape.footprint.to_dict(cluster),
                "algorithm": _algorithm(placed, shape, moved, cluster, resolved),
            }
            for shape in placed.shapes[:SHOWN_SHAPES]
        ],
    }


def _algorithm(
    placed: Placed, shape: Shape, moved: Traffic, cluster: Cluster, resolved: Resolved
) -> dict[str, Any] | None:
    """The family for the set's largest op; None where the runtime is not Neuron's."""
    if not cluster.is_neuron or shape.footprint.size < 2:
        return None
    footprint, instance = shape.footprint, cluster.instance
    question = Question(
        size=footprint.size,
        nodes=footprint.nodes,
        ranks_per_node=footprint.per_node,
        core_size=cluster.core_size,
        kind=moved.kind,
        nbytes=moved.largest,
        streams=resolved.program.num_streams,
        on_pairs=placed.set.pairs is not None,
        in_pod=cluster.has_pods,
        whole_chips=footprint.whole_chips,
        full_mesh_only=instance.full_mesh_only,
        grouped_mesh=instance.grouped_mesh,
    )
    return choose(question).to_dict()
