"""From collectives to ops over interned group sets, in the order they are given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from rankmuster.errors import InvalidProgram
from rankmuster.finding import OpRef
from rankmuster.formats.hlo.checks import BEYOND, check_groups, check_pairs, meant
from rankmuster.formats.hlo.collective import Collective, Form
from rankmuster.formats.hlo.counts import Known
from rankmuster.formats.hlo.definitions import Definitions
from rankmuster.formats.hlo.groups import GroupList
from rankmuster.formats.hlo.instruction import split_operands
from rankmuster.formats.hlo.modes import Mode, everybody, expand_groups, expand_pairs
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.notes import Notes
from rankmuster.formats.hlo.posted import Posted, needs_operands, posted
from rankmuster.formats.hlo.reducers import Reducers
from rankmuster.formats.hlo.scanner import malformed, shown
from rankmuster.formats.hlo.shapes import Shape, parse_shape
from rankmuster.formats.hlo.sources import Sources
from rankmuster.group import GroupTable
from rankmuster.program import REDUCING, Node, Op, OpKind, walk

MAX_IDS_IN_ALL = 1 << 22


_Shapes = tuple[Shape | None, ...]


@dataclass(frozen=True, slots=True)
class _Settled:
    """What all collectives of one form share: their set and what follows from the form alone."""

    group: int | None
    pairs: int | None
    size: int | None
    root: int | None
    reduces: bool
    data: Posted | None
    by_operands: dict[tuple[int, bytes] | _Shapes, Posted]  # where their shapes decide as well


class OpBuilder:
    """Builds the ops of one module; `ops` has them by where their instruction starts."""

    def __init__(self, module: Module, known: Known, notes: Notes) -> None:
        self.module, self.known, self.notes = module, known, notes
        self.table = GroupTable()
        self.ops: dict[int, Op] = {}
        self._reducers = Reducers(module)
        self._sources = Sources(module)
        self._definitions = Definitions(module.text)
        self._sets: dict[tuple[str, bytes, bool], tuple[int, int | None]] = {}
        self._checked: set[tuple[str, bytes, OpKind, bool]] = set()
        self._settled: dict[Form, _Settled] = {}
        self._threads: dict[int, bytes] = {}
        self._ids = 0

    def op(self, collective: Collective) -> None:
        """Add the op of *collective*, if it makes one, and note what is wrong with it.

        Raises InvalidProgram for what cannot be an op at all.
        """
        form = collective.form
        if form.pairs is None and form.groups is None:
            self._note(
                "RM706",
                f"a {form.kind} without source-target pairs: its peer is unknown",
                collective,
            )
            return
        try:
            settled = self._settled.get(form)
            if settled is None:
                settled = self._settled[form] = self._settle(collective)
            reduce = self._reduce(collective) if settled.reduces else None
            data = settled.data or self._posted(collective, settled)
        except InvalidProgram as error:
            raise self._placed(error, collective) from error
        if form.problems or data.misfits or form.has_dynamic_root:
            self._note_form(collective, data)
        self.ops[collective.start] = Op(
            kind=form.kind,
            group=settled.group,
            pairs=settled.pairs,
            elements=data.elements,
            dtype=data.dtype,
            reduce=reduce,
            root=settled.root,
            dimension=data.dimension,
            name=collective.label,
            source=self._sources.of(collective.metadata),
        )

    def same_everywhere(self) -> set[int]:
        """Where the ops start whose result is one and the same on all devices."""
        kinds = (OpKind.ALL_REDUCE, OpKind.ALL_GATHER, OpKind.BROADCAST)
        whole = {
            n for n, groups in enumerate(self.table.replica_groups) if len(groups.members) == 1
        }
        return {start for start, op in self.ops.items() if op.kind in kinds and op.group in whole}

    def set_of(self, collective: Collective) -> tuple[int, int | None]:
        """(id, size of a group) of the set that *collective* names; checks it when first seen."""
        form = collective.form
        mode = self.known.mode_of(form)
        checked = mode.value, form.key, form.kind, form.is_in_place
        if checked not in self._checked:
            self._checked.add(checked)
            self._check(collective, mode)
        # {{0,1},{2,3}} may be groups here and pairs there.
        key = mode.value, form.key, form.pairs is None
        if key not in self._sets:
            self._sets[key] = self._expand(form, mode)
        return self._sets[key]

    def _settle(self, collective: Collective) -> _Settled:
        form = collective.form
        number, size = self.set_of(collective)
        # The first id of each group is the source, unless an operand says otherwise at run time.
        is_rooted = form.kind is OpKind.BROADCAST and not form.has_dynamic_root
        return _Settled(
            group=None if form.groups is None else number,
            pairs=number if form.groups is None else None,
            size=size,
            root=0 if is_rooted else None,
            reduces=form.kind in REDUCING,
            data=None if needs_operands(form) else posted(form, size, tuple),
            by_operands={},
        )

    def _posted(self, collective: Collective, settled: _Settled) -> Posted:
        known = settled.by_operands
        words = collective.place, collective.operands
        if words not in known:
            body = self.module.computation(collective.place)
            shapes = tuple(
                [
                    parse_shape(inline)
                    if inline
                    else self._definitions.shape_of(body, name, collective.start)
                    for name, inline in split_operands(collective.operands)
                ]
            )
            if shapes not in known:
                known[shapes] = posted(collective.form, settled.size, lambda: shapes)
            known[words] = known[shapes]
        return known[words]

    def _note_form(self, collective: Collective, data: Posted) -> None:
        form = collective.form
        for code, message in form.problems:
            self._note(code, message, collective)
        for misfit in data.misfits:
            self._note("RM105", f"{form.base.decode()} {misfit}", collective)
        if form.has_dynamic_root:
            self._note(
                "RM706", "the root is an operand: the text does not say which rank", collective
            )

    def _placed(self, error: InvalidProgram, collective: Collective) -> InvalidProgram:
        if error.line is not None:
            return error
        what = f"{collective.label}: {error.reason}"
        return malformed(self.module.text, collective.start, what, fix=error.fix)

    def _reduce(self, collective: Collective) -> str:
        name, thread = self._reducers.name_of(collective.to_apply)
        if collective.place not in self._threads:
            self._threads[collective.place] = self.module.thread(collective.place)
        mine = self._threads[collective.place]
        if thread != mine:
            self._note(
                "RM701",
                f"to_apply={shown(collective.to_apply)} runs on thread {shown(thread)}, "
                f"the op on {shown(mine)}",
                collective,
            )
        return name

    def _check(self, collective: Collective, mode: Mode) -> None:
        form, limit = collective.form, self.known.limit(mode)
        if form.pairs is not None:
            found = check_pairs(form.pairs, mode, limit, times=2 if form.is_in_place else 1)
        elif form.groups is not None and form.groups.misfit:
            found = iter([("RM107", form.groups.misfit)])
        elif form.groups is not None and not form.groups.everybody:
            even = form.kind is not OpKind.ALL_REDUCE
            found = check_groups(form.groups.groups, mode, limit, even=even)
        else:
            return
        for code, message in found:
            fix = self._meant(form) if code in BEYOND else None
            self._note(code, f"{form.base.decode()}: {message}", collective, fix=fix)

    def _meant(self, form: Form) -> str | None:
        """What to do about ids out of range, where other attributes would give them a meaning."""
        if form.mode is None:
            return None
        sets = form.groups.groups if form.groups else form.pairs or ()
        return meant(form.base, form.mode, self.known.counts, chain.from_iterable(sets))

    def _expand(self, form: Form, mode: Mode) -> tuple[int, int | None]:
        if form.pairs is not None:
            pairs = expand_pairs(form.pairs, mode, self.known.counts)
            self._count(2 * len(pairs))
            return self.table.add_pairs(pairs), None
        listed = form.groups or GroupList()
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

    def _note(
        self, code: str, message: str, collective: Collective, *, fix: str | None = None
    ) -> None:
        self.notes.add(code, message, at=collective.start, fix=fix)

    def op_refs(self, nodes: tuple[Node, ...]) -> Callable[[int], tuple[OpRef, int] | None]:
        """How findings learn their op and group id, once all are numbered."""
        refs: dict[int, tuple[OpRef, int]] = {}
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
