"""Layouts: sizes and offsets as they are stated, by the rules of C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rankmuster.abi import STRUCTS, Layout, struct_named
from rankmuster.abi.decode import rows
from rankmuster.abi.layout import at, declare
from rankmuster.errors import InvalidProgram
from rankmuster.formats.neff.header import unpack
from rankmuster.testing.neff import neff

SIZES = {
    "enc_glb_comm": 564408,
    "enc_comm": 561904,
    "enc_context": 6753648,
    "enc_nccl_comm_node": 88,
    "enc_comm_info": 72,
    "enc_peer_info": 24,
    "nccl_comm_info": 1376,
    "enc_neuron_device_info": 216,
    "enc_replica_group_info": 96,
    "enc_src_target_pairs_info": 80,
    "disjoint_set": 112,
    "connected_components": 168,
    "device_id_maps": 772,
    "soc_struct_t": 744,
    "tdrv_arch_ops": 488,
    "enc_alg_metaring": 37544,
    "enc_alg_hier": 386368,
    "enc_alg_mesh": 61568,
    "enc_alg_mesh_subtype": 3016,
    "enc_kangaring": 1060,
    "net_ops_info": 88,
    "enc_net_connector": 96,
    "nec_version_info": 56,
    "encd_context": 624,
    "enc_operation": 248,
    "barrier_table_entry": 32,
}
OFFSETS = [  # those that the seeds and the header pin down across nested structs
    ("enc_glb_comm", "reservation_id", 48),
    ("enc_glb_comm", "inc_recv_sem_values_buffer_size", 25 * 8),
    ("enc_glb_comm", "comm.id", 208 + 80),
    ("enc_glb_comm", "comm.ci.rank", 208 + 12),
    ("enc_glb_comm", "comm.topology", 208 + 560880),
    ("enc_glb_comm", "device_barrier_table", 70550 * 8),
    ("enc_glb_comm", "nccl_comm_node.local_barrier", 88 + 72),
    ("enc_comm", "hier.inter.mesh", 112720 + 136736 + 75168),
    ("enc_comm", "hier.pipeline[2].ring.type", 112720 + 273472 + 2 * 37624 + 80 + 37512),
    ("enc_comm", "mesh.mesh_subtype[19].alltoall_iteration", 499088 + 1136 + 19 * 3016 + 3008),
    ("enc_context", "comms[11].stream_id", 1520 + 11 * 561904 + 84),
    ("enc_context", "signature", 992),
    ("enc_replica_group_info", "signature", 23),
    ("enc_src_target_pairs_info", "signature", 48),
    ("connected_components", "ds.rank", 56),
    ("cc_resource_pool_context", "device_id_maps.rid_to_mla", 96 + 644),
]


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_sizes(name: str, size: int) -> None:
    """Each struct has the size of release 2.31.24."""
    assert STRUCTS[name].size == size


@pytest.mark.parametrize(("name", "path", "offset"), OFFSETS)
def test_cited_offsets(name: str, path: str, offset: int) -> None:
    """Members stand where the documents cite them, also deep inside."""
    assert STRUCTS[name].offset_of(path) == offset


def test_one_longer_member_makes_the_difference_to_the_header() -> None:
    """Six comm infos of 8 more bytes each are what the published header lacks (facts §1.1)."""
    assert STRUCTS["enc_glb_comm"].size - 6 * 8 == 564360
    assert STRUCTS["enc_comm"].size - 6 * 8 == 561856


def in_c(layout: Layout) -> str:
    types = {"bool": "uint8_t", "byte": "uint8_t", "char": "char", "i32": "int32_t"}
    types |= {f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)}
    lines, name = [], tag(layout)
    for each in layout.members:
        word = types.get(each.word, "void *")
        word = f"struct {tag(each.layout)}" if each.layout else word
        lines.append(f"{word} {each.name}{'' if each.count is None else f'[{each.count}]'};")
    checks = [f"_Static_assert(sizeof(struct {name}) == {layout.size}, {name!r});"] + [
        f"_Static_assert(offsetof(struct {name}, {m.name}) == {m.offset}, {m.name!r});"
        for m in layout.members
    ]
    return f"struct {name} {{ {' '.join(lines)} }};\n" + "\n".join(checks).replace("'", '"')


def tag(layout: Layout) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in layout.name)


def with_parts(layout: Layout, done: dict[str, str]) -> None:
    for each in layout.members:
        if each.layout:
            with_parts(each.layout, done)
    done.setdefault(tag(layout), in_c(layout))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_c_compiler_agrees(tmp_path: Path) -> None:
    """A compiler lays the same members out at the same offsets, in every struct."""
    done: dict[str, str] = {}
    for layout in STRUCTS.values():
        with_parts(layout, done)
    source = tmp_path / "layouts.c"
    source.write_text("#include <stddef.h>\n#include <stdint.h>\n" + "\n".join(done.values()))
    ran = subprocess.run(
        ["gcc", "-fsyntax-only", source], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_header_of_a_neff() -> None:
    """The struct and the reader's own format are one layout."""
    image = neff(header={"core_size": 2, "name": "step"})
    found = {row.field: row.value for row in rows(STRUCTS["neff_header"], image)}
    header = unpack(image[:1024])
    assert found["hash"] == header.digest.hex()
    assert (found["pkg_version"], found["data_size"]) == (2, header.data_size)
    assert (found["name"], found["lnc_size"]) == ("step", 2) == (header.name, header.core_size)


def test_a_wrong_table_fails_at_once() -> None:
    """An offset that the rules of C do not give is an assertion."""
    with pytest.raises(AssertionError, match=r"wrong\.b is at 8, not 5"):
        declare("wrong", 16, at(0, "a", "u64"), at(5, "b", "u32"))
    with pytest.raises(AssertionError, match="wrong has 24 B, not 20"):
        declare("wrong", 20, at(0, "a", "u64"), at(8, "b", "u32"))


def test_what_nobody_published_is_raw_bytes() -> None:
    """A hole between known members becomes bytes; C's own padding does not."""
    layout = declare("holed", 24, at(0, "a", "u8"), at(4, "b", "u32"), at(20, "c", "u32"))
    names = [(each.name, each.offset, each.size) for each in layout.members]
    assert names == [("a", 0, 1), ("b", 4, 4), ("not_public_8", 8, 12), ("c", 20, 4)]


def test_an_unknown_struct_is_answered_by_the_nearest() -> None:
    """A slip in a name gets the name that was meant."""
    with pytest.raises(InvalidProgram, match="did you mean 'enc_glb_comm'"):
        struct_named("enc_glob_comm")
    with pytest.raises(KeyError):
        STRUCTS["enc_glb_comm"].offset_of("comm.nothing")
    with pytest.raises(KeyError):
        STRUCTS["enc_glb_comm"].offset_of("")
