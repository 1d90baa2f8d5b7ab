"""Which file speaks for which devices, and what happens to files that do not read."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster import load as loading
from rankmuster.errors import InvalidProgram, UnreadableInput
from rankmuster.formats import json_program
from rankmuster.load import LoadOptions, files, load, process_path, read_path
from rankmuster.load.devices import Place, seat
from rankmuster.load.sources import find, numbers


def program(world: int | None = 4, **rest: object) -> bytes:
    ids = list(range(world or 4))
    op = {"kind": "all_reduce", "group": 0, "elements": 8, "dtype": "f32", "reduce": "add"}
    value = {"format": "rankmuster.program/1", "replica_groups": [[ids]], "ops": [op], **rest}
    return json.dumps(value | ({"world_size": world} if world else {})).encode()


def write(folder: Path, names: str, data: bytes | None = None) -> None:
    for name in names.split():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(program() if data is None else data)


def seats(*arguments: str, **options: object) -> list[tuple[str, tuple[int, ...]]]:
    (loaded,) = load(arguments, LoadOptions(**options))
    return [(Path(copy.path).name, copy.devices) for copy in loaded.copies]


def codes(*arguments: str, **options: object) -> list[str]:
    (loaded,) = load(arguments, LoadOptions(**options))
    return [found.code for found in loaded.findings]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_file_is_every_devices(here: Path) -> None:
    """One file stands for the whole world and infers nothing."""
    write(here, "step.json")
    assert seats("step.json") == [("step.json", (0, 1, 2, 3))]
    assert codes("step.json") == []


@pytest.mark.parametrize(
    "name",
    ["proc0.json", "a_rank_7.json", "3.json", "module_0.json", "a.0.json.gz", "proc1/a.json"],
)
def test_one_file_of_many_is_asked_about(here: Path, name: str) -> None:
    """A single file stands for all, and where its name says that there are more, that is said."""
    write(here, name, gzip.compress(program()) if name.endswith("gz") else None)
    (loaded,) = load([name])
    assert [copy.devices for copy in loaded.copies] == [(0, 1, 2, 3)]
    assert [(found.code, found.severity) for found in loaded.findings] == [("RM704", "info")]
    assert loaded.findings[0].message.startswith(f"{name} is taken as the program of all 4 devices")


@pytest.mark.parametrize("name", ["llama_3.json", "v1.0.json", "step10.json", "user1home/a.json"])
def test_a_number_in_a_name_is_not_always_a_process(here: Path, name: str) -> None:
    """Versions and sizes of models say nothing about processes."""
    write(here, name)
    assert codes(name) == []


def test_what_one_file_is_for_may_be_stated(here: Path) -> None:
    """Whoever says its devices, or names it with {rank}, is not asked."""
    write(here, "rank0.json")
    assert codes("rank0.json", devices=(0, 1, 2, 3)) == []
    assert codes("rank{rank}.json", world=1) == []


def test_a_file_for_each_device(here: Path) -> None:
    """A folder of numbered files is one file per device, rank 10 after rank 9."""
    write(here, " ".join(f"d/rank{n}.json" for n in range(12)), program(12))
    assert seats("d") == [(f"rank{n}.json", (n,)) for n in range(12)]
    assert codes("d") == []


def test_files_that_divide_the_world(here: Path) -> None:
    """Two files for four devices stand for two consecutive ones each, and that is said."""
    write(here, "d/step.0.json d/step.1.json")
    assert seats("d") == [("step.0.json", (0, 1)), ("step.1.json", (2, 3))]
    assert codes("d") == ["RM704"]


def test_a_gap_is_absent_and_never_renumbered(here: Path) -> None:
    """Process 2 without a file is absent; process 3 stays process 3."""
    write(here, "d/0.json d/1.json d/3.json")
    (loaded,) = load(["d/{rank}.json"])
    assert [copy.devices for copy in loaded.copies] == [(0,), (1,), (3,)]
    assert loaded.absent == (2,)
    assert [found.code for found in loaded.findings] == ["RM601"]


def test_the_end_of_a_numbered_row_may_be_missing(here: Path) -> None:
    """Seven numbered files of eight leave the eighth device absent."""
    write(here, " ".join(f"d/{n}.json" for n in range(7)), program(8))
    assert load(["d"])[0].absent == (7,)


def test_unnumbered_files_go_by_turn(here: Path) -> None:
    """Files without numbers are taken in argument order, and the report says so."""
    write(here, "good.json bad.json", program(2))
    assert seats("good.json", "bad.json") == [("good.json", (0,)), ("bad.json", (1,))]
    assert codes("good.json", "bad.json") == ["RM704"]


def test_files_that_do_not_divide_need_ranks(here: Path) -> None:
    """Three nameless files for four devices are refused with the option that settles it."""
    write(here, "a.json bb.json ccc.json")
    with pytest.raises(UnreadableInput, match=r"3 files .* 4 devices .* --ranks"):
        load(["a.json", "bb.json", "ccc.json"])


def test_ranks_say_who_runs_what(here: Path) -> None:
    """--ranks gives device ids to files; ids that nobody names are absent."""
    write(here, "a.json b.json")
    ranks = (((0, 3), "a.json"), ((1,), "b.json"))
    (loaded,) = load([], LoadOptions(ranks=ranks))
    assert [copy.devices for copy in loaded.copies] == [(0, 3), (1,)]
    assert loaded.absent == (2,)


@pytest.mark.parametrize("ranks", [(((0, 9), "a.json"),), (((0,), "a.json"), ((0,), "a.json"))])
def test_ranks_must_make_sense(here: Path, ranks: tuple) -> None:
    """An id outside the world, and one that is named twice, are refused."""
    write(here, "a.json")
    with pytest.raises(UnreadableInput, match="device"):
        load([], LoadOptions(ranks=ranks))


def test_the_rank_in_a_file_wins_over_its_name(here: Path) -> None:
    """A per-process file that names its process is that process's, however many its devices."""
    write(here, "d/0.json", program(2, rank=1))
    write(here, "d/1.json", program(2, rank=0))
    assert seats("d") == [("0.json", (1,)), ("1.json", (0,))]
    eight = LoadOptions(world=16, devices_per_process=(8,))
    (loaded,) = load(["d/{rank}.json"], eight)
    assert [copy.devices for copy in loaded.copies] == [tuple(range(8, 16)), tuple(range(8))]
    assert loaded.absent == ()


