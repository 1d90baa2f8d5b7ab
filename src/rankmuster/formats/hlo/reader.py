"""From the text of a module to its program: scan, count, order, expand, build."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from rankmuster.formats.hlo.calls import Call, callees_first, holding_calls, read_call
from rankmuster.formats.hlo.collective import Collective, CollectiveReader
from rankmuster.formats.hlo.cones import Cones
from rankmuster.formats.hlo.counts import Known, known_counts
from rankmuster.formats.hlo.graph import Graph, read_graph
from rankmuster.formats.hlo.instruction import Instruction, instruction_at
from rankmuster.formats.hlo.module import parse_module
from rankmuster.formats.hlo.notes import Notes
from rankmuster.formats.hlo.ops import OpBuilder
from rankmuster.formats.hlo.order import issue_order
from rankmuster.formats.hlo.scanner import Text, malformed
from rankmuster.formats.hlo.sites import CALLERS, DONES, find_sites
from rankmuster.program import Branch, Loop, Node, Op, Program

MAX_PLACES = 1 << 22  # ops after calls are written out
MAX_NESTING = 100  # loops and branches within each other

# backend_config={"known_trip_count":{"n":"7"},...}
_TRIPS = re.compile(rb'"known_trip_count"\s*:\s*\{\s*"n"\s*:\s*"?(\d{1,18})"?')


class Reader:
    """Reads one module. The steps run once, in the order of `program`."""

    def __init__(self, text: Text, replicas: int | None, partitions: int | None) -> None:
        self.text = text
        self.module = parse_module(text)
        self.notes = Notes()
        self.collectives: dict[int, list[Collective]] = defaultdict(list)
        self.dones: list[tuple[int, Instruction]] = []
        self.calls: list[Call] = []
        self._graphs: dict[int, Graph] = {}
        self._stated = replicas, partitions

    def program(self) -> Program:
        """The program and all that reading it established."""
        self._scan()
        collectives = [c for found in self.collectives.values() for c in found]
        known = known_counts(self.module, collectives, *self._stated)
        self.calls = holding_calls(self.module, self.collectives, self.calls)
        build = OpBuilder(self.module, known, self.notes)
        reached = callees_first(self.module, self.calls)
        orders = {place: self._order(place) for place in reached}
        for collective in self._signing_order(orders):
            build.op(collective)
        nodes = self._nodes(reached, orders, build.ops)
        for place in sorted(set(self.collectives) - set(reached)):
            for collective in self.collectives[place]:
                build.set_of(collective)
        self._say_what_was_inferred(known)
        if not nodes:
            self.notes.add("RM312", "the module holds no collectives that ENTRY reaches")
        return Program(
            format="hlo",
            name=self.module.name,
            replica_groups=tuple(build.table.replica_groups),
            src_target_pairs=tuple(build.table.src_target_pairs),
            ops=nodes,
            world_size=known.world_size,
            world_source=known.source,
            findings=self.notes.findings(build.op_refs(nodes)),
        )

    def _say_what_was_inferred(self, known: Known) -> None:
        if known.stated or not self.collectives:
            return
        counts = known.counts
        how = "from the ids in use" if known.world_size else "as no id is in use"
        self.notes.add(
            "RM704",
            f"neither header nor caller gives counts: {counts.replicas} replicas and "
            f"{counts.partitions} partitions are inferred, {how}",
        )

    def _scan(self) -> None:
        behind = 0
        collectives = CollectiveReader(self.text)
        for position, opcode in find_sites(self.text):
            place = self.module.place_of(position)
            if place is None or position < behind:  # in the header, or inside another's string
                continue
            body = self.module.computations[place]
            found = instruction_at(self.text, position, opcode, body.start, body.end)
            if found is None:
                continue
            behind = found.end
            if opcode in DONES:
                self.dones.append((place, found))
            elif opcode in CALLERS:
                self.calls.append(read_call(self.module, found, place))
            else:
                collective = collectives.read(found, place)
                if collective is not None:
                    self.collectives[place].append(collective)

    def _graph(self, place: int) -> Graph:
        if place not in self._graphs:
            self._graphs[place] = read_graph(self.text, self.module.computations[place])
        return self._graphs[place]

    def _order(self, place: int) -> list[Collective | Call]:
        """What the computation issues, in order."""
        sites: dict[int, Collective | Call] = {
            site.instruction.start: site for site in self.collectives.get(place, ())
        }
        sites.update((c.instruction.start, c) for c in self.calls if c.caller == place)
        if self.module.is_scheduled or len(sites) < 2:
            return [sites[start] for start in sorted(sites)]
        graph = self._graph(place)
        places = {graph.at(start): site for start, site in sites.items()}
        ordered = issue_order(graph, places, Cones(self.module))
        return [places[at] for at in ordered]

    def _signing_order(self, orders: dict[int, list[Collective | Call]]) -> Iterator[Collective]:
        """Every reached collective once, where it is issued first."""
        entered: set[int] = set()
        stack: list[Iterator[Collective | Call | int]] = [iter((self.module.entry,))]
        while stack:
            for site in stack[-1]:
                if isinstance(site, Collective):
                    yield site
                elif isinstance(site, Call):
                    stack.append(iter(_in_order(site)))
                    break
                elif site not in entered:
                    entered.add(site)
                    stack.append(iter(orders[site]))
                    break
            else:
                stack.pop()

    def _nodes(
        self,
        reached: list[int],
        orders: dict[int, list[Collective | Call]],
        ops: dict[int, Op],
    ) -> tuple[Node, ...]:
        """The nodes of ENTRY, with those of every computation put in where it is called."""
        nodes: dict[int, tuple[Node, ...]] = {}
        places: dict[int, int] = {}
        depth: dict[int, int] = {}
        for place in reached:
            mine: list[Node] = []
            count, deepest = 0, 0
            for site in orders[place]:
                if isinstance(site, Collective):
                    if (op := ops.get(site.instruction.start)) is not None:
                        mine.append(op)
                        count += op.places
                    continue
                held = [callee for callee in _in_order(site) if nodes[callee]]
                count += sum(places[callee] for callee in held)
                level = max((depth[callee] for callee in held), default=0)
                deepest = max(deepest, level + (site.instruction.opcode in _STRUCTURED))
                if count > MAX_PLACES or deepest > MAX_NESTING:
                    raise malformed(
                        self.text,
                        site.instruction.start,
                        f"calls nest too deep: more than {MAX_PLACES} ops or {MAX_NESTING} levels",
                    )
                mine.extend(self._call_nodes(site, nodes))
            nodes[place], places[place], depth[place] = tuple(mine), count, deepest
        return nodes[self.module.entry]

    def _call_nodes(self, site: Call, nodes: dict[int, tuple[Node, ...]]) -> tuple[Node, ...]:
        bodies = tuple(nodes[callee] for callee in _in_order(site))
        if not any(bodies):
            return ()
        if site.instruction.opcode == b"while":
            # The condition runs once more than the body; a place in the text signs once (E9).
            return (Loop(trips=_trips(site.instruction), body=sum(bodies, ())),)
        if site.instruction.opcode == b"conditional":
            return (Branch(on=self._decided_by(site, bodies), bodies=bodies),)
        return sum(bodies, ())

    def _decided_by(self, site: Call, bodies: tuple[tuple[Node, ...], ...]) -> str:
        return "data"


_STRUCTURED = frozenset((b"while", b"conditional"))
_CALLED_ORDER = (b"condition", b"body", b"true_computation", b"false_computation")


def _in_order(site: Call) -> tuple[int, ...]:
    """The callees in the order they run or are numbered in, whatever the order of attributes."""
    keys = [key for key in site.instruction.attributes if key in _CALLED_ORDER]
    if len(keys) == len(site.callees):
        pairs = sorted(
            zip(keys, site.callees, strict=True), key=lambda p: _CALLED_ORDER.index(p[0])
        )
        return tuple(callee for _, callee in pairs)
    return site.callees


def _trips(instruction: Instruction) -> int | None:
    match = _TRIPS.search(instruction.attributes.get(b"backend_config", b""))
    return int(match[1]) if match else None
