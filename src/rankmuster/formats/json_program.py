"""`rankmuster.program/1`: the JSON that people write and every other format can be turned into.

Bytes in, a `Program` out, and back. What the ids mean in a world (out of range, repeated, missing)
is for `verify`; here they are whole numbers of 32 bits.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from rankmuster.errors import InvalidProgram, UnsupportedFormat, did_you_mean
from rankmuster.formats.foreign import object_with
from rankmuster.formats.json_fields import (
    I63,
    U32,
    Fault,
    a_list,
    an_object,
    check_keys,
    quote,
    required,
    whole,
)
from rankmuster.formats.json_op import Tables, read_op
from rankmuster.formats.json_text import Buffer, Path, line_and_column, locate, show
from rankmuster.group import GroupTable
from rankmuster.program import REDUCING, WITHOUT_DATA, Branch, Loop, Node, Op, OpKind, Program

T = TypeVar("T")
FORMAT = "rankmuster.program/1"
MAX_BYTES = 1 << 26
MAX_DEPTH = 64  # of loops and branches inside one another

PROGRAM_KEYS = frozenset(
    {"format", "world_size", "num_streams", "replica_groups", "src_target_pairs", "ops", "rank"}
)
LOOP_KEYS = frozenset({"kind", "trips", "body"})
BRANCH_KEYS = frozenset({"kind", "on", "bodies"})
KINDS = (*(kind.value for kind in OpKind), "loop", "branch")

Id = Annotated[int, msgspec.Meta(ge=0, le=U32)]
GroupSets = tuple[tuple[tuple[Id, ...], ...], ...]
PairSets = tuple[tuple[tuple[Id, Id], ...], ...]


def sniff(data: Buffer) -> bool:
    """Whether *data* looks like a JSON object."""
    head = data[:4096].removeprefix(BOM_UTF8).lstrip()
    return head[:1] == b"{" and head[1:2] != b"\0"  # which UTF-16 has there


def read(data: Buffer, *, where: str = "", world: int | None = None) -> Program:
    """Read a program; *world* is its size where the file does not say.

    Raises `InvalidProgram` with the path in the text, and with line and column where they are
    known, for anything that is not a program of this version.
    """
    if len(data) > MAX_BYTES:
        raise InvalidProgram(f"a JSON program takes at most {MAX_BYTES} bytes", where=where)
    text = data[3:] if data[:3] == BOM_UTF8 else data

    def program(value: Any) -> Program:
        refuse_repeats(value, text)
        return to_program(value, world)

    try:
        return interpreted(text, where, program)
    except RecursionError:
        what = f"more than {MAX_DEPTH} loops and branches inside one another"
        raise InvalidProgram(what, where=where) from None


def interpreted(text: Buffer, where: str, make: Callable[[Any], T]) -> T:
    """What *make* makes of a JSON text; a `Fault` that it raises is told with its place.

    Raises InvalidProgram, and RecursionError for a deep text.
    """
    try:
        return make(parse(text, where))
    except Fault as fault:
        offset = locate(text, fault.path)
        line, column = (None, None) if offset is None else line_and_column(text, offset)
        what = f"{show(fault.path)} {fault.what}"
        raise fault.kind(what, where=where, line=line, column=column, fix=fault.fix) from None


def parse(text: Buffer, where: str) -> Any:
    """The JSON value of *text*; raises InvalidProgram for none, RecursionError for a deep one."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # Like "JSON is malformed: trailing comma in object (byte 8)", "Input data was truncated".
        what, _, at = str(error).removeprefix("JSON is malformed: ").partition(" (byte ")
        offset = int(at[:-1]) if at else len(text) if "truncated" in what else None
        line, column = (None, None) if offset is None else line_and_column(text, offset)
        raise InvalidProgram(f"not JSON: {what}", where=where, line=line, column=column) from None


