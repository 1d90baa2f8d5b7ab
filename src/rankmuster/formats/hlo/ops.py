"""From collectives to ops over interned group sets, in the order they are given; and to findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from rankmuster.errors import InvalidProgram
from rankmuster.finding import OpRef
from rankmuster.formats.hlo.checks import check_groups, check_pairs
from rankmuster.formats.hlo.collective import Collective
from rankmuster.formats.hlo.counts import Known
from rankmuster.formats.hlo.definitions import Definitions
from rankmuster.formats.hlo.groups import GroupList
from rankmuster.formats.hlo.modes import Mode, everybody, expand_groups, expand_pairs
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.notes import Notes
from rankmuster.formats.hlo.posted import posted
from rankmuster.formats.hlo.reducers import Reducers
from rankmuster.formats.hlo.scanner import malformed, shown
from rankmuster.formats.hlo.sources import Sources
from rankmuster.group import GroupTable
from rankmuster.program import POINT_TO_POINT, REDUCING, Node, Op, OpKind, walk

MAX_IDS_IN_ALL = 1 << 24


class OpBuilder:
    """Builds the ops of one module; `ops` has them by where their instruction starts."""

    def __init__(self, module: Module, known: Known, notes: Notes) -> None:
        self.module, self.known, self.notes = module, known, notes
        self.table = GroupTable()
        self.ops: dict[int, Op] = {}
        self._reducers = Reducers(module)
        self._sources = Sources(module)
        self._definitions = Definitions(module.text)
        self._sets: dict[tuple[str, bytes], tuple[int, int | None]] = {}
        self._checked: set[tuple[str, bytes, bool]] = set()
        self._ids = 0

    def op(self, collective: Collective) -> None:
        """Add the op of *collective*, if it makes one, and note what is wrong with it.

        Raises InvalidProgram for what cannot be an op at all.
        """
        try:
            built = self._op(collective)
        except InvalidProgram as error:
            if error.line is not None:
                raise
            start = collective.instruction.start
            raise malformed(
                self.module.text,
                start,
                f"{collective.instruction.label}: {error.reason}",
                fix=error.fix,
            ) from error
        if built is not None:
            self.ops[collective.instruction.start] = built

    def set_of(self, collective: Collective) -> tuple[int, int | None]:
        """(id, size of a group) of the set that *collective* names; checks it when first seen."""
        mode = self.known.mode_of(collective)
        key = mode.value, collective.key
        even = collective.kind is not OpKind.ALL_REDUCE
        twice = b"slice_sizes" in collective.instruction.attributes
        checked = mode.value, collective.key, even != twice
        if checked not in self._checked:
            self._checked.add(checked)
            self._check(collective, mode)
        if key not in self._sets:
            self._sets[key] = self._expand(collective, mode)
        return self._sets[key]

    def _op(self, collective: Collective) -> Op | None:
        instruction, kind = collective.instruction, collective.kind
        for code, message in collective.problems:
            self._note(code, message, collective)
        if kind in POINT_TO_POINT and collective.pairs is None:
            self._note(
                "RM706", f"a {kind} without source-target pairs: its peer is unknown", collective
            )
            return None
        number, size = self.set_of(collective)
        body = self.module.computations[collective.place]
        data = posted(
            instruction,
            kind,
            size,
            lambda name: self._definitions.shape_of(body, name, instruction.start),
        )
        for misfit in data.misfits:
            self._note("RM105", f"{collective.base.decode()} {misfit}", collective)
        on_pairs = collective.groups is None
        return Op(
            kind=kind,
            group=None if on_pairs else number,
            pairs=number if on_pairs else None,
            elements=data.elements,
            dtype=data.dtype,
            reduce=self._reduce(collective) if kind in REDUCING else None,
            root=self._root(collective) if kind is OpKind.BROADCAST else None,
            dimension=data.dimension,
            name=instruction.label,
            source=self._sources.of(instruction.attributes.get(b"metadata", b"")),
        )

    def _reduce(self, collective: Collective) -> str | None:
        to_apply = collective.instruction.attributes.get(b"to_apply")
        if to_apply is None:
            raise InvalidProgram("to_apply= is missing")
        name = self._reducers.name_of(to_apply)
        if name is None:
            raise InvalidProgram(f"computation {shown(to_apply)!r} is not defined")
        thread = self.module.computations[collective.place].thread
        theirs = self._reducers.thread_of(to_apply)
        if theirs != thread:
            self._note(
                "RM701",
                f"to_apply={shown(to_apply)} runs on thread {shown(theirs or b'')}, "
                f"the op on {shown(thread)}",
                collective,
            )
        return name

    def _root(self, collective: Collective) -> int | None:
        # The first id of each group is the source, unless an operand tells it at run time.
        if collective.instruction.attributes.get(b"has_dynamic_root") != b"true":
            return 0
        self._note("RM706", "the root is an operand: the text does not say which rank", collective)
        return None

    def _check(self, collective: Collective, mode: Mode) -> None:
        limit = self.known.limit(mode)
        if collective.pairs is not None:
            # The in-place form moves two slices, so each end may stand twice.
            times = 2 if b"slice_sizes" in collective.instruction.attributes else 1
            times = max(times, _data_buffers(collective))
            found = check_pairs(collective.pairs, mode, limit, times=times)
        elif collective.groups is not None and collective.groups.misfit:
            found = iter([("RM107", collective.groups.misfit)])
        elif collective.groups is not None and not collective.groups.everybody:
            even = collective.kind is not OpKind.ALL_REDUCE
            found = check_groups(collective.groups.groups, mode, limit, even=even)
        else:
            return
        for code, message in found:
            self._note(code, f"{collective.base.decode()}: {message}", collective)

    def _expand(self, collective: Collective, mode: Mode) -> tuple[int, int | None]:
        if collective.pairs is not None:
            pairs = expand_pairs(collective.pairs, mode, self.known.counts)
            self._count(2 * len(pairs))
            return self.table.add_pairs(pairs), None
        listed = collective.groups or GroupList()
        groups = everybody(mode, self.known.counts) if listed.everybody else listed.groups
        members = expand_groups(groups, mode, self.known.counts)
        self._count(sum(map(len, members)))
        sizes = {len(group) for group in members}
        # Without stated counts nobody knows how many "everybody" or "all partitions" are.
        open_ended = listed.everybody or mode is Mode.CROSS_REPLICA_AND_PARTITION
        known = len(sizes) == 1 and (self.known.stated or not open_ended)
        return self.table.add_groups(members), sizes.pop() if known else None

    def _count(self, ids: int) -> None:
        self._ids += ids
        if self._ids > MAX_IDS_IN_ALL:
            raise InvalidProgram(
                f"the module's sets name more than {MAX_IDS_IN_ALL} ids in all",
            )

    def _note(self, code: str, message: str, collective: Collective) -> None:
        self.notes.add(code, message, at=collective.instruction.start)

    def op_refs(
        self, nodes: tuple[Node, ...]
    ) -> Callable[[int], tuple[OpRef | None, int | None] | None]:
        """How findings learn their op and group id, once all are numbered."""
        refs: dict[int, tuple[OpRef | None, int | None]] = {}
        starts = {id(op): start for start, op in self.ops.items()}
        index = 0
        in_group: dict[int, int] = defaultdict(int)
        for op in walk(nodes):
            number = op.group if op.group is not None else self._pairs_id(op)
            ref = OpRef(
                index=index,
                in_group=in_group[number],
                kind=op.kind.value,
                name=op.name,
                source=op.source,
            )
            refs.setdefault(starts[id(op)], (ref, number))
            index += op.places
            in_group[number] += op.places
        return refs.get

    def _pairs_id(self, op: Op) -> int:
        # As groups, pairs sets are numbered behind the replica-group sets (facts E7).
        return len(self.table.replica_groups) + (op.pairs or 0)


def _data_buffers(collective: Collective) -> int:
    # collective-permute(in, out, in offsets, out offsets) without slice_sizes is old in-place text.
    return 2 if len(collective.instruction.operands()) == 4 else 1