def test_two_files_for_one_device(here: Path) -> None:
    """Two files with one number are a finding, and the first is kept."""
    write(here, "d/3.json d/03.json")
    assert [found for found in codes("d/{rank}.json") if found == "RM605"] == ["RM605"]


def test_a_number_outside_the_world(here: Path) -> None:
    """Numbers that start from 1 leave 0 absent and the last one outside."""
    write(here, "d/1.json d/2.json", program(2))
    assert codes("d") == ["RM101", "RM601"]


def test_unequal_processes(here: Path) -> None:
    """One count for each process gives each its own number of devices."""
    write(here, "d/0.json d/1.json")
    assert seats("d", devices_per_process=(3, 1)) == [("0.json", (0, 1, 2)), ("1.json", (3,))]


@pytest.mark.parametrize("names", ["a.json", "d/0.json d/1.json"])
@pytest.mark.parametrize(
    ("counts", "what"),
    [
        ((3,), "3: processes of 3 devices do not make up a world of 4"),
        ((3, 3), "3,3: 2 processes hold 6 devices, and the world holds 4"),
    ],
)
def test_processes_that_cannot_make_up_the_world_are_refused(
    here: Path, names: str, counts: tuple[int, ...], what: str
) -> None:
    """Nothing is seated in parts of processes, however many files there are."""
    write(here, names)
    with pytest.raises(UnreadableInput, match=f"^--devices-per-process {what}; let them fit"):
        load(names.split(), LoadOptions(devices_per_process=counts))


def test_an_inferred_world_is_made_of_whole_processes(here: Path) -> None:
    """Processes of three devices that name four ids make a world of six."""
    write(here, "a.json", program(None))
    (loaded,) = load(["a.json"], LoadOptions(devices_per_process=(3,)))
    assert (loaded.world.size, loaded.world.source) == (6, "inferred")


def test_a_malformed_file_is_a_finding(here: Path) -> None:
    """A broken file among good ones leaves the others to be compared."""
    write(here, "d/0.json d/1.json", program(2))
    write(here, "d/1.json", b'{"format": "rankmuster.program/1", ')
    (loaded,) = load(["d"])
    broken = [found for found in loaded.findings if found.code == "RM701"]
    assert [found.ranks for found in broken] == [(1,)]
    assert loaded.is_broken
    assert [copy.devices for copy in loaded.copies] == [(0,)]


