"""What is wrong with the ids of one set, in its mode's own numbering.

XLA's verifier often names the symptom ("Replica 6 is out of range" where id 4 is absent); these
say which ids are repeated, missing or out of range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from rankmuster.formats.hlo.groups import MAX_IDS, Groups
from rankmuster.formats.hlo.modes import HAS_FLAG, Counts, Mode, Pairs
from rankmuster.ranks import fold

Problem = tuple[str, str]  # (code, message)
BEYOND = frozenset({"RM101", "RM203"})
_UNIT = {
    Mode.CROSS_REPLICA: "replica",
    Mode.CROSS_REPLICA_AND_PARTITION: "replica",
    Mode.CROSS_PARTITION: "partition",
    Mode.FLATTENED_ID: "device",
}

# From one mode to another, as far as attributes decide.
_WAYS = {
    (Mode.CROSS_REPLICA, Mode.CROSS_PARTITION): (
        "without channel_id the ids are replicas: give it one"
    ),
    (Mode.CROSS_REPLICA, Mode.FLATTENED_ID): (
        "the ids are replicas: give it channel_id and use_global_device_ids=true"
    ),
    (Mode.CROSS_REPLICA_AND_PARTITION, Mode.FLATTENED_ID): (
        "the ids are replicas: give it use_global_device_ids=true"
    ),
    (Mode.CROSS_PARTITION, Mode.CROSS_REPLICA): (
        "with channel_id the ids are partitions: leave it out"
    ),
}


def check_groups(groups: Groups, mode: Mode, limit: int | None, *, even: bool) -> Iterator[Problem]:
    """Problems of one written set; *limit* is the count of ids in *mode*, None if nobody stated it.

    Without a limit the set must cover 0 to its own highest id.
    """
    unit = _UNIT[mode]
    ids = sorted(chain.from_iterable(groups))
    span = len(ids) if limit is None else limit
    lengths = set(map(len, groups))
    fit = 0 not in lengths and (len(lengths) == 1 or not even)
    if fit and len(ids) == span and ids == list(range(span)):
        return  # an exact cover, as nearly always
    counts = Counter(ids)
    for place, group in enumerate(groups):
        if not group:
            yield "RM104", f"group {place} is empty: each group needs a member"
    sizes = sorted({len(group) for group in groups if group})
    if even and len(sizes) > 1:
        yield "RM104", f"groups of {_join(sizes)} members, and this op needs equal ones"
    if repeated := [i for i, count in counts.items() if count > 1]:
        yield "RM102", f"{_units(unit, _ids(repeated))} repeated"
    most = MAX_IDS if limit is None else limit
    beyond = [i for i in counts if not 0 <= i < most]
    span = 1 + max((i for i in counts if i < most), default=-1) if limit is None else limit
    if beyond:
        yield "RM101", f"{_units(unit, _ids(beyond))} out of range: {_range(unit, limit)} ({mode})"
    if missing := _missing(counts, span):
        told = "" if limit is None else f" of {limit}"
        yield "RM103", f"{_units(unit, missing)}{told} missing ({mode})"


def check_pairs(pairs: Pairs, mode: Mode, limit: int | None, *, times: int) -> Iterator[Problem]:
    """Problems of one written set of pairs; a source and a target may stand *times* times."""
    unit = _UNIT[mode]
    if not pairs:
        yield "RM207", "no source-target pairs: nothing moves"
    for code, what, ids in (
        ("RM201", "source", [source for source, _ in pairs]),
        ("RM202", "target", [target for _, target in pairs]),
    ):
        if repeated := [i for i, count in Counter(ids).items() if count > times]:
            often = "once" if times == 1 else "twice"
            yield code, f"{_units(what, _ids(repeated))} repeated: each may stand {often}"
    named = {i for pair in pairs for i in pair}
    most = MAX_IDS if limit is None else limit
    if beyond := [i for i in named if not 0 <= i < most]:
        yield "RM203", f"{_units(unit, _ids(beyond))} out of range: {_range(unit, limit)} ({mode})"


def meant(opcode: bytes, mode: Mode, counts: Counts, ids: Iterable[int]) -> str | None:
    """The attributes under which *ids*, out of range in *mode*, would fit; None where none do.

    Which ids they are hangs on attributes that are easily lost: a channel makes them partitions,
    and use_global_device_ids devices.
    """
    with_channel = Mode.FLATTENED_ID if opcode in HAS_FLAG else Mode.CROSS_PARTITION
    other = Mode.CROSS_REPLICA if mode is Mode.CROSS_PARTITION else with_channel
    limit = counts.limit(other)
    if (mode, other) not in _WAYS or not all(0 <= i < limit for i in ids):
        return None
    return f"{_WAYS[mode, other]} if the {limit} {_UNIT[other]}s are meant"


def _missing(present: Counter[int], span: int) -> str:
    if len(present) == span and all(0 <= i < span for i in present):
        return ""
    # The set names far fewer ids than span may be, so walk the gaps and not the span.
    inside = sorted(i for i in present if 0 <= i < span)
    gaps = []
    low = 0
    for i in (*inside, span):
        if i > low:
            gaps.append(f"{low}-{i - 1}" if i - 1 > low else f"{low}")
        low = i + 1
    return ",".join(gaps[:_SHOWN]) + (",..." if len(gaps) > _SHOWN else "")


_SHOWN = 16


def _range(unit: str, limit: int | None) -> str:
    if limit is None:
        return f"ids run from 0 to {MAX_IDS - 1}"
    return f"there is 1 {unit}" if limit == 1 else f"there are {limit} {unit}s"


def _units(unit: str, ids: str) -> str:
    return f"{unit} {ids}" if ids.lstrip("-").isdecimal() else f"{unit}s {ids}"


def _join(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, numbers))


def _ids(ids: list[int]) -> str:
    negative = sorted(i for i in ids if i < 0)
    text = ",".join([*map(str, negative), fold(i for i in ids if i >= 0)]).strip(",")
    return text if len(text) < 80 else text[:77] + "..."
