"""A world to simulate: its size, its seed and all that befalls it, and the line that says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankmuster.program import Loop, Node, Op, Program, walk
from rankmuster.ranks import fold
from rankmuster.testing.build import all_gather, all_reduce, program
from rankmuster.testing.faults import Double, Fault, Strangers

DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """So many processes with so many devices each, and what is wrong with some of them.

    `absent` ones never start. `differ` ones hold another program and say so; `liars` hand in the
    usual card and hold another program all the same. `outsiders` hold another secret. `claims`
    are (process, device): it says that it holds that one. `sizes` are (process, devices): it
    believes in a world of that size. `program` is everybody's; `path` is what it is called.
    """

    processes: int
    devices_each: int = 1
    seed: int = 0
    deadline_s: float = DEADLINE_S
    rendezvous: bool = False
    faults: tuple[Fault, ...] = ()
    doubles: tuple[Double, ...] = ()
    strangers: tuple[Strangers, ...] = ()
    absent: tuple[int, ...] = ()
    liars: tuple[int, ...] = ()
    differ: tuple[int, ...] = ()
    outsiders: tuple[int, ...] = ()
    claims: tuple[tuple[int, int], ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    program: Program | None = None
    path: str = ""

    @property
    def world_size(self) -> int:
        """How many devices there are in all."""
        return self.processes * self.devices_each

    @property
    def replay(self) -> str:
        """The command line that does exactly this again."""
        return " ".join(["rankmuster simulate", f"--world {self.world_size}", *self._options()])

    @property
    def suspects(self) -> frozenset[int]:
        """The devices that may be named: of whoever something befalls, or is wrong with."""
        who = {*self.absent, *self.liars, *self.differ, *self.outsiders}
        who |= {each.process for each in self.faults} | {each.process for each in self.doubles}
        who |= {process for process, _ in (*self.claims, *self.sizes)}
        devices = {device for process in who for device in self.devices(process)}
        return frozenset(devices | {device for _, device in self.claims})

    @property
    def decidable(self) -> bool:
        """Whether whoever is at fault can be told from the others: two may only differ."""
        return self.processes > 2 * len({*self.liars, *self.differ})

    def devices(self, process: int) -> tuple[int, ...]:
        """What *process* holds."""
        first = process * self.devices_each
        return tuple(range(first, first + self.devices_each))

    def _options(self) -> Iterator[str]:
        if self.devices_each > 1:
            yield f"--devices-per-process {self.devices_each}"
        yield f"--seed {self.seed}"
        if self.deadline_s != DEADLINE_S:
            yield f"--deadline {self.deadline_s:g}"
        if self.rendezvous:
            yield "--rendezvous"
        befalls: tuple[Fault | Double | Strangers, ...] = (
            *self.faults,
            *self.doubles,
            *self.strangers,
        )
        yield from (each.option for each in befalls)
        for name in ("absent", "liar", "differ", "outsider"):
            if who := getattr(self, {"liar": "liars", "outsider": "outsiders"}.get(name, name)):
                yield f"--{name} {fold(who)}"
        yield from (f"--claim {process}={device}" for process, device in self.claims)
        yield from (f"--size {process}={size}" for process, size in self.sizes)
        if self.program is not None:
            yield f"--program {self.path}"


def usual_program(world_size: int) -> Program:
    """What is simulated where no program is given: the world's gradients, and its pairs'."""
    everybody = [list(range(world_size))]
    if world_size < 4 or world_size % 2:
        return program(all_reduce(), groups=[everybody], world_size=world_size)
    pairs = [[n, n + 1] for n in range(0, world_size, 2)]
    steps = (all_reduce(), all_gather(group=1, dimension=0))
    return program(*steps, groups=[everybody, pairs], world_size=world_size)


def altered(held: Program) -> Program:
    """The same program, but for the elements of its first op that has some."""
    import msgspec

    first = next((op for op in walk(held.ops) if op.elements), None)

    def change(node: Node) -> Node:
        if isinstance(node, Op):
            more = (node.elements[0] + 1, *node.elements[1:]) if node is first else node.elements
            return msgspec.structs.replace(node, elements=more)
        if isinstance(node, Loop):
            return msgspec.structs.replace(node, body=tuple(map(change, node.body)))
        bodies = tuple(tuple(map(change, body)) for body in node.bodies)
        return msgspec.structs.replace(node, bodies=bodies)

    return msgspec.structs.replace(held, ops=tuple(map(change, held.ops)))
