"""One op of a JSON program: its place, its payload and what it may say besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rankmuster.errors import did_you_mean
from rankmuster.formats.json_fields import (
    I63,
    Fault,
    a_list,
    check_keys,
    in_range,
    quote,
    required,
    text_of,
    whole,
)
from rankmuster.formats.json_text import Path
from rankmuster.program import (
    DTYPE_SPELLINGS,
    DTYPES,
    ON_PAIRS,
    POINT_TO_POINT,
    REDUCE_OPS,
    REDUCE_SPELLINGS,
    REDUCING,
    WITHOUT_DATA,
    Op,
    OpKind,
)

CUSTOM = "custom:"
"""Starts the reduce op of a computation that is none of the standard ones."""

OP_KEYS = frozenset(Op.__struct_fields__)
MAY_REDUCE = REDUCING | {OpKind.WINDOW, OpKind.OTHER}


class Tables(NamedTuple):
    """How many sets the file declares, for checking what its ops refer to."""

    group: int
    pairs: int


def read_op(kind: OpKind, entry: Mapping[str, Any], path: Path, tables: Tables) -> Op:
    """The op that an object describes; raises `Fault` with the path of what is wrong."""
    check_keys(entry, OP_KEYS, path)
    group, pairs = place(kind, entry, path, tables)
    elements, dtype = ((), ()) if kind in WITHOUT_DATA else payload(entry, path)
    peer = whole(entry, "peer", path)
    if peer is not None and kind not in POINT_TO_POINT:
        raise Fault((*path, "peer"), f"has no meaning for {kind}", "only send and recv have a peer")
    if peer is None and kind in POINT_TO_POINT and group is not None:
        raise Fault(path, f"needs 'peer', the device that the {kind} meets")
    return Op(
        kind=kind,
        group=group,
        pairs=pairs,
        elements=elements,
        dtype=dtype,
        reduce=reduce_op(kind, entry, path),
        root=whole(entry, "root", path),
        dimension=whole(entry, "dimension", path),
        input_splits=splits(entry, "input_splits", path),
        output_splits=splits(entry, "output_splits", path),
        peer=peer,
        stream=whole(entry, "stream", path),
        label=label_of(entry, path),
        name=text_of(entry, "name", path) or "",
        source=text_of(entry, "source", path) or "",
    )


def place(
    kind: OpKind, entry: Mapping[str, Any], path: Path, tables: Tables
) -> tuple[int | None, int | None]:
    """The group or the pairs that an op runs on; exactly one is not None."""
    group, pairs = (whole(entry, key, path) for key in Tables._fields)
    if group is not None and pairs is not None:
        raise Fault(path, "has both 'group' and 'pairs'", "keep the one that it runs on")
    key = "group" if pairs is None else "pairs"
    number = group if pairs is None else pairs
    if kind not in POINT_TO_POINT and key != (wanted := "pairs" if kind in ON_PAIRS else "group"):
        if number is not None:
            raise Fault((*path, key), f"has no meaning for {kind}", f"it needs {wanted!r}")
        key = wanted
    if number is None:
        raise Fault(path, f"needs {key!r}, the number of the set that the {kind} runs on")
    if number >= (count := getattr(tables, key)):
        table = "replica_groups" if key == "group" else "src_target_pairs"
        raise Fault((*path, key), f"is {number}, and {table} holds {count}", "count from 0")
    return group, pairs


def payload(entry: Mapping[str, Any], path: Path) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The element count and element type of each operand."""
    counts, names = (required(entry, key, path) for key in ("elements", "dtype"))
    if isinstance(counts, list) != isinstance(names, list):
        raise Fault(path, "has a list in one of 'elements' and 'dtype'", "write both as lists")
    if not isinstance(counts, list):
        counts, names = [counts], [names]
    if len(counts) != len(names) or not counts:
        lengths = f"{len(counts)} elements and {len(names)} dtypes"
        raise Fault(path, f"has {lengths}", "give one of each per operand")
    here = ((*path, "elements"), (*path, "dtype"))
    return (
        tuple(in_range(count, here[0], 0, I63) for count in counts),
        tuple(element_type(name, here[1]) for name in names),
    )


def element_type(name: Any, path: Path) -> str:
    """A type's HLO name; common spellings of it are accepted (facts E1)."""
    if not isinstance(name, str):
        raise Fault(path, f"is {quote(name)}, not the name of a type")
    known = DTYPE_SPELLINGS.get(name.lower(), name.lower())
    if known not in DTYPES:
        raise Fault(path, f"is {quote(name)}", did_you_mean(name, DTYPES | set(DTYPE_SPELLINGS)))
    return known


def reduce_op(kind: OpKind, entry: Mapping[str, Any], path: Path) -> str | None:
    """The op that a reducing op reduces with; null where that is not recorded (RM706)."""
    name = required(entry, "reduce", path) if kind in REDUCING else entry.get("reduce")
    if name is None:
        return None
    here = (*path, "reduce")
    if kind not in MAY_REDUCE:
        raise Fault(here, f"has no meaning for {kind}", "remove it")
    if not isinstance(name, str):
        raise Fault(here, f"is {quote(name)}, not the name of a reduce op")
    known = REDUCE_SPELLINGS.get(name.lower(), name.lower())
    if known in REDUCE_OPS:
        return known
    if name.startswith(CUSTOM):
        return name
    near = did_you_mean(name, REDUCE_OPS | set(REDUCE_SPELLINGS))
    raise Fault(here, f"is {quote(name)}", f"{near} (a computation of your own is '{CUSTOM}...')")


def splits(entry: Mapping[str, Any], key: str, path: Path) -> tuple[int, ...] | None:
    """How many elements go to, or come from, each member; None where not said."""
    value = entry.get(key)
    if value is None:
        return None
    here = (*path, key)
    counts = enumerate(a_list(value, here))
    return tuple(in_range(count, (*here, number), 0, I63) for number, count in counts)


def label_of(entry: Mapping[str, Any], path: Path) -> str | None:
    """The tag of a message; MPI's are numbers."""
    value = entry.get("label")
    return str(value) if type(value) is int else text_of(entry, "label", path)
