"""NEFF: groups, pairs, streams, chips and the world out of the manifests."""

from __future__ import annotations

import tarfile
from typing import Any

import msgspec
import pytest

from rankmuster import formats
from rankmuster.errors import InvalidProgram, UnsupportedFormat
from rankmuster.finding import Severity
from rankmuster.formats import neff as reader
from rankmuster.program import Program
from rankmuster.testing.neff import archive, definition, manifests, neff, packed

HALVES, STRIDED = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]


def read(data: bytes, **rest: Any) -> Program:
    return formats.read(data, where="model.neff", **rest)


def refused(data: bytes) -> str:
    with pytest.raises(InvalidProgram) as caught:
        read(data)
    return str(caught.value)


def chain(**files: Any) -> bytes:
    """A NEFF of JSON files given by name, "." written as "__"."""
    named = {name.replace("__", "."): msgspec.json.encode(value) for name, value in files.items()}
    return packed(archive(named))


@pytest.mark.parametrize("package", [1, 2])
def test_reads_groups_and_pairs(package: int) -> None:
    """Both package versions give the sets, in the order and with the ids of the tables."""
    data = neff([HALVES, STRIDED], [RING], package=package, num_streams=2, target="mariana")
    found = read(data)
    assert formats.sniff(data) == "neff"
    assert [groups.members for groups in found.replica_groups] == [
        ((0, 1), (2, 3)),
        ((0, 2), (1, 3)),
    ]
    assert [edges.pairs for edges in found.src_target_pairs] == [((0, 1), (1, 2), (2, 3), (3, 0))]
    assert (found.num_streams, found.target, found.name, found.ops) == (2, "mariana", "model", ())


def test_short_files_are_no_neff() -> None:
    """Fewer than sixteen bytes say nothing."""
    assert formats.sniff(neff()[:15]) is None
    assert formats.sniff(neff()[:16]) == "neff"


def test_ops_are_not_recorded() -> None:
    """No op is known: RM706 says so, and RM312 that nothing is left to compare."""
    found = read(neff([HALVES]))
    assert found.not_recorded == reader.NOT_RECORDED
    assert [each.code for each in found.findings] == ["RM706", "RM312"]


def test_equal_sets_keep_their_ids() -> None:
    """A table may name a set twice; both ids stay (facts E7)."""
    assert len(read(neff([HALVES, HALVES])).replica_groups) == 2


def test_the_header_says_the_logical_core_size() -> None:
    """0 in the header is unsaid, 3 is no size."""
    assert read(neff([HALVES], header={"core_size": 2})).core_size == 2
    assert read(neff([HALVES])).core_size is None
    assert "logical-core size 3 is neither of (1, 2)" in refused(
        neff([HALVES], header={"core_size": 3})
    )


@pytest.mark.parametrize(
    ("groups", "pairs", "said", "expected"),
    [
        ([HALVES], [], {}, (4, "inferred")),
        ([HALVES], [], {"world": 8}, (8, "option")),
        ([], [[[0, 6]]], {}, (7, "inferred")),
        ([], [], {}, (1, "inferred")),
        ([HALVES], [], {"stated": 16}, (16, "file")),
        ([HALVES], [], {"stated": 2}, (4, "file")),
    ],
)
def test_world_size(
    groups: Any, pairs: Any, said: dict[str, int], expected: tuple[int, str]
) -> None:
    """The largest of what is stated, what a set lists and what pairs span, and at least one."""
    stated = {"#rank_world_size": said.pop("stated")} if "stated" in said else {}
    found = read(neff(groups, pairs, **stated), **said)
    assert (found.world_size, found.world_source) == expected


def test_uneven_worker_counts_are_an_error() -> None:
    """Sets that list different numbers of devices are refused by the vendor, and by us."""
    (found, *_) = read(neff([HALVES, [[0, 1]]])).findings
    assert (found.code, found.severity, found.group) == ("RM103", Severity.ERROR, 1)
    assert found.message == "group set 1 lists 2 devices, and group set 0 lists 4"


def test_several_graphs_share_one_table() -> None:
    """Later graphs add the sets that the first has not; streams are the most of any."""
    definitions = [definition([HALVES], num_streams=1), definition([HALVES, STRIDED], [RING])]
    files = manifests([*definitions, definition([], [RING], num_streams=3)])
    found = read(packed(archive(files)))
    assert (len(found.replica_groups), len(found.src_target_pairs)) == (2, 1)
    assert found.num_streams == 3


def test_graphs_must_agree_on_the_world() -> None:
    """Two graphs that state two worlds are no program."""
    files = manifests([definition(**{"#rank_world_size": size}) for size in (4, 8)])
    assert "its graphs state worlds of [4, 8] devices" in refused(packed(archive(files)))


def test_graphs_must_agree_on_the_chips() -> None:
    """Kelf files for two generations are no program; "*" goes with any."""
    files = manifests([definition([HALVES])])
    nodes = [{"attrs": {"func_name": "__kelf", "kelf": f"kelf-{each}.json"}} for each in "ab"]
    files["neff.json"] = msgspec.json.encode({"nodes": nodes})
    for target, expected in (("*", "cayman"), ("sunda", None)):
        graphs = [{"name": "sg00", "definition": "sg00/def.json"}]
        files["kelf-b.json"] = msgspec.json.encode({"target": target, "graphs": graphs})
        data = packed(archive(files))
        if expected:
            assert (read(data).target, len(read(data).replica_groups)) == (expected, 1)
        else:
            assert "its graphs are for different chips: ['cayman', 'sunda']" in refused(data)


