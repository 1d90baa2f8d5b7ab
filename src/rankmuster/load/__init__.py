"""Program files in, copies of programs with their devices out: the only opener of program files.

Finds the files that the arguments mean (`sources`), reads them (`files`, `formats`), settles the
world (`worldsize`) and gives each file its devices (`devices`). A file that is not what it should
be becomes a finding (RM701, RM702), because its neighbours still have something to say; one that
cannot be opened raises `UnreadableInput`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from rankmuster import formats
from rankmuster.copies import ProgramCopy
from rankmuster.errors import InvalidProgram, UnreadableInput, UnsupportedFormat, did_you_mean
from rankmuster.finding import Finding, finding
from rankmuster.load import neff
from rankmuster.load.devices import Place, Seating, refuse_misfit, seat, seats_by_ids
from rankmuster.load.files import contents, shown
from rankmuster.load.options import LoadOptions as LoadOptions
from rankmuster.load.sources import Batch, Source, find, one_of_many
from rankmuster.load.worldsize import inferred as inferred_world
from rankmuster.load.worldsize import larger
from rankmuster.load.worldsize import world_of as world_of
from rankmuster.program import Program
from rankmuster.world import World

OnRead = Callable[[int, int], None]
MALFORMED = frozenset({"RM701", "RM702"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The copies of one program (in XLA dumps: of one `module`), and what loading them showed."""

    copies: tuple[ProgramCopy, ...]
    world: World
    findings: tuple[Finding, ...] = ()
    absent: tuple[int, ...] = ()
    module: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether some file was malformed, or of a version that no reader knows."""
        return any(found.code in MALFORMED for found in self.findings)


def load(
    arguments: Sequence[str], options: LoadOptions | None = None, *, on_read: OnRead | None = None
) -> tuple[Loaded, ...]:
    """Load the programs that *arguments* name: one `Loaded`, or one for each module of XLA dumps.

    *on_read* is called with the number of files read and their total after each file. Raises
    `UnreadableInput` for what cannot be opened and for files that cannot be given devices.
    """
    options = options or LoadOptions()
    batches = stated(arguments, options) if options.ranks else find(arguments)
    if options.module is not None:
        batches = (pick(batches, options.module),)
    reader = Reader(options, sum(len(batch.sources) for batch in batches), on_read)
    return tuple(load_batch(batch, options, reader) for batch in batches)


def read_path(
    path: str,
    *,
    world: int | None = None,
    replicas: int | None = None,
    partitions: int | None = None,
) -> Program:
    """Read the one program in the file *path* ("-" is standard input, gzip is unpacked).

    A folder is an unpacked NEFF. Raises `InvalidProgram` naming file and place, and
    `UnreadableInput`.
    """
    if neff.is_unpacked(path):
        return neff.supplied(path, neff.unpacked(path, world))
    with contents(path, formats.worth_reading) as data:
        program = formats.read(
            data, where=shown(path), world=world, replicas=replicas, partitions=partitions
        )
    return neff.supplied(path, program)


def process_path(argument: str, process: int) -> str:
    """The file that *argument* (a file, a folder, a pattern with {rank}) means for *process*.

    A single file is every process's. Raises `UnreadableInput` where there is none for it, and
    where a folder of XLA dumps holds several modules.
    """
    if path := process_paths(argument, [process]).get(process):
        return path
    raise UnreadableInput(f"{shown(argument)} has no program for process {process}")


def process_paths(argument: str, processes: Iterable[int]) -> dict[int, str]:
    """See `process_path`; the files of all *processes* that have one."""
    batches = find([argument])
    if len(batches) > 1:
        known = ", ".join(batch.module for batch in batches)
        raise UnreadableInput(f"{shown(argument)} holds several modules: {known}", fix="name one")
    sources = batches[0].sources
    if len(sources) == 1 and sources[0].process is None:
        return dict.fromkeys(processes, sources[0].path)
    paths: dict[int, str] = {}
    for turn, source in enumerate(sources):
        paths.setdefault(turn if source.process is None else source.process, source.path)
    return {process: paths[process] for process in processes if process in paths}


def pick(batches: Sequence[Batch], module: str) -> Batch:
    """The batch of one module; an unknown name is answered by the nearest."""
    known = {batch.module: batch for batch in batches}
    if "" in known:
        raise UnreadableInput(f"no module {module!r}: these files are no XLA dumps")
    if module not in known:
        raise UnreadableInput(f"no module {module!r}", fix=did_you_mean(module, known))
    return known[module]


def stated(arguments: Sequence[str], options: LoadOptions) -> tuple[Batch, ...]:
    """The batch that `--ranks` spells out."""
    if arguments:
        raise UnreadableInput(f"--ranks and {shown(arguments[0])!r}", fix="name each file once")
    return (Batch(sources=tuple(Source(path=path) for _, path in options.ranks)),)


@dataclass(slots=True)
class Reader:
    """Reads files, each distinct content once: 512 processes often hold 512 equal files."""

    options: LoadOptions
    total: int
    on_read: OnRead | None = None
    done: int = 0
    _known: dict[bytes, Program] = field(default_factory=dict)

    def read(self, path: str) -> Program | Finding:
        """The program in *path*, or the finding that it is none."""
        try:
            program = neff.supplied(path, self._read(path))
        except UnsupportedFormat as error:
            return finding("RM702", error.what, fix=error.fix or None)
        except InvalidProgram as error:
            return finding("RM701", error.what, fix=error.fix or None)
        finally:
            self.done += 1
            if self.on_read is not None:
                self.on_read(self.done, self.total)
        return program

    def _read(self, path: str) -> Program:
        if neff.is_unpacked(path):
            return neff.unpacked(path, self.options.world)
        with contents(path, formats.worth_reading) as data:
            key = blake2b(data).digest() if isinstance(data, bytes) else b""
            if key in self._known:
                return self._known[key]
            program = formats.read(
                data,
                where=shown(path),
                world=self.options.world,
                replicas=self.options.replicas,
                partitions=self.options.partitions,
            )
        if key:
            self._known[key] = program
        return program


def load_batch(batch: Batch, options: LoadOptions, reader: Reader) -> Loaded:
    """Read the files of one batch and give them their devices."""
    read = [reader.read(source.path) for source in batch.sources]
    places = [
        Place(
            path=shown(source.path),
            process=source.process,
            rank=rank_of(result),
            alone=one_of_many(source.path) if len(read) == 1 else None,
        )
        for source, result in zip(batch.sources, read, strict=True)
    ]
    loaded = arrange(read, places, options, batch.processes)
    notes = (finding("RM704", note) for note in batch.notes)
    return replace(loaded, findings=(*notes, *loaded.findings), module=batch.module)


def rank_of(result: Program | Finding) -> int | None:
    """The device that a file names for itself."""
    return result.rank if isinstance(result, Program) else None


def arrange(
    read: Sequence[Program | Finding],
    places: Sequence[Place],
    options: LoadOptions,
    processes: frozenset[int] = frozenset(),
) -> Loaded:
    """Settle the world of the programs in *read* and give each the devices of its place.

    A finding in *read* stands for a file that is no program; it gets the devices to be about.
    """
    programs = [each for each in read if isinstance(each, Program)]
    world = world_of(programs, places, options)
    seating = seated(places, world, options, processes)
    seats = list(zip(read, places, seating.blocks, strict=True))
    copies = tuple(
        ProgramCopy(program=each, devices=block.devices, process=block.process, path=place.path)
        for each, place, block in seats
        if isinstance(each, Program) and block.devices
    )
    # If nothing says how large the world is, nobody knows whose file the broken one was.
    is_known = bool(copies) or world.source != "inferred"
    broken = [
        replace(each, ranks=block.devices if is_known else ())
        for each, _, block in seats
        if isinstance(each, Finding)
    ]
    return Loaded(
        copies=copies,
        world=world,
        findings=(
            *broken,
            *(inferred_world(world) if is_known else ()),
            *larger(programs, world),
            *seating.findings,
        ),
        absent=seating.absent,
    )


def seated(
    places: Sequence[Place], world: World, options: LoadOptions, processes: frozenset[int]
) -> Seating:
    """The devices of each file, as stated or as its name and its text say."""
    if options.ranks:
        return seats_by_ids(options.ranks, world.size)
    if options.devices:
        if len(places) > 1:
            raise UnreadableInput(
                f"--devices speaks for one file, not for {len(places)}",
                fix="say --ranks IDS=FILE for each",
            )
        return seats_by_ids([(options.devices, places[0].path)], world.size)
    refuse_misfit(options.devices_per_process, world.size)
    return seat(places, world.size, options.devices_per_process, processes)