def refuse_repeats(value: Any, text: Buffer) -> None:
    """Raise `Fault` where an object of *text*, whose *value* it is, has a key twice.

    The last would win, and half a program be lost. A colon behind a quote ends a key, unless it
    stands in a string, and then the quote has a backslash before it. Few write `"ops" : []`.
    """
    written = text[:]  # a map has no count()
    is_spaced = any(space in written for space in (b" :", b"\n:", b"\t:", b"\r:"))
    if is_spaced or written.count(b'":') - written.count(b'\\":') > keys_of(value):
        import json  # which, unlike msgspec, shows what it drops

        json.loads(written, object_pairs_hook=without_repeats)


def keys_of(entry: Any) -> int:
    """How many keys a program, op, loop or branch has, with those of the entries in its bodies."""
    if isinstance(entry, list):  # of bodies
        return sum(map(keys_of, entry))
    if not isinstance(entry, dict):
        return 0
    inner = (entry[key] for key in ("ops", "body", "bodies") if key in entry)
    return len(entry) + sum(map(keys_of, inner))


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object that a JSON text has *pairs* for. Raises `Fault` where it has a key twice."""
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise Fault((), f"holds an object with {key!r} twice: {quote(seen)}", "keep one")
        seen[key] = value
    return seen


def to_program(value: Any, world: int | None) -> Program:
    """The program that a JSON value describes."""
    entry = an_object(value, ())
    check_version(entry)
    if "create" in entry:
        raise Fault(("create",), "is reserved for a later version", "remove it")
    check_keys(entry, PROGRAM_KEYS, ())
    table = GroupTable(fold_equal=False)
    for members in id_sets(entry, "replica_groups", GroupSets):
        table.add_groups(members)
    for pairs in id_sets(entry, "src_target_pairs", PairSets):
        table.add_pairs(pairs)
    tables = Tables(len(table.replica_groups), len(table.src_target_pairs))
    claimed = whole(entry, "world_size", (), low=1)
    return Program(
        format="json",
        replica_groups=tuple(table.replica_groups),
        src_target_pairs=tuple(table.src_target_pairs),
        ops=nodes(required(entry, "ops", ()), ("ops",), tables, 0),
        world_size=world if claimed is None else claimed,
        world_source="file" if claimed is not None else "option" if world else "inferred",
        num_streams=whole(entry, "num_streams", (), low=1) or 1,
        rank=whole(entry, "rank", ()),
    )


def check_version(entry: Mapping[str, Any]) -> None:
    """Refuse what is not this version of the format."""
    if "format" not in entry:
        raise without_format(entry)
    claimed = entry["format"]
    if claimed == FORMAT:
        return
    what = f"is {quote(claimed)}, not {FORMAT!r}"
    newer = isinstance(claimed, str) and claimed.startswith("rankmuster.program/")
    raise Fault(("format",), what, kind=UnsupportedFormat if newer else InvalidProgram)


def without_format(entry: Mapping[str, Any]) -> Fault:
    """An object that does not say what it is: another tool's, or ours without that line."""
    if found := object_with(entry.keys()):
        return Fault((), f"is no program: it is {found.what}", found.fix)
    return Fault((), "needs 'format'", f'add "format": "{FORMAT}", if that is what it is')


def id_sets(entry: Mapping[str, Any], key: str, shape: Any) -> Any:
    """A table of sets, three levels deep; an absent one is empty."""
    sets = entry.get(key, [])
    try:
        return msgspec.convert(sets, shape, strict=True)
    except msgspec.ValidationError as error:
        # Like "Expected `int` >= 0 - at `$[0][0][1]`".
        _, _, at = str(error).rpartition("$")
        steps = tuple(int(step) for step in re.findall(r"\[(\d+)\]", at))
    for step in steps:
        sets = sets[step]
    wanted = f"a list: {key} holds sets, sub-groups and device ids, three levels deep"
    if len(steps) == 3:
        wanted = f"a device id from 0 to {U32}"
    elif isinstance(sets, list):
        wanted = "a pair [source, target]"
    raise Fault((key, *steps), f"is {quote(sets)}, not {wanted}")


