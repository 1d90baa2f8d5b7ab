"""What is wrong with one program by itself, in a world of a given size.

Knows no other program and no file. Readers have already judged what only they can see (an id in the
numbering of its own group mode, say); a finding of theirs is never repeated here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import Any

from rankmuster.finding import Finding, OpRef, Severity, finding
from rankmuster.program import EVEN, REDUCING, Branch, Loop, Op, OpKind, walk
from rankmuster.ranks import ranges
from rankmuster.resolve import GroupSet, Resolved
from rankmuster.signature.canonical import content
from rankmuster.signature.places import Event, Place, events, places
from rankmuster.wording import whereabouts

MUST_COVER = frozenset({"hlo", "stablehlo"})  # formats whose verifiers demand every id
MAX_SETS = 12  # NEC_MAX_COMM_N (facts §2.1); 16 from runtime 2.34.10 on
LISTED = 1 << 16  # a finding about more devices than this names them in its message only
SHOWN = 20  # findings of one kind; a program that breaks one rule everywhere has one cause


def verify(resolved: Resolved, world_size: int) -> tuple[Finding, ...]:
    """Judge a program for a world of *world_size* devices; what its reader found is left out.

    Ids are checked against the world that the program claims, or *world_size* where it claims
    none. Findings come in the order of their checks and name only devices that exist.
    """
    read = resolved.program.findings
    known = {(each.code, each.group, each.field) for each in read}
    # A list whose product does not fit has been left empty by its reader.
    known |= {("RM103", each.group, None) for each in read if each.code == "RM107"}
    found = chain(
        check_world(resolved, world_size),
        check_sets(resolved, own_world(resolved, world_size)),
        check_room(resolved),
        check_ops(resolved),
    )
    return tuple(each for each in found if (each.code, each.group, each.field) not in known)


def placed(resolved: Resolved, found: Finding) -> Finding:
    """The finding with the place of its op in its text; of a set, that of the first op on it."""
    if (firsts := resolved.memo.get("first refs")) is None:
        ops = [each for each in places(resolved) if isinstance(each.event, Op)]
        firsts = {each.group: where(each)["op"] for each in reversed(ops)}
        resolved.memo["first refs"] = firsts
    ref = found.op or firsts.get(found.group)
    if ref is None:
        return found
    return replace(found, op=ref, message=found.message + whereabouts(resolved.program, ref))


def own_world(resolved: Resolved, world_size: int) -> int:
    """The number of devices that the program itself claims, else that of the world."""
    program = resolved.program
    claimed = None if program.world_source == "inferred" else program.world_size
    return claimed or world_size


def check_world(resolved: Resolved, world_size: int) -> Iterator[Finding]:
    """RM002: the program's own world does not fit (`enc_validate_global_comm`, S0 §6)."""
    claimed = own_world(resolved, world_size)
    if claimed > world_size:
        yield finding(
            "RM002", f"the program is for {claimed} devices, and the world has {world_size}"
        )


def check_sets(resolved: Resolved, world_size: int) -> Iterator[Finding]:
    """The ids of the sets, rule by rule: a few lines of text can name many sets of large worlds."""
    for check in (check_members, check_cover, check_pairs):
        found = chain.from_iterable(check(resolved, each, world_size) for each in resolved.sets)
        yield from islice(found, SHOWN)


def check_members(_: Resolved, each: GroupSet, world_size: int) -> Iterator[Finding]:
    """RM101, RM102, RM104: ids out of range or repeated, or a sub-group without any."""
    if each.pairs is not None:
        return
    if not all(each.members):
        what = f"{title(each)} holds an empty sub-group: each needs a member"
        yield finding("RM104", what, group=each.id)
    ids = list(chain.from_iterable(each.members))
    distinct = set(ids)
    yield from out_of_range("RM101", each, distinct, world_size)
    if len(distinct) < len(ids):
        yield from repeated("RM102", each, ids, "names {} more than once", world_size)


