"""Random legal worlds, one program per device, and changes of exactly one thing in one of them.

A world is drawn as one global schedule; every device gets its own part of it. What is legal here:
collectives of any sub-groups, some of which sit an op out, loops, branches on data, messages in
first-in-first-out order with receives posted earlier or later than their sends, and uneven
all-to-alls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from rankmuster.program import POINT_TO_POINT, Branch, Loop, Node, Op, OpKind, Program
from rankmuster.testing import build

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier")
ON_UNEVEN = ("all_reduce", "broadcast", "barrier")
SIZES = (1, 8, 64, 512, 4096)
DTYPES = ("f32", "bf16", "s32")


@dataclass
class World:
    """What has been drawn: `programs[d]` runs on device d."""

    size: int
    rng: random.Random
    groups: list[list[list[int]]] = field(default_factory=list)
    pairs: list[list[tuple[int, int]]] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)


def partition(rng: random.Random, size: int) -> list[list[int]]:
    """A random partition of the devices, in random order."""
    devices = rng.sample(range(size), size)
    marks = sorted(rng.sample(range(1, size), rng.randrange(size))) if size > 1 else []
    edges = [0, *marks, size]
    return [devices[a:b] for a, b in pairwise(edges)]


def draw(seed: int, *, messages: bool = True) -> World:
    """The legal world of this seed."""
    rng = random.Random(seed)
    size = rng.randrange(2, 9)
    world = World(size, rng)
    world.groups = [
        [list(range(size))],
        *(partition(rng, size) for _ in range(rng.randrange(1, 4))),
    ]
    targets = rng.sample(range(size), size)
    world.pairs = [[(s, t) for s, t in enumerate(targets) if s == 0 or rng.random() < 0.8]]
    everybody = dict.fromkeys(range(size), build.barrier())
    schedule = [everybody, *body(world, depth=0, messages=messages)]
    for device in range(size):
        ops = rearranged(rng, part(schedule, device))
        world.programs.append(
            build.program(*ops, groups=world.groups, pairs=world.pairs, world_size=size)
        )
    return world


def body(world: World, depth: int, *, messages: bool) -> list[Any]:
    """Some steps of the schedule: (op by device) dicts, or ("loop", trips, body) and branches."""
    rng, steps = world.rng, []
    for _ in range(rng.randrange(1, 7 if depth == 0 else 4)):
        what = rng.random()
        if what < 0.12 and depth < 2:
            steps.append(("loop", rng.randrange(1, 5), body(world, depth + 1, messages=messages)))
        elif what < 0.17 and depth < 2:
            bodies = [body(world, depth + 1, messages=messages) for _ in range(2)]
            steps.append(("branch", bodies))
        elif what < 0.4 and messages:
            steps.append(message(world))
        elif what < 0.45:
            steps.append(uneven(world))
        elif what < 0.55:
            steps.append(permute(world))
        else:
            steps.append(collective(world))
    return steps


def collective(world: World) -> dict[int, Op]:
    """One op of a set, which some of its sub-groups may sit out or post with other contents."""
    rng, posted = world.rng, {}
    number = rng.randrange(len(world.groups))
    shared = one_op(world, number)
    for members in world.groups[number]:
        if rng.random() < 0.85:
            op = shared if rng.random() < 0.8 else one_op(world, number)
            posted.update(dict.fromkeys(members, op))
    return posted


def is_even(members: Iterable[Sequence[int]]) -> bool:
    """Whether all sub-groups of a set are of one size."""
    return len(set(map(len, members))) == 1


def one_op(world: World, group: int) -> Op:
    """A random collective, on uneven groups one that may be."""
    rng = world.rng
    kind = rng.choice(KINDS if is_even(world.groups[group]) else ON_UNEVEN)
    more: dict[str, Any] = {}
    if kind == "broadcast":
        more["root"] = 0
    if kind in {"all_gather", "reduce_scatter", "all_to_all"}:
        more["dimension"] = rng.randrange(2)
    if kind == "all_reduce":
        more["reduce"] = rng.choice(["add", "max"])
    operands = 1 if kind != "all_reduce" else rng.choice([1, 1, 2])
    return build.op(
        kind,
        [rng.choice(SIZES) for _ in range(operands)],
        rng.choice(DTYPES),
        group=group,
        name=f"{kind}.{rng.randrange(1000)}",
        **more,
    )


def permute(world: World) -> dict[int, Op]:
    """A permute that everybody in its components posts."""
    op = build.permute(world.rng.choice(SIZES))
    return {device: op for pair in world.pairs[0] for device in pair}


def uneven(world: World) -> dict[int, Op]:
    """An all-to-all of a random split matrix."""
    even = [number for number, each in enumerate(world.groups) if is_even(each)]
    rng, number = world.rng, world.rng.choice(even)
    members = rng.choice(world.groups[number])
    sent = [[rng.randrange(9) for _ in members] for _ in members]
    return {
        device: build.op(
            "all_to_all_v",
            sum(sent[place]),
            group=number,
            input_splits=tuple(sent[place]),
            output_splits=tuple(row[place] for row in sent),
        )
        for place, device in enumerate(members)
    }


def message(world: World) -> dict[int, Op]:
    """A send and its receive."""
    rng, number = world.rng, world.rng.randrange(len(world.groups))
    members = rng.choice(world.groups[number])
    if len(members) < 2:
        return {}
    source, target = rng.sample(members, 2)
    more = {"group": number, "label": rng.choice([None, None, "a"])}
    size = rng.choice(SIZES)
    return {source: build.send(target, size, **more), target: build.recv(source, size, **more)}


def part(schedule: list[Any], device: int) -> list[Node]:
    """The schedule as one device sees it; loops and branches without its ops may vanish."""
    nodes: list[Node] = []
    for step in schedule:
        if isinstance(step, dict):
            nodes += [step[device]] if device in step else []
        elif step[0] == "loop":
            inside = part(step[2], device)
            nodes += [build.loop(step[1], *inside)] if inside or device % 2 else []
        else:
            bodies = [part(each, device) for each in step[1]]
            nodes += [build.branch(*bodies)] if any(bodies) or device % 2 else []
    return nodes


def rearranged(rng: random.Random, nodes: list[Node]) -> list[Node]:
    """Receives moved to other places of the body they are in, in their order on each edge."""
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(nodes)) if nodes else 0
        if at + 1 < len(nodes) and may_swap(nodes[at], nodes[at + 1]):
            nodes[at], nodes[at + 1] = nodes[at + 1], nodes[at]
    return nodes


def may_swap(one: Node, other: Node) -> bool:
    """Whether two neighbours are ops of which just one is a receive."""
    if not isinstance(one, Op) or not isinstance(other, Op):
        return False
    return (one.kind is OpKind.RECV) != (other.kind is OpKind.RECV)


@dataclass
class Change:
    """What was changed: on which device, in which of its ops, and the field a finding names."""

    device: int
    index: int
    field: str


def changed(seed: int) -> tuple[World, Change] | None:
    """A legal world with one thing changed in one program, in a way that others must notice."""
    world = draw(seed)
    rng = world.rng
    device = rng.randrange(world.size)
    program = world.programs[device]
    places = [place for place in walked(program.ops) if is_shared(world, device, place[1])]
    if not places:
        return None
    index, op, trips = rng.choice(places)
    ways = [way for way in CHANGES if way is not change_trips or trips]
    rng.shuffle(ways)
    for way in ways:
        if (found := way(world, program, index, op)) is not None:
            world.programs[device], name = found
            return world, Change(device, index, name)
    return None


def walked(nodes: tuple[Node, ...]) -> Iterator[tuple[int, Op, int | None]]:
    """Each op with its place and the count of the loop right around it."""
    index = 0
    stack: list[tuple[Node, int | None]] = [(node, None) for node in reversed(nodes)]
    while stack:
        node, trips = stack.pop()
        match node:
            case Op():
                yield index, node, trips
                index += node.places
            case Loop():
                stack += [(each, node.trips) for each in reversed(node.body)]
            case Branch():
                stack += [(each, None) for body in reversed(node.bodies) for each in reversed(body)]


def is_shared(world: World, device: int, op: Op) -> bool:
    """Whether somebody else takes part in the op."""
    if op.group is None:
        return any(device in pair and pair[0] != pair[1] for pair in world.pairs[0])
    return any(device in members and len(members) > 1 for members in world.groups[op.group])


def edited(program: Program, index: int, edit: Callable[[Op], list[Node]]) -> Program:
    """The program with the op at this place replaced by what *edit* makes of it."""
    count = 0

    def go(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        nonlocal count
        made: list[Node] = []
        for node in nodes:
            match node:
                case Op():
                    made += edit(node) if count == index else [node]
                    count += node.places
                case Loop():
                    made.append(replace(node, body=go(node.body)))
                case Branch():
                    made.append(replace(node, bodies=tuple(map(go, node.bodies))))
        return tuple(made)

    return replace(program, ops=go(program.ops))


Changed = tuple[Program, str] | None


def change_elements(world: World, program: Program, index: int, op: Op) -> Changed:
    if not op.elements or op.input_splits:
        return None
    sizes = (*op.elements[:-1], op.elements[-1] + 3)
    return edited(program, index, lambda op: [replace(op, elements=sizes)]), "elements"


def change_dtype(world: World, program: Program, index: int, op: Op) -> Changed:
    if not op.dtype:
        return None
    types = (*op.dtype[:-1], "f8e5m2")
    return edited(program, index, lambda op: [replace(op, dtype=types)]), "dtype"


def change_kind(world: World, program: Program, index: int, op: Op) -> Changed:
    if op.kind in {*POINT_TO_POINT, OpKind.BARRIER} or op.pairs is not None or op.input_splits:
        return None
    assert op.group is not None
    kind = OpKind.GATHER if is_even(world.groups[op.group]) else OpKind.OTHER
    return edited(program, index, lambda op: [replace(op, kind=kind)]), "kind"


def change_reduce(world: World, program: Program, index: int, op: Op) -> Changed:
    if op.reduce is None:
        return None
    return edited(program, index, lambda op: [replace(op, reduce="xor")]), "reduce"


def change_root(world: World, program: Program, index: int, op: Op) -> Changed:
    if op.root is None:
        return None
    return edited(program, index, lambda op: [replace(op, root=1)]), "root"


def change_dimension(world: World, program: Program, index: int, op: Op) -> Changed:
    if op.dimension is None:
        return None
    return edited(program, index, lambda op: [replace(op, dimension=7)]), "dimension"


def change_splits(world: World, program: Program, index: int, op: Op) -> Changed:
    if not op.input_splits:
        return None
    more = (*op.input_splits[:-1], op.input_splits[-1] + 1)
    return edited(program, index, lambda op: [replace(op, input_splits=more)]), "splits"


def change_trips(world: World, program: Program, index: int, op: Op) -> Changed:
    """One more turn of the loop right around the op."""

    def go(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        made: list[Node] = []
        for node in nodes:
            match node:
                case Loop() if op in node.body:
                    made.append(replace(node, trips=(node.trips or 0) + 1))
                case Loop():
                    made.append(replace(node, body=go(node.body)))
                case Branch():
                    made.append(replace(node, bodies=tuple(map(go, node.bodies))))
                case _:
                    made.append(node)
        return tuple(made)

    return replace(program, ops=go(program.ops)), "trips"


def change_peer(world: World, program: Program, index: int, op: Op) -> Changed:
    if op.peer is None or op.group is None:
        return None
    device = next(n for n, each in enumerate(world.programs) if each is program)
    members = next(each for each in world.groups[op.group] if device in each)
    others = [each for each in members if each not in {device, op.peer}]
    if not others:
        return None
    peer = world.rng.choice(others)
    return edited(program, index, lambda op: [replace(op, peer=peer)]), "peer"


def drop(world: World, program: Program, index: int, op: Op) -> Changed:
    return edited(program, index, lambda _: []), "op"


def double(world: World, program: Program, index: int, op: Op) -> Changed:
    return edited(program, index, lambda op: [op, op]), "op"


def change_group(world: World, program: Program, index: int, op: Op) -> Changed:
    """The op on a set of its own, where the members stand in another order."""
    if op.group is None or op.kind in POINT_TO_POINT:
        return None
    turned = [members[::-1] for members in world.groups[op.group]]
    fresh = build.program(groups=[*world.groups, turned]).replica_groups
    moved = edited(program, index, lambda op: [replace(op, group=len(fresh) - 1)])
    return replace(moved, replica_groups=fresh), "members"


def swap(world: World, program: Program, index: int, op: Op) -> Changed:
    """The op after its neighbour, if two devices or more share the communicators of both."""

    def go(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        made = list(nodes)
        for at, node in enumerate(nodes):
            if node is op and at + 1 < len(nodes) and isinstance(nodes[at + 1], Op):
                made[at : at + 2] = nodes[at + 1], op
                met.append(nodes[at + 1])
                return tuple(made)
            if isinstance(node, Loop):
                made[at] = replace(node, body=go(node.body))
            elif isinstance(node, Branch):
                made[at] = replace(node, bodies=tuple(map(go, node.bodies)))
        return tuple(made)

    met: list[Op] = []
    nodes = go(program.ops)
    if len(met) != 1 or {op.kind, met[0].kind} & POINT_TO_POINT:
        return None
    device = next(n for n, each in enumerate(world.programs) if each is program)
    mine, its = (joined(world, device, each) for each in (op, met[0]))
    if len(mine & its) < 2 or (mine == its and told(op) == told(met[0])):
        return None
    return replace(program, ops=nodes), "order"


def joined(world: World, device: int, op: Op) -> set[int]:
    """The devices that take part in an op of this device."""
    if op.group is not None:
        return set(next(each for each in world.groups[op.group] if device in each))
    found = {device}
    for _ in world.pairs[0]:
        found |= {end for pair in world.pairs[0] if found & set(pair) for end in pair}
    return found


def told(op: Op) -> tuple[Any, ...]:
    """What two ops on one communicator are told apart by."""
    sizes = () if op.input_splits is not None else op.elements
    return (op.kind, sizes, op.dtype, op.reduce, op.root, op.dimension, op.group)


CHANGES: list[Callable[[World, Program, int, Op], Changed]] = [
    *(change_elements, change_dtype, change_kind, change_reduce, change_root, change_dimension),
    *(change_splits, change_trips, change_peer, change_group, swap, drop, double),
]