def test_a_definition_is_found_where_it_may_be_written() -> None:
    """As a path, as a name in the graph's folder, as the folder, or not at all."""
    for said in ("sg00/def.json", "def.json", "sg00", None):
        graph = {"name": "sg00"} | ({} if said is None else {"definition": said})
        files = manifests([definition([HALVES])])
        files["kelf-a.json"] = msgspec.json.encode({"target": "*", "graphs": [graph]})
        found = read(packed(archive(files)))
        assert (len(found.replica_groups), found.target) == (1, "*")


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({"package": 3}, "NEFF package version 3 is neither 1 nor 2"),
        ({"header": {"major": 3}}, "NEFF version 3.0 is newer than 2"),
        ({"header": {"feature_bits": 1 << 30}}, "features that nobody has published: bits [30]"),
    ],
)
def test_later_versions_are_unsupported(header: dict[str, Any], error: str) -> None:
    """What a later compiler may write is refused as such, status 10."""
    with pytest.raises(UnsupportedFormat) as caught:
        read(neff([HALVES], **header))
    assert error in str(caught.value)


def test_feature_bits_that_are_known_pass() -> None:
    """Bits below 27 and bit 63 are fine, and major 1 has no such rule."""
    read(neff(header={"feature_bits": 1 << 63 | (1 << 27) - 1}))
    read(neff(header={"feature_bits": 1 << 40, "major": 1}))


def test_the_hash_is_checked() -> None:
    """One flipped byte of the payload is told, with both hashes."""
    for package in (1, 2):
        data = bytearray(neff([HALVES], package=package))
        data[-1] ^= 1
        assert "the payload hashes to" in refused(bytes(data))


def test_sizes_are_checked() -> None:
    """A file that was cut off, or grew, says by how much."""
    data = neff([HALVES])
    assert f"the header says {len(data) - 1024} bytes follow it, and 100 do" in refused(data[:1124])
    assert "bytes of header, and this ends after 600" in refused(data[:600])
    assert "bytes follow it" in refused(data + b"x")


def test_a_payload_of_another_kind_is_refused() -> None:
    """Version 2 is gzip and version 1 is tar."""
    tar = packed(b"no archive".ljust(600), package=1)
    assert "package version 1 holds a tar archive" in refused(tar)
    gzipped = bytearray(neff([HALVES]))
    gzipped[1024] = 0
    assert "package version 2 holds a gzip archive" in refused(bytes(gzipped))


def kelf(graphs: list[Any]) -> bytes:
    """A NEFF whose kelf lists these graphs."""
    held = msgspec.json.encode({"target": "*", "graphs": graphs})
    return packed(archive(manifests([definition()]) | {"kelf-a.json": held}))


MISSING = [
    (chain(other={}), "neff.json: the NEFF does not hold this file"),
    (chain(neff__json=[]), "neff.json:1:1: the file is [], not an object"),
    (chain(neff__json={"nodes": [{"op": "null"}]}), "has no node whose attrs.func_name"),
    (
        chain(neff__json={"nodes": [{"attrs": {"func_name": "__kelf", "kelf": "../../etc/x"}}]}),
        "nodes[0].attrs.kelf is no name here: '../../etc/x' leads out",
    ),
    (
        chain(neff__json={"nodes": [{"attrs": {"func_name": "__kelf", "kelf": "k.json"}}]}),
        "model.neff/k.json: the NEFF does not hold this file",
    ),
    (neff(target="caiman"), "did you mean 'cayman'?"),
    (neff(target=4), "target is 4, no chip generation"),
    (kelf([]), "graphs lists 0 graphs, not 1 to 1024"),
    (kelf([{"name": ""}]), "graphs[0].name is empty"),
    (kelf([{"name": "sg01"}]), "sg01/def.json: the NEFF does not hold this file"),
    (neff([[[0, -1]]]), "replica_groups[0][0][1] is -1, not a device id"),
    (neff([], [[[0, 1, 2]]]), "src_target_pairs[0][0] is [0,1,2], not a pair"),
    (neff(num_streams="two"), "num_streams is 'two', not a whole number"),
    (neff(extra={"sg00/def.json": b"{"}), "sg00/def.json:1:2: not JSON"),
    (neff(extra={"sg00/def.json": b"[" * 100_000}), "nested too deeply"),
]


@pytest.mark.parametrize(("data", "error"), MISSING)
def test_a_broken_chain_names_its_link(data: bytes, error: str) -> None:
    """Each manifest that is missing or malformed is named, with the place in it."""
    assert error in refused(data)


def test_large_files_and_other_members_are_passed_over() -> None:
    """Weights, code and the compiler's wavegraph are never read into memory."""
    extra = {"sg00/pe.bin": bytes(3_000_000), "sg00/wavegraph-bin.json": b"not JSON at all"}
    assert len(read(neff([HALVES], extra=extra)).replica_groups) == 1


def test_long_names_read() -> None:
    """Names beyond the 100 bytes of a header come in pax or GNU extensions."""
    name = f"{'deep/' * 30}kelf-a.json"
    files = manifests([definition([HALVES])])
    files[name] = files.pop("kelf-a.json")
    node = {"attrs": {"func_name": "__kelf", "kelf": name}}
    files["neff.json"] = msgspec.json.encode({"nodes": [node]})
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        assert len(read(packed(archive(files, form=form))).replica_groups) == 1
