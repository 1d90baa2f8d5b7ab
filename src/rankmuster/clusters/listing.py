"""What servers say about themselves, held against the catalogue and against each other."""

from __future__ import annotations

from collections.abc import Sequence

from rankmuster.arch.instances import INSTANCES, Instance
from rankmuster.errors import InvalidCluster
from rankmuster.formats.neuron_ls import NodeListing


def instance_of(listing: NodeListing) -> Instance:
    """The catalogue's row that a server's listing fits. Raises InvalidCluster where none does."""
    chips, cores = len(listing.devices), listing.cores_per_chip
    memory = listing.devices[0].memory_size >> 30
    for each in INSTANCES.values():
        size = each.memory_gib and each.memory_gib // each.chips
        if (each.chips, each.cores_per_chip, size) == (chips, cores, memory):
            return each
    raise InvalidCluster(
        f"{listing.where}: no known server has {chips} chips of {cores} cores and {memory} GiB"
        f" (nc_count {listing.devices[0].nc_count}, logical_neuroncore_config {listing.core_size};"
        " 1 where that is missing)",
        fix="say which it is: --cluster NAME:ls=FILE",
    )


def contradictions(listings: Sequence[NodeListing], instance: Instance) -> list[str]:
    """Where servers contradict the catalogue, themselves or each other; at most one a server."""
    wrongs = (
        (each.where, _contradiction(each, instance) or _differs(each, listings[0]))
        for each in listings
    )
    return [f"{where or 'neuron-ls'}: {wrong}" for where, wrong in wrongs if wrong]


def _contradiction(listing: NodeListing, instance: Instance) -> str:
    if len(listing.devices) != instance.chips:
        return f"{len(listing.devices)} chips where {instance.name} has {instance.chips}"
    if listing.cores_per_chip != instance.cores_per_chip:
        here = listing.cores_per_chip
        return f"{here} cores a chip where {instance.name} has {instance.cores_per_chip}"
    for device in listing.devices:
        said = frozenset(device.connected_to or ())
        known = instance.fabric.neighbours[device.neuron_device]
        if said != known:
            return (
                f"chip {device.neuron_device} is connected to {sorted(said)}"
                f" where {instance.name} has {sorted(known)}"
            )
    return ""


def _differs(listing: NodeListing, first: NodeListing) -> str:
    if listing.core_size != first.core_size:
        return (
            f"logical-core size {listing.core_size} where {first.where or 'the first server'}"
            f" has {first.core_size}"
        )
    return ""