def test_junk_with_a_programs_name_is_malformed(here: Path) -> None:
    """What is named like its neighbours counts as a program; a log file does not."""
    write(here, "d/0.json d/1.json", program(2))
    write(here, "d/1.json d/job.log", b"\x00\x01")
    assert codes("d") == ["RM704", "RM701"]


@pytest.mark.parametrize(
    ("names", "link"),
    [
        ("0.json", "1.json"),
        ("module_0001.jit_f.after_optimizations.txt", "module_0002.jit_g.after_optimizations.txt"),
    ],
)
def test_a_link_that_leads_nowhere_is_missed(here: Path, names: str, link: str) -> None:
    """A folder of links into a place that is gone holds no fewer programs: one cannot be read."""
    write(here / "dump", names)
    (here / "dump" / link).symlink_to("/no/such/place")
    with pytest.raises(UnreadableInput, match=f"{link}: no such file"):
        load(["dump"])


def test_a_link_that_leads_nowhere_and_is_no_program(here: Path) -> None:
    """Whatever else a folder holds is left out as ever."""
    write(here / "dump", "0.json 1.json")
    (here / "dump" / "latest").symlink_to("/no/such/place")
    assert seats("dump") == [("0.json", (0, 1)), ("1.json", (2, 3))]


def test_an_empty_file_is_malformed(here: Path) -> None:
    """A process that died while it wrote its file is named, and the others are compared."""
    write(here, "d/0.json d/1.json", program(2))
    write(here, "d/0.json", b"")
    assert codes("d") == ["RM701"]


def test_the_world_is_inferred_from_ids(here: Path) -> None:
    """Without a stated size the world holds just the ids that are named, and that is said."""
    write(here, "a.json", program(None))
    (loaded,) = load(["a.json"])
    assert (loaded.world.size, loaded.world.source) == (4, "inferred")


@given(
    numbers=st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True),
    ranked=st.booleans(),
    world=st.integers(1, 40),
    counts=st.one_of(
        st.just(()), st.tuples(st.integers(1, 5)), st.tuples(*[st.integers(1, 5)] * 3)
    ),
)
def test_every_device_is_seated_once_or_absent(
    numbers: list[int], ranked: bool, world: int, counts: tuple[int, ...]
) -> None:
    """However files are numbered, their devices never overlap, and the rest are absent."""
    places = [
        Place(path=str(n), rank=n) if ranked else Place(path=str(n), process=n) for n in numbers
    ]
    seating = seat(places, world, counts)
    devices = [device for block in seating.blocks for device in block.devices]
    assert sorted([*devices, *seating.absent]) == list(range(world))
    by_name = [Place(path=str(n), process=n) for n in numbers]
    assert seat(by_name, world, counts) == seating


REDUCED = """HloModule m, is_scheduled=true
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  p = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} all-reduce(p), replica_groups={}, to_apply=add
}
"""


@pytest.mark.parametrize(
    ("text", "members"),
    [
        (REDUCED, (0, 1, 2, 3)),
        (REDUCED.replace("groups={}", "groups={{1,0}}, channel_id=1"), (2, 3, 0, 1)),
        (REDUCED.replace("is_scheduled=true", "num_partitions=2"), (0,)),
    ],
)
def test_a_stated_world_fills_in_counts(here: Path, text: str, members: tuple) -> None:
    """--world is the product of the counts that an HLO text leaves out, and only of those."""
    write(here, "a.hlo", text.encode())
    (loaded,) = load(["a.hlo"], LoadOptions(world=4))
    (groups,) = loaded.copies[0].program.replica_groups
    assert groups.members[0] == members


@pytest.mark.parametrize(("world", "found"), [(4, []), (8, [("RM003", "warning")])])
def test_a_world_larger_than_the_programs_is_asked_about(
    here: Path, world: int, found: list[tuple[str, str]]
) -> None:
    """A file that states its world is not for a larger one, which a bring-up would refuse."""
    write(here, "a.json")
    (loaded,) = load(["a.json"], LoadOptions(world=world))
    assert [(each.code, each.severity) for each in loaded.findings] == found


