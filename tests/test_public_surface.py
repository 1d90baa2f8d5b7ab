"""What `import rankmuster` offers: the names of the design, cheap to import, usable as written."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rankmuster as rm
from rankmuster.errors import InvalidProgram, UnreadableInput

TEXT = """{"format": "rankmuster.program/1", "world_size": 4, "replica_groups": [[[0, 1], [2, 3]]],
 "ops": [{"kind": "all_reduce", "group": 0, "elements": 8, "dtype": "f32", "reduce": "add"}]}"""
OTHER = TEXT.replace('"elements": 8', '"elements": 9')


class Compiled:
    """Stands for what JAX returns: it prints itself."""

    def as_text(self) -> str:
        return TEXT


def test_public_names() -> None:
    """Every public name is there, and no more than those."""
    assert set(rm.__all__) == {*rm.HOMES, "__version__"}
    assert {name for name in rm.__all__ if getattr(rm, name) is None} == set()
    assert set(rm.__all__) <= set(dir(rm))


def test_type_checkers_see_the_same_names() -> None:
    """What is imported for type checkers is what is imported on use."""
    tree = ast.parse(Path(str(rm.__file__)).read_text())
    static = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname
    }
    assert static == {name: f"rankmuster.{home}" for name, home in rm.HOMES.items()}


def test_no_module_hides_a_public_name() -> None:
    """Importing a module of the package never replaces a public function by that module."""
    modules = {module.name for module in pkgutil.iter_modules(rm.__path__)}
    assert modules & {*rm.__all__} == set()


def test_importing_is_cheap() -> None:
    """`import rankmuster` imports nothing but itself until a name is used."""
    code = "import sys, rankmuster; print([m for m in sys.modules if m.startswith('rankmuster.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['rankmuster.version']"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that is not public is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        importlib.import_module("rankmuster").chekc  # noqa: B018 the access is the test


def test_read_takes_whatever_holds_a_program(tmp_path: Path) -> None:
    """A path, its string, text, bytes and anything with as_text() read to one program."""
    path = tmp_path / "step.json"
    path.write_text(TEXT)
    first, *others = [rm.read(each) for each in (path, str(path), TEXT, TEXT.encode(), Compiled())]
    assert others == [first] * 4


def test_read_names_the_place() -> None:
    """Malformed text is an InvalidProgram with its line."""
    with pytest.raises(InvalidProgram) as caught:
        rm.read(TEXT[:-3])
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("given", "error"), [("no/such.json", UnreadableInput), (17, TypeError), ("", UnreadableInput)]
)
def test_read_refuses_the_rest(given: object, error: type[Exception]) -> None:
    """What is no program and no path is refused."""
    with pytest.raises(error):
        rm.read(given)


def test_check_one_program() -> None:
    """One program stands for the whole world."""
    report = rm.check([rm.read(TEXT)], world=4)
    assert (report.ok, report.verdict, report.basis) == (True, "agree", "one program")


def test_check_programs_in_order() -> None:
    """Several programs are taken in order, each for as many devices."""
    report = rm.check([rm.read(TEXT), OTHER], world=4)
    assert [row.devices for row in report.programs] == [(0, 1), (2, 3)]
    assert report.verdict == "agree"  # they differ, and share no communicator


def test_check_copies() -> None:
    """Copies say themselves which devices they stand for."""
    copies = [
        rm.ProgramCopy(program=rm.read(text), devices=devices)
        for text, devices in ((TEXT, (0, 2, 3)), (OTHER, (1,)))
    ]
    report = rm.check(copies)
    assert (report.verdict, report.world.size, report.errors[0].code) == ("differ", 4, "RM302")


@pytest.mark.parametrize(
    ("devices", "what"),
    [
        (((0, 1), (1, 2)), "device 1 is named for copy 0 and copy 1"),
        (((0, 4), (1,)), "device 4 for copy 0: the world holds 0-3"),
        (((0, -1), (1,)), "device -1 for copy 0: the world holds 0-3"),
    ],
)
def test_copies_have_to_fit(devices: tuple[tuple[int, ...], ...], what: str) -> None:
    """No device is two copies', and each is of the world."""
    copies = [rm.ProgramCopy(program=rm.read(TEXT), devices=each) for each in devices]
    with pytest.raises(UnreadableInput, match=what):
        rm.check(copies, world=4)


def test_devices_of_no_copy_are_absent() -> None:
    """As on the command line, whoever gave no program is missed."""
    report = rm.check([rm.ProgramCopy(program=rm.read(TEXT), devices=(0, 3))], world=4)
    assert (report.verdict, report.absent, report.errors[0].code) == ("undecided", (1, 2), "RM601")


@pytest.mark.parametrize(
    ("call", "error", "what"),
    [
        (lambda: rm.read(TEXT, replicas=0), ValueError, "replicas is a count from 1, not 0"),
        (lambda: rm.read(TEXT, partitions=-8), ValueError, "partitions is a count from 1, not -8"),
        (lambda: rm.check(TEXT, world=0), ValueError, "world is a count from 1, not 0"),
        (lambda: rm.check(TEXT, world="8"), TypeError, "integer"),
        (lambda: rm.check(TEXT, cluster=5), TypeError, "a cluster is called by a name, not 5"),
    ],
)
def test_wrong_arguments_are_named(call, error: type[Exception], what: str) -> None:
    """A count below one would make groups of nobody, which agree."""
    with pytest.raises(error, match=what):
        call()


def test_check_paths(tmp_path: Path) -> None:
    """Paths mean what they mean on the command line."""
    for name, text in (("0.json", TEXT), ("1.json", OTHER)):
        (tmp_path / name).write_text(text)
    assert len(rm.check([tmp_path]).programs) == 2
    assert len(rm.check([str(tmp_path / "{rank}.json")]).programs) == 2


def test_check_one_without_a_list(tmp_path: Path) -> None:
    """One path, program or text is not taken for a list of letters."""
    (tmp_path / "0.json").write_text(TEXT)
    (tmp_path / "1.json").write_text(OTHER)
    pattern = str(tmp_path / "{rank}.json")
    assert rm.check(pattern) == rm.check([pattern])
    alone = (TEXT, TEXT.encode(), rm.read(TEXT), tmp_path / "0.json", Compiled())
    assert [rm.check(each, world=4).verdict for each in alone] == ["agree"] * len(alone)


def test_check_on_a_cluster() -> None:
    """A cluster, or its name, makes the report say where the groups land."""
    report = rm.check([TEXT], world=4, cluster=rm.cluster("generic:2x2"))
    assert (report.cluster, bool(report.placement)) == ("generic:2x2", True)
    assert rm.check([TEXT], world=4, cluster="generic:2x2") == report


def test_check_refuses_what_it_cannot_seat() -> None:
    """Three programs cannot stand for four devices, and no program for none."""
    with pytest.raises(UnreadableInput, match="3 files"):
        rm.check([TEXT] * 3, world=4)
    with pytest.raises(ValueError, match="no programs"):
        rm.check([])