def nodes(value: Any, path: Path, tables: Tables, depth: int) -> tuple[Node, ...]:
    """A body: a list of ops, loops and branches."""
    if depth > MAX_DEPTH:
        raise Fault(path, f"lies inside more than {MAX_DEPTH} loops and branches")
    entries = enumerate(a_list(value, path))
    return tuple(node(each, (*path, number), tables, depth) for number, each in entries)


def node(value: Any, path: Path, tables: Tables, depth: int) -> Node:
    """One op, loop or branch."""
    entry = an_object(value, path)
    kind = required(entry, "kind", path)
    if kind not in KINDS:
        near = did_you_mean(kind, KINDS) if isinstance(kind, str) else ""
        raise Fault((*path, "kind"), f"is {quote(kind)}", near)
    if kind == "loop":
        check_keys(entry, LOOP_KEYS, path)
        required(entry, "trips", path)
        body = nodes(required(entry, "body", path), (*path, "body"), tables, depth + 1)
        return Loop(trips=whole(entry, "trips", path, high=I63), body=body)
    if kind == "branch":
        return branch(entry, path, tables, depth)
    return read_op(OpKind(kind), entry, path, tables)


def branch(entry: Mapping[str, Any], path: Path, tables: Tables, depth: int) -> Branch:
    """A branch with its bodies."""
    check_keys(entry, BRANCH_KEYS, path)
    on = required(entry, "on", path)
    if on not in ("rank", "data"):
        raise Fault((*path, "on"), f"is {quote(on)}, not 'rank' or 'data'")
    here = (*path, "bodies")
    bodies = enumerate(a_list(required(entry, "bodies", path), here))
    return Branch(
        on=on,
        bodies=tuple(nodes(body, (*here, number), tables, depth + 1) for number, body in bodies),
    )


def write(program: Program) -> bytes:
    """The program as JSON that reads back to the same ops and sets.

    Findings, the module's name and what the first format did not record have no place in it.
    Raises ValueError for loops and branches nested deeper than `read` allows.
    """
    head = {"format": FORMAT, "world_size": program.world_size, "num_streams": program.num_streams}
    body = {
        "rank": program.rank,
        "replica_groups": [groups.members for groups in program.replica_groups],
        "src_target_pairs": [edges.pairs for edges in program.src_target_pairs],
        "ops": [to_entry(each, 0) for each in program.ops],
    }
    return msgspec.json.encode({k: v for k, v in (head | body).items() if v is not None})


def to_entry(each: Node, depth: int) -> dict[str, Any]:
    """A node as its JSON object."""
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} loops and branches inside one another")
    if isinstance(each, Loop):
        body = [to_entry(inner, depth + 1) for inner in each.body]
        return {"kind": "loop", "trips": each.trips, "body": body}
    if isinstance(each, Branch):
        bodies = [[to_entry(inner, depth + 1) for inner in body] for body in each.bodies]
        return {"kind": "branch", "on": each.on, "bodies": bodies}
    return op_entry(each)


def op_entry(each: Op) -> dict[str, Any]:
    """An op as its JSON object, without what is absent."""
    entry = {key: getattr(each, key) for key in each.__struct_fields__}
    entry = {key: value for key, value in entry.items() if value not in (None, "")}
    del entry["elements"], entry["dtype"]
    if each.kind not in WITHOUT_DATA:
        entry["elements"] = only(each.elements or (0,))
        entry["dtype"] = only(each.dtype or ("unknown",))
    if each.kind in REDUCING:
        entry["reduce"] = each.reduce
    return entry


def only(values: tuple[Any, ...]) -> Any:
    """A single value by itself, several as they are."""
    return values[0] if len(values) == 1 else values
