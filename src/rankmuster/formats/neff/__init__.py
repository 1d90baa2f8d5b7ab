"""NEFF, the file that a Neuron compiler writes: its group sets and pairs, without its ops.

Where the ops are, in the engines' instruction streams, nobody has published; what the manifests say
of groups, streams, chips and the world is read and checked all the same (facts §5). Bytes in, a
`Program` out; the archive is read as a stream and never extracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rankmuster.errors import InvalidProgram
from rankmuster.finding import Finding, Severity, finding
from rankmuster.formats.json_text import Buffer
from rankmuster.formats.neff.archive import JSON_BYTES_MAX as JSON_BYTES_MAX
from rankmuster.formats.neff.archive import json_files
from rankmuster.formats.neff.header import HEADER_BYTES, read_header
from rankmuster.formats.neff.header import sniff as sniff
from rankmuster.formats.neff.manifest import ENTRY as ENTRY
from rankmuster.formats.neff.manifest import Fetch as Fetch
from rankmuster.formats.neff.manifest import Graph, Manifest, follow
from rankmuster.group import GroupTable, ReplicaGroups
from rankmuster.program import Program

NOT_RECORDED = frozenset(
    (
        *("kind", "elements", "dtype", "reduce", "root", "dimension"),
        *("input_splits", "output_splits", "peer", "trips", "order"),
    )
)
SUPPLY = "put its ops beside it as a JSON program, like model.neff.json beside model.neff"


def read(data: Buffer, *, where: str = "", world: int | None = None) -> Program:
    """Read a NEFF; *world* is its size where its graphs do not say.

    Raises `UnsupportedFormat` for a version or feature that is not public, and `InvalidProgram`
    for whatever else is wrong with it.
    """
    header = read_header(data, where)
    manifest = follow(json_files(data, HEADER_BYTES, where).get, where)
    program = to_program(manifest, world, where)
    return replace(program, name=header.name, core_size=header.core_size)


def read_unpacked(fetch: Fetch, *, where: str = "", world: int | None = None) -> Program:
    """Read a NEFF that somebody has unpacked; *fetch* answers a file's bytes, None for none.

    The header is gone then, and with it the logical-core size. Raises `InvalidProgram`.
    """
    return to_program(follow(fetch, where), world, where)


def to_program(manifest: Manifest, world: int | None, where: str) -> Program:
    """The program of all graphs together: they share one runtime context and its groups."""
    table = joined(manifest.graphs)
    size, is_stated = world_size(manifest.graphs, table, where)
    if not is_stated and world is not None:
        size = world
    return Program(
        format="neff",
        replica_groups=tuple(table.replica_groups),
        src_target_pairs=tuple(table.src_target_pairs),
        world_size=size,
        world_source="file" if is_stated else "inferred" if world is None else "option",
        num_streams=max(graph.num_streams for graph in manifest.graphs),
        target=manifest.target,
        not_recorded=NOT_RECORDED,
        findings=(*uneven(table), *without_ops()),
    )


def joined(graphs: Sequence[Graph]) -> GroupTable:
    """The sets of the first graph with their ids, then those that only later graphs have."""
    table = GroupTable(fold_equal=False)
    groups: set[object] = set()
    pairs: set[object] = set()
    for number, graph in enumerate(graphs):
        for members in graph.replica_groups:
            if not number or members not in groups:
                table.add_groups(members)
        for edges in graph.src_target_pairs:
            if not number or edges not in pairs:
                table.add_pairs(edges)
        groups.update(graph.replica_groups)
        pairs.update(graph.src_target_pairs)
    return table


def world_size(graphs: Sequence[Graph], table: GroupTable, where: str) -> tuple[int, bool]:
    """The largest of what is stated, listed in one set, and spanned by pairs; whether stated."""
    stated = {graph.world for graph in graphs if graph.world is not None}
    if len(stated) > 1:
        raise InvalidProgram(f"its graphs state worlds of {sorted(stated)} devices", where=where)
    listed = (workers(each) for each in table.replica_groups)
    spanned = (max(map(max, each.pairs), default=0) + 1 for each in table.src_target_pairs)
    return max((1, *stated, *listed, *spanned)), bool(stated)


def workers(groups: ReplicaGroups) -> int:
    """How many ids a set lists."""
    return sum(map(len, groups.members))


def uneven(table: GroupTable) -> Iterator[Finding]:
    """RM103: the vendor's tools refuse sets that list different numbers of workers."""
    counts = [workers(each) for each in table.replica_groups]
    for group, count in enumerate(counts):
        if count != counts[0]:
            what = f"group set {group} lists {count} devices, and group set 0 lists {counts[0]}"
            yield finding("RM103", what, severity=Severity.ERROR, group=group)
            return


def without_ops() -> Iterator[Finding]:
    """RM706 and RM312: groups are all that there is to check."""
    what = "a NEFF keeps its ops in engine instructions that no public source describes"
    yield finding("RM706", f"ops are not recorded: {what}", fix=SUPPLY)
    yield finding("RM312", "nothing but groups to compare: the ops are not recorded", fix=SUPPLY)


def with_ops(program: Program, beside: Program) -> Program:
    """A NEFF with the ops of the JSON program that stands beside it.

    Their sets, and their worlds where both state one, are the same; else the NEFF stays without
    ops, and RM006 says why.
    """
    why = difference(program, beside)
    if why:
        fix = "dump both from one compilation"
        return replace(program, findings=(*program.findings, finding("RM006", why, fix=fix)))
    said = beside if program.world_source == "inferred" else program
    kept = [each for each in program.findings if each not in without_ops()]
    return replace(
        program,
        ops=beside.ops,
        world_size=said.world_size,
        world_source=said.world_source,
        rank=beside.rank,
        not_recorded=beside.not_recorded,
        findings=(*kept, *beside.findings),
    )


def difference(program: Program, beside: Program) -> str:
    """In what a NEFF and the JSON program beside it contradict each other; empty for nothing."""
    if program.replica_groups != beside.replica_groups:
        return "the JSON program beside the NEFF has other replica_groups than it"
    ours, theirs = ([e.sorted_pairs for e in p.src_target_pairs] for p in (program, beside))
    if ours != theirs:
        return "the JSON program beside the NEFF has other src_target_pairs than it"
    is_stated = {program.world_source, beside.world_source} == {"file"}
    if is_stated and program.world_size != beside.world_size:
        sizes = f"{program.world_size} devices, the JSON program beside it for {beside.world_size}"
        return f"the NEFF is for {sizes}"
    return ""
