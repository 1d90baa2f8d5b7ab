"""What an explanation gives as an example does bring about its finding."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rankmuster import ProgramCopy, check
from rankmuster.program import Node, Program
from rankmuster.testing.build import (
    all_gather,
    all_reduce,
    branch,
    loop,
    op,
    permute,
    program,
    recv,
    send,
)

ALL = [list(range(8))]
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
HLO = """HloModule m, num_partitions={}

ENTRY e {{
  p = f32[4] parameter(0)
  ROOT g = f32[{}] all-gather(p), {}, dimensions={{0}}{}
}}
"""


def on(
    *groups: Sequence[Sequence[int]], ops: Sequence[Node] = (all_reduce(),), **rest: int
) -> Program:
    source = "file" if "world_size" in rest else "inferred"
    return program(*ops, groups=groups, world_source=source, **rest)


def moving(*pairs: Sequence[int]) -> Program:
    return program(permute(), pairs=[pairs], world_size=8, world_source="file")


def gathering(groups: str, partitions: int = 8, size: int = 8, rest: str = "channel_id=1") -> str:
    groups = f"replica_groups={groups}, use_global_device_ids=true"
    return HLO.format(partitions, size, groups, f", {rest}" if rest else "")


def seven_and(odd: Node, usual: Node | None = None) -> list[ProgramCopy]:
    """Seven devices post one op, device 5 another."""
    usual = all_reduce(128) if usual is None else usual
    return [
        ProgramCopy(on(ALL, ops=[usual], world_size=8), (0, 1, 2, 3, 4, 6, 7)),
        ProgramCopy(on(ALL, ops=[odd], world_size=8), (5,)),
    ]


def two(first: Sequence[Node], second: Sequence[Node]) -> list[ProgramCopy]:
    """Two devices on groups 0,1 twice over, each with its own ops."""
    sets = ([[0, 1]], [[1, 0]])
    return [
        ProgramCopy(on(*sets, ops=ops, world_size=2), (device,))
        for device, ops in enumerate((first, second))
    ]


def splitting(sent: Sequence[int], expected: Sequence[int]) -> Node:
    return op("all_to_all_v", 8, input_splits=tuple(sent), output_splits=tuple(expected))


EXAMPLES: dict[str, list[Program] | list[ProgramCopy] | list[str]] = {
    "RM001": [
        ProgramCopy(on(ALL, world_size=8), tuple(range(7))),
        ProgramCopy(on([list(range(16))], world_size=16), (7,)),
    ],
    "RM101": [on([[0, 1], [2, 8]], world_size=8)],
    "RM102": [on([[0, 1], [1, 2]], world_size=8)],
    "RM103": [on([[0, 1], [2, 3]], world_size=8)],
    "RM104": [gathering("{{0,1,2},{3,4}}", 5)],
    "RM105": [gathering("{{0,1},{2,3}}", 4, 16)],
    "RM106": [on(*[HALVES] * 13, world_size=8, target="cayman")],
    "RM107": [gathering("[2,4]<=[6]")],
    "RM108": [gathering("{{0,1,2,3,4,5,6,7}}", rest="")],
    "RM109": [gathering("[4,2]<=[8]", rest="channel_id=1, mode=cross_replica")],
    "RM201": [moving([0, 1], [0, 2])],
    "RM202": [moving([0, 2], [1, 2])],
    "RM203": [moving([6, 7], [7, 8])],
    "RM206": two([send(1), send(1)], [recv(0)]),
    "RM207": [moving()],
    "RM208": two([send(1, 8), send(1, 9)], [recv(0, 9), recv(0, 8)]),
    "RM301": seven_and(all_gather(128)),
    "RM302": seven_and(all_reduce(192)),
    "RM303": seven_and(all_reduce(128, dtype="bf16")),
    "RM304": seven_and(all_reduce(128, reduce="max")),
    "RM305": two([splitting((1, 3), (1, 3))], [splitting((3, 1), (4, 1))]),
    "RM306": two([all_reduce()] * 25, [all_reduce()] * 24),
    "RM307": two([all_reduce(), all_gather(group=1)], [all_gather(group=1), all_reduce()]),
    "RM308": [
        ProgramCopy(on([members], world_size=2), (device,))
        for device, members in enumerate(([0, 1], [1, 0]))
    ],
    "RM310": [
        ProgramCopy(on([half], ops=[all_reduce(size)], world_size=8), tuple(half))
        for half, size in zip(HALVES, (1, 2), strict=True)
    ],
    "RM311": seven_and(loop(11, all_reduce()), loop(12, all_reduce())),
    "RM312": [program(world_size=8)],
    "RM313": [on(ALL, ops=[branch([all_reduce()], [], on="rank")], world_size=8)],
    "RM314": [on(ALL, ops=[loop(None, all_reduce())], world_size=8)],
    "RM704": [on(HALVES), on(HALVES)],
    "RM706": two([all_reduce(reduce=None)], [all_reduce()]),
}
ON_CLUSTERS = {
    "RM002": (on([list(range(16))], world_size=16), "generic:1x8"),
    "RM204": (moving([0, 1], [1, 2], [2, 3]), "trn2.48xlarge:1"),
    "RM205": (program(permute(), pairs=[[(0, 40), (40, 0)]], world_size=64), "trn2.48xlarge:1"),
    "RM401": (on([[0, 4], [1, 5], [2, 6], [3, 7]], world_size=8), "generic:2x4"),
    "RM402": (on([[0, 1, 2, 4], [3, 5, 6, 7]], world_size=8), "generic:2x4"),
    "RM403": (on([list(range(128))], world_size=128), "trn2.48xlarge:1"),
    "RM501": (
        on([list(range(8))], [list(range(0, 32, 4))], world_size=64),
        "trn2.48xlarge:1",
    ),
}


@pytest.mark.parametrize("code", EXAMPLES)
def test_example(code: str) -> None:
    """A world like the example has the finding."""
    assert code in {found.code for found in check(EXAMPLES[code]).findings}


@pytest.mark.parametrize("code", ON_CLUSTERS)
def test_example_on_a_cluster(code: str) -> None:
    """A program like the example has the finding on a cluster."""
    example, cluster = ON_CLUSTERS[code]
    assert code in {found.code for found in check([example], cluster=cluster).findings}