def check_cover(resolved: Resolved, each: GroupSet, world_size: int) -> Iterator[Finding]:
    """RM103: ids missing from the cover."""
    if each.pairs is not None:
        return
    gaps = list(missing(set(chain.from_iterable(each.members)), world_size))
    if gaps:
        must = resolved.program.format in MUST_COVER
        few = sum(last - first + 1 for first, last in gaps) <= LISTED
        yield finding(
            "RM103",
            f"{title(each)} leaves out {devices(gaps)} of a world of {world_size}",
            severity=Severity.ERROR if must else Severity.INFO,
            ranks=(id_ for first, last in gaps for id_ in range(first, last + 1)) if few else (),
            group=each.id,
        )


def check_pairs(resolved: Resolved, each: GroupSet, world_size: int) -> Iterator[Finding]:
    """RM203, RM201, RM202, RM207: ids out of range or repeated (facts D34), or no pairs at all."""
    if each.pairs is None:
        return
    edges = each.pairs
    yield from out_of_range("RM203", each, set(chain.from_iterable(edges)), world_size)
    if not edges:
        yield finding("RM207", f"{title(each)} is empty", group=each.id)
    # Whether HLO may name an id twice depends on the op's form, which its reader has seen.
    if resolved.program.format != "hlo":
        sources, targets = zip(*edges, strict=True) if edges else ((), ())
        yield from repeated("RM201", each, sources, "has {} as a source more than once", world_size)
        yield from repeated("RM202", each, targets, "has {} as a target more than once", world_size)


def out_of_range(
    code: str, each: GroupSet, distinct: set[int], world_size: int
) -> Iterator[Finding]:
    """The ids that no device of the world has."""
    if distinct and not (min(distinct) >= 0 and max(distinct) < world_size):
        wrong = [device for device in distinct if not 0 <= device < world_size]
        what = f"{title(each)} names {devices(ranges(wrong))} in a world of {world_size}"
        yield finding(code, what, group=each.id)


def repeated(
    code: str, each: GroupSet, ids: Iterable[int], what: str, world_size: int
) -> Iterator[Finding]:
    """The ids that stand more than once where they may stand once."""
    twice = [device for device, count in Counter(ids).items() if count > 1]
    if twice:
        inside = [device for device in twice if 0 <= device < world_size]
        message = f"{title(each)} {what.format(devices(ranges(twice)))}"
        yield finding(code, message, ranks=inside, group=each.id)


def missing(distinct: set[int], world_size: int) -> Iterator[tuple[int, int]]:
    """The runs of the world's ids that *distinct* leaves out, first and last, none listed."""
    if distinct.issuperset(range(world_size)):
        return
    inside = sorted(device for device in distinct if 0 <= device < world_size)
    for before, after in pairwise((-1, *inside, world_size)):
        if after > before + 1:
            yield before + 1, after - 1


def check_room(resolved: Resolved) -> Iterator[Finding]:
    """RM106: more sets than the Neuron runtime has communicators, where it is the target."""
    count = len(resolved.sets)
    if resolved.program.target is not None and count > MAX_SETS:
        yield finding(
            "RM106",
            f"the program has {count} group sets, and the runtime has room for {MAX_SETS} "
            "(16 from release 2.34.10 on)",
        )


def check_ops(resolved: Resolved) -> Iterator[Finding]:
    """What the program's ops, loops and branches show; RM312 if there are no ops at all."""
    placed = list(places(resolved))
    ops = [place for place in placed if isinstance(place.event, Op)]
    if not ops:
        yield finding("RM312", "the program holds no collectives")
        return
    yield from islice(chain.from_iterable(check_root(resolved, place) for place in ops), SHOWN)
    yield from islice(check_even(resolved, ops), SHOWN)
    yield from check_reduces(ops)
    yield from check_loops(placed, ops)
    yield from check_branches(placed, ops)


def check_reduces(ops: Sequence[Place]) -> Iterator[Finding]:
    """RM706: reducing ops of which the evidence does not say what they reduce with."""
    silent = [place for place in ops if reduces_unsaid(place.event)]
    if silent:
        what = f"the reduce op is not recorded in {len(silent)} of {len(ops)} ops"
        yield finding("RM706", what, field="reduce", **where(silent[0]))


