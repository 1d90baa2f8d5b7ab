"""Clusters as people write them: names with options, or the listings of their servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index

from rankmuster.arch.instances import ALIASES, INSTANCES, Instance, generic, instance_named
from rankmuster.arch.pods import PodMode
from rankmuster.clusters.listing import contradictions, instance_of
from rankmuster.clusters.nodes import Cluster
from rankmuster.errors import InvalidCluster, did_you_mean
from rankmuster.formats import neuron_ls
from rankmuster.formats.neuron_ls import NodeListing

POD_MODES = {mode.name.lower(): mode for mode in PodMode}
OPTIONS = ("lnc", "ls", "pod", "runtime")
ReadFile = Callable[[str], bytes]


def cluster(
    name: str,
    *,
    nodes: int | None = None,
    lnc: int | None = None,
    pod: str = "unset",
    runtime: str | None = None,
    listings: Sequence[NodeListing] = (),
    read_file: ReadFile | None = None,
) -> Cluster:
    """Make a cluster from a name of the catalogue: `cluster("trn2.48xlarge", nodes=4, lnc=2)`.

    *name* may also be "generic:8x8", 8 hosts of 8 devices, or all that `parse` accepts. *pod* is
    the UltraServer mode. Raises InvalidCluster, with the nearest name, for what no cluster is, and
    TypeError for numbers that are none.
    """
    if ":" in name or is_files(name):
        if nodes is not None or lnc is not None or runtime is not None or pod != "unset":
            raise InvalidCluster(f"{name!r} says sizes already", fix="say them once")
        return parse(name, read_file)
    instance = find_instance(name)
    listed = listings[0].core_size if listings else None
    default = listed or instance.core_sizes[0]
    return Cluster(
        instance=instance,
        nodes=(1 if nodes is None else index(nodes)) * instance.servers,
        core_size=default if lnc is None else index(lnc),
        pod_mode=_pod_mode(pod),
        runtime=_version(runtime),
        claims=tuple(contradictions(listings, instance)),
        listed_core_size=listed,
    )


def find_instance(name: str) -> Instance:
    """The catalogue's row for a name or an alias. Raises InvalidCluster with the nearest name."""
    found = instance_named(name)
    if found is None:
        hint = did_you_mean(name.lower(), {*INSTANCES, *ALIASES, "generic:8x8"})
        raise InvalidCluster(f"no cluster is called {name!r}", fix=hint)
    return found


def _pod_mode(text: str) -> PodMode:
    if text.lower() not in POD_MODES:
        raise InvalidCluster(f"no pod mode {text!r}", fix=did_you_mean(text.lower(), POD_MODES))
    return POD_MODES[text.lower()]


def _version(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InvalidCluster(f"runtime version {text!r} is not like 2.34.10")
    return tuple(map(int, parts))


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidCluster(f"{what} must be a number, not {text!r}")
    return int(text)


def is_files(name: str) -> bool:
    """Whether a name is that of listings and not of a cluster."""
    return name.endswith(".json")


def parse(text: str, read_file: ReadFile | None = None) -> Cluster:
    """Read what `--cluster` takes: NAME[:NODES][:lnc=1][:pod=x4][:runtime=2.34.10][:ls=FILE,...].

    NAME may be "generic:HxD", or files that `neuron-ls -j` wrote, one a server, which *read_file*
    opens; `ls=` holds such files against the name. Raises InvalidCluster or InvalidProgram.
    """
    name, *rest = text.split(":")
    if name == "generic":
        return _generic(rest, text)
    options: dict[str, str] = {}
    nodes: int | None = None
    for part in rest:
        key, equals, value = part.partition("=")
        if not equals and nodes is None:
            nodes = _number(part, "the number of nodes")
        elif not equals or key in options:
            what = key if equals else "the number of nodes"
            raise InvalidCluster(f"{text!r} says {what} twice", fix="say it once")
        elif key not in OPTIONS:
            raise InvalidCluster(f"{text!r}: no option {key!r}", fix=did_you_mean(key, OPTIONS))
        else:
            options[key] = value
    unnamed = is_files(name)
    listings = _read_listings(name if unnamed else options.get("ls", ""), read_file)
    if listings and nodes is None:
        nodes = len(listings)
    return cluster(
        instance_of(listings[0]).name if unnamed else name,
        nodes=nodes,
        lnc=_number(options["lnc"], "lnc") if "lnc" in options else None,
        pod=options.get("pod", "unset"),
        runtime=options.get("runtime"),
        listings=listings,
    )


def _generic(rest: list[str], text: str) -> Cluster:
    hosts, times, devices = (rest or [""])[0].partition("x")
    if not times or len(rest) > 1:
        raise InvalidCluster(
            f"{text!r} does not say hosts and devices", fix="write generic:8x8 for 8 hosts of 8"
        )
    count = _number(devices, "the number of devices of a host")
    if not 1 <= count <= 1024:
        raise InvalidCluster(f"a host has 1 to 1024 devices, not {count}")
    return Cluster(instance=generic(count), nodes=_number(hosts, "the number of hosts"))


def _read_listings(files: str, read_file: ReadFile | None) -> tuple[NodeListing, ...]:
    if not files:
        return ()
    if read_file is None:
        raise InvalidCluster(f"{files!r} names files, and nothing here may open them")
    return tuple(neuron_ls.read(read_file(path), where=path) for path in files.split(","))