def test_a_file_that_is_named_twice_is_taken_once(here: Path) -> None:
    """Two patterns of a shell may both match it; that is said, for it may be a slip."""
    write(here, "d/0.json d/1.json", program(2))
    (loaded,) = load(["d", "d/0.json"])
    assert [copy.devices for copy in loaded.copies] == [(0,), (1,)]
    said = [found.message for found in loaded.findings]
    assert said == ["named more than once, and taken once: d/0.json"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_without_a_size_is_read_to_its_end() -> None:
    """Those of /proc have none, and some that come over a network."""
    with files.contents("/proc/self/status") as data:
        assert data.startswith(b"Name:")


def test_an_enormous_world_is_refused(here: Path) -> None:
    """An id of 10^12 cannot make anybody build a world of that size."""
    write(here, "a.json", program(None, replica_groups=[[[0, 2_000_000]]]))
    told = r"2000001 devices .* a\.json names device 2000000 \(op 0 of 1"
    with pytest.raises(UnreadableInput, match=told):
        load(["a.json"])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rank0.json", "rank12.json"], [0, 12]),
        (["v2_rank0_8.json", "v2_rank1_8.json"], [0, 1]),
        (["step3.0.hlo", "step3.1.hlo"], [0, 1]),
        (["proc0/a.hlo", "proc1/a.hlo"], [0, 1]),
        (["a.hlo", "b.hlo"], None),
        (["a1b1.hlo", "a2b2.hlo"], None),
    ],
)
def test_numbers_in_names(names: list[str], expected: list[int] | None) -> None:
    """A number is a process's when it is tagged, or the only one in which names differ."""
    assert numbers(names) == expected


DUMPS = """
proc0/module_0000.jit_step.before_optimizations.txt
proc0/module_0000.jit_step.cpu_after_optimizations.txt
proc0/module_0000.jit_step.cpu_after_optimizations-buffer-assignment.txt
proc0/module_0003.jit_init.before_optimizations.txt
proc1/module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt
proc1/module_0009.jit_init.before_optimizations.txt
"""


def test_dump_folders_compare_like_named_modules(here: Path) -> None:
    """Modules are grouped by name over the processes; the latest stage counts, once."""
    write(here, DUMPS)
    write(here, "proc0.log", program())
    assert [
        (batch.module, [(source.path[2:], source.process) for source in batch.sources])
        for batch in find(["."])
    ] == [
        (
            "jit_step",
            [
                ("proc0/module_0000.jit_step.cpu_after_optimizations.txt", 0),
                ("proc1/module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt", 1),
            ],
        ),
        (
            "jit_init",
            [
                ("proc0/module_0003.jit_init.before_optimizations.txt", 0),
                ("proc1/module_0009.jit_init.before_optimizations.txt", 1),
            ],
        ),
    ]


def test_one_dump_folder_is_one_process(here: Path) -> None:
    """A module's number is no rank: one folder's modules are checked each by itself."""
    write(here, DUMPS)
    assert [(batch.module, len(batch.sources)) for batch in find(["proc0"])] == [
        ("jit_step", 1),
        ("jit_init", 1),
    ]
    assert find(["proc0"])[0].sources[0].process is None


def test_a_module_is_picked_by_name(here: Path) -> None:
    """--module reads one module of a dump; a wrong name is answered by the nearest."""
    write(here, DUMPS)
    assert [loaded.module for loaded in load(["."], LoadOptions(module="jit_init"))] == ["jit_init"]
    with pytest.raises(UnreadableInput, match="did you mean 'jit_step'"):
        load(["."], LoadOptions(module="jit_stp"))


def test_there_is_no_module_to_pick_outside_dumps(here: Path) -> None:
    """Files that XLA did not name have no modules, and no names to offer."""
    write(here, "step.json")
    with pytest.raises(UnreadableInput, match="no XLA dump") as no:
        load(["step.json"], LoadOptions(module="jit_step"))
    assert "known" not in str(no.value)


def test_process_path(here: Path) -> None:
    """A process finds its own file in a pattern, a folder, or the one that all share."""
    write(here, "d/0.json d/1.json one.json")
    assert process_path("d/{rank}.json", 1) == "d/1.json"
    assert process_path("d", 1) == "d/1.json"
    assert process_path("one.json", 5) == "one.json"
    with pytest.raises(UnreadableInput, match="no program for process 2"):
        process_path("d", 2)


