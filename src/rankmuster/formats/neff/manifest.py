"""The chain of manifests in a NEFF: neff.json, then kelf-*.json, then each graph's def.json.

Facts §5.2. Whoever has the files passes a function that fetches one by name; nothing here knows
whether they come from an archive or a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rankmuster.errors import InvalidProgram, did_you_mean
from rankmuster.formats.json_fields import Fault, a_list, an_object, quote, required, text_of, whole
from rankmuster.formats.json_program import GroupSets, PairSets, id_sets, interpreted
from rankmuster.formats.neff.tar import clean
from rankmuster.group import SubGroup

Fetch = Callable[[str], bytes | None]
T = TypeVar("T")

ENTRY = "neff.json"
KELF_FUNCTION = "__kelf"
TARGETS = ("sunda", "cayman", "mariana", "*")
GRAPHS_MAX = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """What one graph's def.json says of communication; `world` is None where it does not."""

    replica_groups: tuple[tuple[SubGroup, ...], ...] = ()
    src_target_pairs: tuple[tuple[tuple[int, int], ...], ...] = ()
    num_streams: int = 1
    world: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The chip generation that a NEFF is for ("*" for any), and its graphs in order."""

    target: str
    graphs: tuple[Graph, ...]


def follow(fetch: Fetch, where: str) -> Manifest:
    """Read the chain from its entry on. Raises `InvalidProgram`, naming the file in the NEFF."""
    targets: set[str] = set()
    found: dict[str, Graph] = {}
    for kelf in opened(fetch, ENTRY, where, kelfs):
        target, listed = opened(fetch, kelf, where, graphs)
        targets.add(target)
        for name, definition in listed:
            path = placed(fetch, name, definition)
            if path not in found:
                found[path] = opened(fetch, path, where, graph)
    chips = sorted(targets - {"*"})
    if len(chips) > 1:
        raise InvalidProgram(f"its graphs are for different chips: {chips}", where=where)
    return Manifest(target="".join(chips) or "*", graphs=tuple(found.values()))


def opened(fetch: Fetch, name: str, where: str, make: Callable[[Any], T]) -> T:
    """What *make* makes of the JSON file *name*."""
    place = f"{where}/{name}" if where else name
    text = fetch(name)
    if text is None:
        raise InvalidProgram("the NEFF does not hold this file", where=place)
    try:
        return interpreted(text, place, make)
    except RecursionError:
        raise InvalidProgram("nested too deeply", where=place) from None


def placed(fetch: Fetch, name: str, definition: str) -> str:
    """The path of a graph's definition: as written, in the graph's folder, or its folder's."""
    options = (definition, f"{name}/{definition}", f"{definition}/def.json")
    return next((path for path in options if fetch(path) is not None), definition)


def kelfs(value: Any) -> list[str]:
    """The kelf files that neff.json names.

    A node that does is like {"attrs": {"func_name": "__kelf", "kelf": "kelf-a.json"}}.
    """
    found: dict[str, None] = {}
    for at, node in enumerate(a_list(required(an_object(value, ()), "nodes", ()), ("nodes",))):
        path = ("nodes", at)
        attributes = an_object(node, path).get("attrs")
        if isinstance(attributes, dict) and attributes.get("func_name") == KELF_FUNCTION:
            found[file_name(attributes, "kelf", (*path, "attrs"))] = None
    if not found:
        raise Fault(("nodes",), f"has no node whose attrs.func_name is {KELF_FUNCTION!r}")
    return list(found)


def graphs(value: Any) -> tuple[str, list[tuple[str, str]]]:
    """The target of a kelf file, and name and definition of each of its graphs."""
    entry = an_object(value, ())
    target = required(entry, "target", ())
    if target not in TARGETS:
        near = did_you_mean(target, TARGETS) if isinstance(target, str) else ""
        raise Fault(("target",), f"is {quote(target)}, no chip generation", near)
    listed = a_list(required(entry, "graphs", ()), ("graphs",))
    if not 0 < len(listed) <= GRAPHS_MAX:
        raise Fault(("graphs",), f"lists {len(listed)} graphs, not 1 to {GRAPHS_MAX}")
    return target, list(graph_entries(listed))


def graph_entries(listed: list[Any]) -> Iterator[tuple[str, str]]:
    """Name and definition of each graph; without a definition, the usual file of its folder."""
    for at, each in enumerate(listed):
        path = ("graphs", at)
        entry = an_object(each, path)
        name = file_name(entry, "name", path)
        known = entry.get("definition") is not None
        yield name, file_name(entry, "definition", path) if known else f"{name}/def.json"


def file_name(entry: Mapping[str, Any], key: str, path: tuple[str | int, ...]) -> str:
    """A name of a file in the NEFF."""
    required(entry, key, path)
    given = text_of(entry, key, path)
    try:
        name = clean(given or "")
    except ValueError as error:
        raise Fault((*path, key), f"is no name here: {error}") from None
    if not name:
        raise Fault((*path, key), "is empty")
    return name


def graph(value: Any) -> Graph:
    """What a def.json says of communication; its other keys are the compiler's and the loader's."""
    entry = {key: held for key, held in an_object(value, ()).items() if held is not None}
    return Graph(
        replica_groups=id_sets(entry, "replica_groups", GroupSets),
        src_target_pairs=id_sets(entry, "src_target_pairs", PairSets),
        num_streams=whole(entry, "num_streams", (), low=1) or 1,
        world=whole(entry, "#rank_world_size", (), low=1),
    )
