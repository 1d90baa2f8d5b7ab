"""From the text of a module to its program: scan, count, order, expand, build."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from rankmuster.formats.hlo.calls import (
    Call,
    CallReader,
    CallText,
    callees_first,
    holding_calls,
    refuse_unknown,
    resolve,
)
from rankmuster.formats.hlo.collective import Collective, CollectiveReader
from rankmuster.formats.hlo.cones import Cones
from rankmuster.formats.hlo.counts import Known, known_counts
from rankmuster.formats.hlo.graph import Graphs
from rankmuster.formats.hlo.module import SMALL, parse_module
from rankmuster.formats.hlo.notes import Notes
from rankmuster.formats.hlo.ops import OpBuilder
from rankmuster.formats.hlo.order import issue_order, quick_orders
from rankmuster.formats.hlo.pairs_of_sends import Done, check_consumers, check_done, check_schedule
from rankmuster.formats.hlo.predicates import Predicates
from rankmuster.formats.hlo.printed import Cutter
from rankmuster.formats.hlo.scanner import Text, malformed
from rankmuster.formats.hlo.sites import CALLERS, DONES, scan, worth_arrays
from rankmuster.program import POINT_TO_POINT, Branch, Loop, Node, Program

MAX_PLACES = 1 << 22  # ops after calls are written out
MAX_NESTING = 100  # loops and branches within each other

Site = Collective | Call


class Reader:
    """Reads one module. The steps run once, in the order of `program`."""

    def __init__(
        self,
        text: Text,
        replicas: int | None = None,
        partitions: int | None = None,
        world: int | None = None,
    ) -> None:
        self._text = text
        self._stated = replicas, partitions, world
        found = scan(text)
        self._sites, self._marks = found.sites, found.marks
        self._module = parse_module(text, found.lines, arrays=worth_arrays(text))
        self._graphs = Graphs(self._module)
        self._notes = Notes()
        self._collectives: dict[int, list[Collective]] = defaultdict(list)
        self._dones: list[Done] = []
        self._calls: list[Call] = []

    def program(self) -> Program:
        """The program and all that reading it established."""
        self._read_sites()
        self._refuse_unknown()
        forms = dict.fromkeys(c.form for found in self._collectives.values() for c in found)
        known = known_counts(self._module, forms, *self._stated)
        self._calls = holding_calls(self._module, self._collectives, self._calls)
        reached = callees_first(self._module, self._calls)
        orders = self._orders(reached)
        build = OpBuilder(self._module, known, self._notes)
        for collective in self._signing_order(orders):
            build.op(collective)
        nodes = self._nodes(reached, orders, build)
        self._check(reached, orders, known)
        for place in sorted(self._collectives.keys() - orders.keys()):
            for collective in self._collectives[place]:
                build.set_of(collective)
        if not nodes:
            self._notes.add("RM312", "no collectives are reached from ENTRY")
        return Program(
            format="hlo",
            name=self._module.name,
            replica_groups=tuple(build.table.replica_groups),
            src_target_pairs=tuple(build.table.src_target_pairs),
            ops=nodes,
            world_size=known.world_size,
            world_source=known.source,
            findings=self._notes.findings(lambda: build.op_refs(nodes)),
        )

    def _read_sites(self) -> None:
        starts, ends = self._module.starts, self._module.ends
        cut = Cutter(self._text)
        reader, caller = CollectiveReader(self._text, cut), CallReader(self._module, cut)
        calls: list[CallText] = []
        place, low, high = -1, 0, 0
        for position, opcode in self._sites:
            if position >= high:
                place = bisect_right(starts, position) - 1
                low, high = (starts[place], ends[place]) if place >= 0 else (0, 0)
            if not low <= position < high:
                continue  # inside another instruction, or in a header
            if opcode in DONES:
                self._dones.append(Done(place, position, opcode))
            elif opcode in CALLERS:
                call, low = caller.read(position, opcode, place, low)
                if call is not None:
                    calls.append(call)
            else:
                collective, low = reader.read(position, opcode, place, low, high)
                if collective is not None:
                    self._collectives[place].append(collective)
        names = {c.to_apply for found in self._collectives.values() for c in found}
        self._module.names.learn(names.union(*(call.names for call in calls)))
        self._calls = resolve(self._module, calls)

    def _refuse_unknown(self) -> None:
        """An attribute that only collectives have stands on no opcode known here: say so."""
        collectives = [c for found in self._collectives.values() for c in found]
        at = low = 0
        for position in self._marks:
            while at < len(collectives) and collectives[at].end < position:
                at += 1
            covered = at < len(collectives) and collectives[at].start < position
            if not covered and position >= low:
                low = refuse_unknown(self._module, position, low)

    def _orders(self, reached: list[int]) -> dict[int, list[Site]]:
        """What each computation of *reached* issues, in order."""
        sites: dict[int, list[Site]] = {place: [] for place in reached}
        for place in reached:
            sites[place].extend(self._collectives.get(place, ()))
        for call in self._calls:
            if call.caller in sites:
                sites[call.caller].append(call)
        for found in sites.values():
            found.sort(key=lambda site: site.start)
        return sites if self._module.is_scheduled else sites | self._issued(sites)

    def _issued(self, sites: dict[int, list[Site]]) -> dict[int, list[Site]]:
        """The *sites* of unscheduled computations in the order in which they are issued.

        Of a large text only as much is read, and checked, as that takes.
        """
        is_large = len(self._text) >= SMALL
        some = {place: found for place, found in sites.items() if len(found) > is_large}
        quick = self._quick_orders(some) if is_large else {}
        for place in some.keys() - quick.keys():
            graph = self._graphs.of(place)
            by_place = {graph.at(site.start): site for site in some[place]}
            order = issue_order(graph, by_place, Cones(self._module))
            quick[place] = [by_place[at] for at in order]
        return quick

    def _quick_orders(self, sites: dict[int, list[Site]]) -> dict[int, list[Site]]:
        starts, ends = self._module.starts, self._module.ends
        held = [(starts[p], ends[p], [s.start for s in found]) for p, found in sites.items()]
        by_start = {site.start: site for found in sites.values() for site in found}
        orders = zip(sites, quick_orders(self._text, held), strict=True)
        return {place: [by_start[at] for at in order] for place, order in orders if order}

    def _signing_order(self, orders: dict[int, list[Site]]) -> Iterator[Collective]:
        """Every reached collective once, where it is issued first."""
        entered: set[int] = set()
        stack: list[Iterator[Site | int]] = [iter((self._module.entry,))]
        while stack:
            for site in stack[-1]:
                if isinstance(site, Collective):
                    yield site
                elif isinstance(site, Call):
                    stack.append(iter(site.callees))
                    break
                elif site not in entered:
                    entered.add(site)
                    stack.append(iter(orders[site]))
                    break
            else:
                stack.pop()

    def _nodes(
        self, reached: list[int], orders: dict[int, list[Site]], build: OpBuilder
    ) -> tuple[Node, ...]:
        """The nodes of ENTRY, with those of every computation put in where it is called."""
        nodes: dict[int, tuple[Node, ...]] = {}
        places: dict[int, int] = {}
        depth: dict[int, int] = {}
        predicates = Predicates(self._module, self._graphs, self._calls, build.same_everywhere)
        for place in reached:
            mine: list[Node] = []
            count, deepest = 0, 0
            for site in orders[place]:
                if isinstance(site, Collective):
                    op = build.ops.get(site.start)
                    if op is not None:
                        mine.append(op)
                        count += op.places
                    continue
                held = [callee for callee in site.callees if nodes[callee]]
                count += sum(places[callee] for callee in held)
                inner = max((depth[callee] for callee in held), default=0)
                deepest = max(deepest, inner + (site.opcode in (b"while", b"conditional")))
                if count > MAX_PLACES or deepest > MAX_NESTING:
                    what = f"more than {MAX_PLACES} ops, or {MAX_NESTING} levels, through calls"
                    raise malformed(self._text, site.start, what)
                mine.extend(self._call_nodes(site, [nodes[c] for c in site.callees], predicates))
            nodes[place], places[place], depth[place] = tuple(mine), count, deepest
        return nodes[self._module.entry]

    def _call_nodes(
        self, call: Call, bodies: list[tuple[Node, ...]], predicates: Predicates
    ) -> tuple[Node, ...]:
        if not any(bodies):
            return ()
        together = tuple(node for body in bodies for node in body)
        if call.opcode == b"while":
            # The condition runs once more than the body, but a place in the text signs once (E9).
            return (Loop(trips=call.trips, body=together),)
        if call.opcode != b"conditional":
            return together
        decided = predicates.of(call)
        if decided.elided and any(body != bodies[0] for body in bodies):
            # Two processes may hold other numbers where both texts say {...}.
            self._notes.add("RM703", "a constant that decides a branch is elided from the text")
        return (Branch(on=decided.by, bodies=tuple(bodies)),)

    def _check(self, reached: list[int], orders: dict[int, list[Site]], known: Known) -> None:
        """What sends, receives and async pairs get wrong, and what had to be inferred."""
        places = {done.place for done in self._dones}
        names = {place: {c.name for c in self._collectives.get(place, ())} for place in places}
        for done in self._dones:
            check_done(self._module, done, names.get(done.place, ()), self._notes)
        for place in reached:
            found = [site for site in orders[place] if isinstance(site, Collective)]
            if any(site.form.kind in POINT_TO_POINT for site in found):
                if self._module.is_scheduled:
                    check_schedule(found, self._notes)
                else:
                    check_consumers(self._graphs.of(place), found, self._notes)
        if known.is_split_inferred and self._collectives:
            counts = known.counts
            how = "from the ids in use" if known.world_size else "as no id is written"
            if known.stated:
                how = f"to fill a world of {counts.devices}"
            self._notes.add(
                "RM704",
                f"neither header nor caller gives counts: {counts.replicas} "
                f"replica{'s' * (counts.replicas != 1)} and {counts.partitions} "
                f"partition{'s' * (counts.partitions != 1)} inferred, {how}",
            )