def check_loops(placed: Iterable[Place], ops: Sequence[Place]) -> Iterator[Finding]:
    """RM314: loops that communicate nobody knows how often."""
    unknown = [place for place in placed if is_unknown_loop(place.event)]
    if unknown:
        count = f"{len(unknown)} loop{'s' if len(unknown) > 1 else ''}"
        what = f"the trip count of {count} is not known"
        yield finding("RM314", what, field="trips", **where(first_op(ops, unknown[0])))


def check_branches(placed: Iterable[Place], ops: Sequence[Place]) -> Iterator[Finding]:
    """RM313: branches in which processes may part."""
    divided = (place for place in placed if is_divided(place.event))
    for place in islice(divided, SHOWN):
        what = "the branch depends on the rank, and its bodies communicate differently"
        yield finding("RM313", what, **where(first_op(ops, place)))


def first_op(ops: Sequence[Place], place: Place) -> Place:
    """The first op of a loop or branch that holds one."""
    return ops[bisect_left(ops, place.index, key=lambda op: op.index)]


def check_root(resolved: Resolved, place: Place) -> Iterator[Finding]:
    """RM101: a root that is a position in no sub-group."""
    op = place.event
    assert isinstance(op, Op)
    if op.root is None:
        return
    size = max(map(len, resolved.set_of(op).members), default=0)
    if op.root >= size:
        what = f"{op.kind} has root {op.root} in sub-groups of {size}; positions count from 0"
        yield finding("RM101", what, field="root", **where(place))


def check_even(resolved: Resolved, ops: Iterable[Place]) -> Iterator[Finding]:
    """RM104: an op that needs equal sub-groups on a set of unequal ones, once per kind and set.

    XLA's verifier refuses it, and kernels are sized from the first sub-group.
    """
    told: set[tuple[int, OpKind]] = set()
    for each in ops:
        op = each.event
        assert isinstance(op, Op)
        if op.kind not in EVEN or op.group is None or (each.group, op.kind) in told:
            continue
        told.add((each.group, op.kind))
        sizes = sorted({len(members) for members in resolved.sets[each.group].members})
        if len(sizes) > 1:
            text = f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
            what = f"{op.kind} on group set {each.group}, whose sub-groups have {text} members"
            yield finding(
                "RM104", f"{what}: legal for all_reduce, not for {op.kind}", **where(each)
            )


def reduces_unsaid(event: Event) -> bool:
    """Whether an op reduces and the evidence does not say with what."""
    return isinstance(event, Op) and event.kind in REDUCING and event.reduce is None


def is_unknown_loop(event: Event) -> bool:
    """Whether a loop that communicates has no trip count."""
    return isinstance(event, Loop) and event.trips is None and any(walk(event.body))


def is_divided(event: Event) -> bool:
    """Whether a branch on the rank does different things in its bodies."""
    if not isinstance(event, Branch) or event.on != "rank":
        return False
    bodies = [[content(each) for each in events(body)] for body in event.bodies]
    return any(body != bodies[0] for body in bodies) and any(map(any, map(walk, event.bodies)))


def where(place: Place) -> dict[str, Any]:
    """The fields of a finding that say where its op stands."""
    op = place.event
    assert isinstance(op, Op)
    ref = OpRef(
        index=place.index,
        in_group=place.in_group,
        kind=op.kind.value,
        name=op.name,
        source=op.source,
    )
    return {"op": ref, "group": place.group}


def title(each: GroupSet) -> str:
    """A set as messages name it."""
    return f"{'group' if each.pairs is None else 'pairs'} set {each.id}"


def devices(runs: Iterable[tuple[int, int]]) -> str:
    """Runs of ids as messages name them, the first few of many: "devices 3,8-15"."""
    listed = list(runs)
    text = ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in listed[:SHOWN])
    count, left = (sum(b - a + 1 for a, b in part) for part in (listed, listed[SHOWN:]))
    more = f" and {left} more" if left else ""
    return f"{'device' if count == 1 else 'devices'} {text}{more}"