def test_packed_files_and_pipes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gzip is unpacked, from a file and from standard input."""
    write(here, "a.json.gz", gzip.compress(program()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(program()))))
    assert read_path("a.json.gz") == read_path("-")


def test_pipes_are_taken_in_the_order_given(here: Path) -> None:
    """The numbers of descriptors, from 63 downwards in bash, are not those of processes."""
    ends = [os.pipe() for _ in range(2)]
    for _, write_end in ends:
        os.write(write_end, program())
        os.close(write_end)
    first, second = (str(read_end) for read_end, _ in ends)
    try:
        assert seats(f"/dev/fd/{second}", f"/dev/fd/{first}") == [(second, (0, 1)), (first, (2, 3))]
    finally:
        for read_end, _ in ends:
            os.close(read_end)


def test_unpacking_is_bounded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that unpacks into a huge one is refused before it does."""
    monkeypatch.setattr(files, "SPOOLED_BYTES_MAX", 1000)
    write(here, "bomb.gz", gzip.compress(b"HloModule m" + b" " * 100_000))
    with pytest.raises(UnreadableInput, match="more than 1000 bytes"):
        read_path("bomb.gz")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("cat /dev/zero", "not a program: it starts with"),
        ("yes", "not a program: it starts with"),
        ("gzip </dev/zero", "not a program: it starts with"),
        ("yes '{'", "at most 3000000 bytes"),
    ],
)
def test_what_has_no_end_is_refused_by_its_beginning(
    here: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    """No more of a pipe is kept than some reader would make something of."""
    monkeypatch.setattr(json_program, "MAX_BYTES", 3_000_000)
    monkeypatch.setattr(files, "SPOOLED_BYTES_MAX", 4_000_000)
    line = ["sh", "-c", f"exec {command}"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as endless:
        with pytest.raises(InvalidProgram, match=message):
            read_path(f"/dev/fd/{endless.stdout.fileno()}")
        endless.kill()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_is_refused_by_its_beginning(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """What is no file at all is no program, and need not be copied to see that."""
    monkeypatch.setattr(files, "SPOOLED_BYTES_MAX", 4_000_000)
    with pytest.raises(InvalidProgram, match="not a program: it starts with"):
        read_path(device)


def test_a_folder_of_other_things_says_what_they_are(here: Path) -> None:
    """Whoever points at a recorder's folder learns that, not that it is empty."""
    write(here, "dumps/rank_0 dumps/rank_1", b"\x80\x02}q\x00X\x09\x00\x00\x00pg_config")
    with pytest.raises(UnreadableInput, match=r"dumps/rank_0 is a Flight Recorder dump .* torchfr"):
        load(["dumps"])


def test_large_files_are_mapped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file above the bound is mapped and reads the same."""
    write(here, "a.json")
    expected = read_path("a.json")
    monkeypatch.setattr(files, "MAPPED_ABOVE_BYTES", 10)
    assert read_path("a.json") == expected


def test_a_file_that_is_still_being_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes its size while it is read is refused, read or mapped."""
    write(here, "a.json")
    monkeypatch.setattr(files, "MAPPED_ABOVE_BYTES", 10)
    with pytest.raises(UnreadableInput, match="while it was read"), files.contents("a.json"):
        os.truncate("a.json", 20)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("stp.json", r"stp.json: no such file; did you mean 'step.json'\?"),
        ("no/such.json", "no folder 'no'"),
        ("hollow", "no program in this folder"),
        ("x{rank}.json", "no file matches"),
        ("broken.gz", "broken gzip"),
        ("a\0b", "not a file name"),
    ],
)
def test_what_cannot_be_opened(here: Path, path: str, message: str) -> None:
    """Each input that is not there or not readable is named, with what to do."""
    write(here, "step.json")
    write(here, "hollow/readme.md", b"nothing")
    write(here, "broken.gz", gzip.compress(program())[:40])
    with pytest.raises(UnreadableInput, match=message):
        load([path])


def test_equal_files_are_read_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of equal content share one program, and progress counts files."""
    write(here, "d/0.json d/1.json", program(2))
    steps: list[tuple[int, int]] = []
    (loaded,) = load(["d"], on_read=lambda done, total: steps.append((done, total)))
    assert loaded.copies[0].program is loaded.copies[1].program
    assert steps == [(1, 2), (2, 2)]
    assert {"RM701", "RM702"} == loading.MALFORMED
