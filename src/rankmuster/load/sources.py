"""Which files the arguments of a command mean, and which process each file speaks for.

Names decide here; what the files hold is only asked where a folder mixes programs with others.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import PurePath

from rankmuster import formats
from rankmuster.errors import UnreadableInput
from rankmuster.formats.foreign import recognised
from rankmuster.load import neff
from rankmuster.load.files import STDIN, head, is_read_once, shown, translated

FILES_MAX = 1 << 17  # a file for each device of the largest machines in use
LOOKED_AT = 16  # files of a folder without programs, to say what they are
RANK = "{rank}"
# XLA names a dump after its module, the function and the stage (`--xla_dump_to`):
#   module_0004.jit_prog.cpu_after_optimizations.txt
#   module_0012.jit_step.sm_8.0_gpu_after_optimizations.txt
DUMP = re.compile(
    r"module_(?P<module>\d+)\.(?P<name>.+?)\."
    r"(?P<stage>before_optimizations|(?:sm_[\d.]+_)?\w*after_optimizations)\.txt(?:\.gz)?"
)
TAGGED = re.compile(r"(?:rank|proc|process|device|worker|node|host)[ _.-]?(\d{1,9})", re.IGNORECASE)
DIGITS = re.compile(r"\d+")
# 3.json is one of many by its name, and so is step_0.hlo; llama_3.hlo and v1.0.hlo are not.
ONE_OF_MANY = re.compile(r"(?:.*(?:[ _-]|(?<!\d)\.)(?=0+\b))?(\d{1,9})(?:\.[A-Za-z]\w*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One program file; `process` is the number that its name gives it, None without one."""

    path: str
    process: int | None = None

    @property
    def name(self) -> str:
        """The file's own name."""
        return PurePath(self.path).name

    @property
    def folder(self) -> str:
        """The folder that holds the file."""
        return str(PurePath(self.path).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The files that are compared with each other: in XLA dumps, the module that they all hold.

    `processes` are all the process numbers that were seen, also of those that lack this module.
    """

    sources: tuple[Source, ...]
    module: str = ""
    notes: tuple[str, ...] = ()
    processes: frozenset[int] = frozenset()


def find(arguments: Sequence[str]) -> tuple[Batch, ...]:
    """Expand files, folders, patterns with {rank} and "-" into batches of files to compare.

    Raises `UnreadableInput` for what is not there, for a folder or pattern without programs, and
    for XLA dumps mixed with other files.
    """
    notes: list[str] = []
    found: dict[str, Source] = {}
    again: dict[str, None] = {}
    for argument in arguments:
        for source in expand(argument, notes):
            if found.setdefault(source.path, source) is not source:
                again[shown(source.path)] = None
        if len(found) > FILES_MAX:
            raise UnreadableInput(f"more than {FILES_MAX} files", fix="name fewer")
    if again:
        notes.append(f"named more than once, and taken once: {several([*again])}")
    for path in neff.companions(found):
        del found[path]
    dumped = dumps(found)
    if not dumped:
        return (plain_batch(tuple(found.values()), notes),)
    if len(dumped) < len(found):
        other = next(path for path in found if path not in set(dumped))
        raise UnreadableInput(
            f"{shown(other)} is no XLA dump, and {shown(dumped[0])} is one",
            fix="check them by themselves, or say --ranks IDS=FILE for each",
        )
    return dump_batches(found.values(), notes)


def expand(argument: str, notes: list[str]) -> list[Source]:
    """The program files that one argument names."""
    if argument == STDIN:
        return [Source(path=argument)]
    if RANK in argument:
        return [inner for match in matches(argument) for inner in inside(match, notes)]
    return inside(Source(path=argument), notes)


def matches(pattern: str) -> list[Source]:
    """The files and folders that a pattern names, with the process number of each."""
    first, *rest = (re.escape(part) for part in pattern.split(RANK))
    number = re.compile(rf"{first}(?P<rank>\d{{1,9}}){'(?P=rank)'.join(rest)}")
    paths = glob.glob("*".join(map(glob.escape, pattern.split(RANK))))  # noqa: PTH207 as typed
    found = [
        Source(path=path, process=int(match["rank"]))
        for path in paths
        if (match := number.fullmatch(path))
    ]
    if not found:
        raise UnreadableInput(
            f"no file matches {shown(pattern)!r}", fix="{rank} stands for the process number"
        )
    return sorted(found, key=lambda source: (source.process, source.path))


def inside(source: Source, notes: list[str]) -> list[Source]:
    """*source* itself, or the programs in it where it is a folder."""
    with translated(source.path):
        mode = os.stat(source.path).st_mode  # noqa: PTH116 paths stay as they were typed
    if not stat.S_ISDIR(mode) or neff.is_unpacked(source.path):
        return [source]
    files, folders = listing(source.path)
    inner = [path for folder in folders for path in listing(folder)[0]]
    # XLA dumps first, here and in the folders of processes, whatever else lies around.
    paths = dumps(files) or dumps(inner) or programs(files, notes)
    paths = paths or [*filter(neff.is_unpacked, folders)] or programs(inner, notes)
    if not paths:
        raise without_program(source.path, [*files, *inner])
    return [replace(source, path=path) for path in paths]


def without_program(folder: str, files: Sequence[str]) -> UnreadableInput:
    """The error for a folder without programs, with what is in it instead where that is known."""
    what = f"{shown(folder)}: no program in this folder"
    for path in files[:LOOKED_AT]:
        with suppress(UnreadableInput):
            if found := recognised(head(path)):
                return UnreadableInput(f"{what}: {shown(path)} is {found.what}", fix=found.fix)
    return UnreadableInput(what, fix=f"known formats: {', '.join(formats.FORMATS)}")


def listing(folder: str) -> tuple[list[str], list[str]]:
    """The files and the folders in *folder*, in natural order, hidden ones left out.

    A link that leads nowhere is a file: whoever named it 3.json misses process 3.
    """
    with translated(folder), os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    files = [entry.path for entry in visible if entry.is_file() or leads_nowhere(entry)]
    folders = [entry.path for entry in visible if entry.is_dir()]
    return sorted(files, key=natural), sorted(folders, key=natural)


def leads_nowhere(entry: os.DirEntry[str]) -> bool:
    """Whether *entry* is a link to what is not there."""
    return entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110 a string at hand


def natural(name: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """A sort key that puts rank 10 after rank 9."""
    return tuple(DIGITS.split(name)), tuple(int(digits) for digits in DIGITS.findall(name))


def dumps(files: Iterable[str]) -> list[str]:
    """Those of *files* that XLA named."""
    return [path for path in files if DUMP.fullmatch(PurePath(path).name)]


def programs(files: Sequence[str], notes: list[str]) -> list[str]:
    """Those of *files* that are programs, by what they hold.

    A file that no reader knows counts all the same when its name is made like that of a program:
    a broken 3.json beside 0.json is a malformed program, not a stranger.
    """
    shape = {path: DIGITS.sub("#", PurePath(path).name) for path in files}
    shapes = {shape[path] for path in files if sniffed(path)}
    chosen = [path for path in files if shape[path] in shapes]
    if chosen and (rest := sorted({*files} - {*chosen}, key=natural)):
        notes.append(f"not programs, left out: {several([shown(path) for path in rest])}")
    return chosen


def several(names: Sequence[str]) -> str:
    """The first few of *names*, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def sniffed(path: str) -> bool:
    """Whether some reader knows the format of the file."""
    try:
        return formats.sniff(head(path)) is not None
    except UnreadableInput:
        return False


def plain_batch(sources: tuple[Source, ...], notes: Iterable[str]) -> Batch:
    """One batch of files whose names, taken together, may give their process numbers."""
    if len(sources) > 1 and any(source.process is None for source in sources):
        paths = [source.path for source in sources]
        # The 63 of /dev/fd/63, which is how `<(…)` arrives, is the shell's and no process's.
        said = None if any(map(is_read_once, paths)) else numbers(paths)
        given = said or repeat(None, len(sources))
        sources = tuple(
            replace(source, process=number) for source, number in zip(sources, given, strict=True)
        )
    seen = frozenset(source.process for source in sources if source.process is not None)
    return Batch(sources=sources, notes=tuple(notes), processes=seen)


def dump_batches(sources: Iterable[Source], notes: Iterable[str]) -> tuple[Batch, ...]:
    """One batch for each module name, over the folders, each of which is one process's.

    Module numbers differ between equal runs, so they only tell apart the modules of one name in
    one folder: the k-th there is compared with the k-th elsewhere.
    """
    folders: defaultdict[str, list[Source]] = defaultdict(list)
    for source in sources:
        folders[source.folder].append(source)
    process_of = folder_numbers(folders)
    modules: defaultdict[str, list[Source]] = defaultdict(list)
    for folder, inside_it in folders.items():
        for label, path in modules_of(inside_it):
            modules[label].append(Source(path=path, process=process_of[folder]))
    seen = frozenset(number for number in process_of.values() if number is not None)
    return tuple(
        Batch(sources=tuple(held), module=label, notes=tuple(notes), processes=seen)
        for label, held in modules.items()
    )


def folder_numbers(folders: dict[str, list[Source]]) -> dict[str, int | None]:
    """The process number of each dump folder; a single one has none, nameless ones count up."""
    if len(folders) == 1:
        (folder, sources), *_ = folders.items()
        return {folder: sources[0].process}
    said = [sources[0].process for sources in folders.values()]
    given = [n for n in said if n is not None] if None not in said else numbers(list(folders))
    return dict(zip(folders, given or range(len(folders)), strict=True))


def modules_of(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Label and file of each module in one folder: its latest stage, in order of module number."""
    stages: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for source in sources:
        match = DUMP.fullmatch(source.name)
        assert match is not None, source
        stages[match["name"], int(match["module"])][match["stage"]] = source.path
    ordinal: defaultdict[str, int] = defaultdict(int)
    for name, number in sorted(stages, key=lambda key: key[1]):
        ordinal[name] += 1
        files = stages[name, number]
        # "after_optimizations" sorts before "before_optimizations" whatever the platform says.
        stage = min(files, key=lambda stage: ("after_optimizations" not in stage, stage))
        yield name if ordinal[name] == 1 else f"{name}#{ordinal[name]}", files[stage]


def numbers(paths: Sequence[str]) -> list[int] | None:
    """The process number in each path, None where the names do not say.

    Either each name says "rank3" or the like, or the names are alike but for one number:
    step.0.hlo, step.1.hlo. If the names decide nothing the folders are asked: 0/a.hlo, 1/a.hlo.
    """
    names = [PurePath(path).name for path in paths]
    if not any(DUMP.fullmatch(name) for name in names):
        tags = [TAGGED.findall(name) for name in names]
        if all(tags) and len({tag[-1] for tag in tags}) == len(tags):
            return [int(tag[-1]) for tag in tags]
        if (alike := only_difference(names)) is not None:
            return alike
    return only_difference(paths)


def one_of_many(path: str) -> int | None:
    """The process whose file *path* is by its name or its folder's, though it may be given alone.

    None for names that do not say so, and for descriptors, whose numbers are no process's.
    """
    if is_read_once(path):
        return None
    name, folder = PurePath(path).name, PurePath(path).parent.name
    if not DUMP.fullmatch(name):
        if tags := TAGGED.findall(name):
            return int(tags[-1])
        if match := ONE_OF_MANY.fullmatch(name):
            return int(match[1])
    match = TAGGED.fullmatch(folder)
    return int(match[1]) if match else None


def only_difference(names: Sequence[str]) -> list[int] | None:
    """The one number in which otherwise equal names differ; None if there is no such number."""
    if len({DIGITS.sub("#", name) for name in names}) != 1:
        return None
    columns = list(zip(*(DIGITS.findall(name) for name in names), strict=True))
    varying = [column for column in columns if len({int(text[:20]) for text in column}) > 1]
    if len(varying) != 1 or any(len(text) > 9 for text in varying[0]):
        return None
    return [int(text) for text in varying[0]]
