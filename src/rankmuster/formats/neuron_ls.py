"""Reads what `neuron-ls -j` prints: the chips of one server, as that server sees them.

Knows nothing of clusters: it hands over what was said, checked for sense. A real entry (facts
§9.2): {"neuron_device": 0, "bdf": "cc:00.0", "connected_to": [12, 3, 4, 1], "nc_count": 4,
"logical_neuroncore_config": 2, "memory_size": 103079215104, "neuroncore_ids": [0, 1, 2, 3], ...}.
Counts and core ids are logical ones.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass

import msgspec

from rankmuster.errors import InvalidProgram

LIMIT_BYTES = 4 << 20
MAX_DEVICES = 64  # MAX_NEURON_DEVICE_COUNT


class NeuronDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One chip. `connected_to` are the chips at the other end of its cables."""

    neuron_device: int
    connected_to: tuple[int, ...] | None
    nc_count: int
    memory_size: int
    logical_neuroncore_config: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeListing:
    """The chips of one server in the order of their ids, and the file that says so."""

    devices: tuple[NeuronDevice, ...]
    where: str = ""

    @property
    def core_size(self) -> int:
        """The logical-core size of the server."""
        return self.devices[0].logical_neuroncore_config

    @property
    def cores_per_chip(self) -> int:
        """Physical cores of each chip."""
        return self.devices[0].nc_count * self.core_size


def read(data: bytes, *, where: str = "") -> NodeListing:
    """Read one server's listing.

    Raises InvalidProgram, naming the entry and the field, for anything that is not one.
    """
    if len(data) > LIMIT_BYTES:
        raise InvalidProgram(f"a neuron-ls listing takes at most {LIMIT_BYTES} bytes", where=where)
    try:
        devices = msgspec.json.decode(data.removeprefix(BOM_UTF8), type=tuple[NeuronDevice, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidProgram(
            f"not what `neuron-ls -j` prints: {error}", where=where, fix="run `neuron-ls -j` again"
        ) from error
    listing = NodeListing(devices=tuple(sorted(devices, key=_id)), where=where)
    _check(listing)
    return listing


def _id(device: NeuronDevice) -> int:
    return device.neuron_device


def _check(listing: NodeListing) -> None:
    ids = [device.neuron_device for device in listing.devices]
    if not 0 < len(ids) <= MAX_DEVICES or ids != list(range(len(ids))):
        raise InvalidProgram(
            f"expected chips 0 to N-1, at most {MAX_DEVICES}, each once; found {ids[:MAX_DEVICES]}",
            where=listing.where,
        )
    sizes = {(each.nc_count, each.logical_neuroncore_config) for each in listing.devices}
    if len(sizes) > 1:
        raise InvalidProgram(
            f"the chips have different (nc_count, logical_neuroncore_config): {sorted(sizes)}",
            where=listing.where,
        )
    for device in listing.devices:
        if device.nc_count < 1 or device.logical_neuroncore_config < 1:
            raise InvalidProgram(
                f"chip {device.neuron_device}: nc_count {device.nc_count} and"
                f" logical_neuroncore_config {device.logical_neuroncore_config} must be 1 or more",
                where=listing.where,
            )
