"""The maps of one node's chips: chip <-> routing id, and the chip behind each port (S4 §3).

Built once per local device, then only read. Inside, "nobody" is None; the sentinels of the
original stand in `pack` and `unpack`, the 772-byte image (`device_id_maps`), and nowhere else
here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rankmuster.arch.fabric import PORTS
from rankmuster.errors import InvalidCluster, InvalidProgram, InvariantError

MAX_MLA_DEVICES = 32
NO_PEER, NO_MLA, NO_RID = -2, -3, -4  # fills of port_map, rid_to_mla and mla_to_rid
IMAGE = struct.Struct(f"<?3x{MAX_MLA_DEVICES * PORTS}i{MAX_MLA_DEVICES}i{MAX_MLA_DEVICES}i")
assert IMAGE.size == 772
PORT_MAP_OFFSET, MLA_TO_RID_OFFSET, RID_TO_MLA_OFFSET = 4, 516, 644
NOBODY: tuple[int | None, ...] = (None,) * MAX_MLA_DEVICES
IN_SERVER_BITS = 4  # switch family: the low four bits are the chip, the rest is the server
USED_RID_BITS = 8  # our reading: no public source says how many bits of a routing id are used


def server_id(routing_id: int) -> int:
    """The server that a switch-family routing id lies in (`encd_get_server_id`).

    Raises InvariantError for an id with bits beyond those in use.
    """
    if not 0 <= routing_id < 1 << USED_RID_BITS:
        raise InvariantError(
            "arch_device_mapping.c:23: TRN_PDS_ROUTING_ID_ASSERT_UNUSED(routing_id), "
            f"which is {routing_id:#x}"
        )
    return routing_id >> IN_SERVER_BITS


def in_server(routing_id: int) -> int:
    """What a switch-family routing id says of the chip; a negative one stays what it is."""
    return routing_id & 0xF if routing_id > 0 else routing_id


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMaps:
    """`device_id_maps`: three tables of 32 chips, and whether they were built.

    `port_map[chip][port]` is the chip at the other end: None where there is none, or where the
    port stands in `hidden`, which says that the peer exists and this node does not see it (D48).
    """

    built: bool = False
    mla_to_rid: tuple[int | None, ...] = NOBODY
    rid_to_mla: tuple[int | None, ...] = NOBODY
    port_map: tuple[tuple[int | None, ...], ...] = ((None,) * PORTS,) * MAX_MLA_DEVICES
    hidden: frozenset[tuple[int, int]] = frozenset()

    @staticmethod
    def build(
        rids: Mapping[int, int],
        peer_rid: Callable[[int, int], int | None],
        *,
        num_mlas: int,
        switch_v1: bool,
    ) -> DeviceMaps:
        """Fill the maps from the driver's routing id of each visible chip.

        *peer_rid* answers (routing id, port) as `Chip.peer_rid` does. On the switch family only
        the low nibble of an id counts. Raises InvalidCluster for a chip that cannot be, or for a
        routing id that does not fit the instance or is claimed twice.
        """
        own = {chip: in_server(rid) if switch_v1 else rid for chip, rid in rids.items()}
        for chip, rid in own.items():
            _check_entry(chip, rid, num_mlas)
        chips = {rid: chip for chip, rid in own.items()}
        if len(chips) < len(own):
            raise InvalidCluster(f"two chips claim one routing id: {sorted(own.items())}")
        peers = {
            (chip, port): peer
            for chip, rid in own.items()
            for port in range(PORTS)
            if (peer := peer_rid(rid, port)) is not None
        }
        return DeviceMaps(
            built=True,
            mla_to_rid=_table(own),
            rid_to_mla=_table(chips),
            port_map=tuple(
                tuple(chips.get(peers.get((chip, port), NO_PEER)) for port in range(PORTS))
                for chip in range(MAX_MLA_DEVICES)
            ),
            hidden=frozenset(place for place, peer in peers.items() if peer not in chips),
        )

    def pack(self) -> bytes:
        """The 772 bytes as they stand in memory, with the original's sentinels."""
        ports = (
            (NO_MLA if (chip, port) in self.hidden else NO_PEER) if peer is None else peer
            for chip, row in enumerate(self.port_map)
            for port, peer in enumerate(row)
        )
        rids = (NO_RID if rid is None else rid for rid in self.mla_to_rid)
        chips = (NO_MLA if chip is None else chip for chip in self.rid_to_mla)
        return IMAGE.pack(self.built, *ports, *rids, *chips)

    @staticmethod
    def unpack(image: bytes, *, where: str = "") -> DeviceMaps:
        """Read what `pack` writes. Raises InvalidProgram, with the byte, for anything else."""
        if len(image) != IMAGE.size:
            raise InvalidProgram(
                f"device_id_maps takes {IMAGE.size} bytes, not {len(image)}", where=where
            )
        if image[0] > 1 or any(image[1:PORT_MAP_OFFSET]):
            raise InvalidProgram("the built flag is neither 0 nor 1", where=where, offset=0)
        built, *words = IMAGE.unpack(image)
        cells = _Cells(words=tuple(words), where=where)
        ports = cells.take(PORT_MAP_OFFSET, MAX_MLA_DEVICES * PORTS, {NO_PEER, NO_MLA})
        rids = cells.take(MLA_TO_RID_OFFSET, MAX_MLA_DEVICES, {NO_RID}, limit=1 << USED_RID_BITS)
        chips = cells.take(RID_TO_MLA_OFFSET, MAX_MLA_DEVICES, {NO_MLA})
        rows = [words[chip * PORTS : (chip + 1) * PORTS] for chip in range(MAX_MLA_DEVICES)]
        return DeviceMaps(
            built=built,
            mla_to_rid=rids,
            rid_to_mla=chips,
            port_map=tuple(ports[i : i + PORTS] for i in range(0, len(ports), PORTS)),
            hidden=frozenset(
                (chip, port)
                for chip, row in enumerate(rows)
                for port, word in enumerate(row)
                if word == NO_MLA
            ),
        )


def _check_entry(chip: int, rid: int, num_mlas: int) -> None:
    if not 0 <= chip < MAX_MLA_DEVICES:
        raise InvalidCluster(f"chip {chip} is not one of the {MAX_MLA_DEVICES} of a node")
    if not 0 <= rid < min(num_mlas, MAX_MLA_DEVICES):
        raise InvalidCluster(
            f"Mismatching routing ID {rid} of chip {chip} on an instance of {num_mlas} chips"
        )


def _table(entries: Mapping[int, int]) -> tuple[int | None, ...]:
    return tuple(entries.get(key) for key in range(MAX_MLA_DEVICES))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    words: tuple[int, ...]
    where: str

    def take(
        self, offset: int, count: int, fills: set[int], *, limit: int = MAX_MLA_DEVICES
    ) -> tuple[int | None, ...]:
        first = (offset - PORT_MAP_OFFSET) // 4
        for at, word in enumerate(self.words[first : first + count]):
            if word not in fills and not 0 <= word < limit:
                raise InvalidProgram(
                    f"{word} is neither an id below {limit} nor one of {sorted(fills)}",
                    where=self.where,
                    offset=offset + 4 * at,
                )
        found = self.words[first : first + count]
        return tuple(None if word in fills else word for word in found)


@dataclass(slots=True)
class ResourcePool:
    """What `encd_arch_get_resource_pool` hands out: the maps at +96 are the part we know.

    `rid` is the whole routing id of the core's own chip, which the maps of the switch family lack.
    """

    nec_dev: int
    maps: DeviceMaps = field(default_factory=DeviceMaps)
    rid: int = 0


@dataclass(slots=True)
class ResourcePools:
    """The pools of one process, made when first asked for; at most 256 (NEC_MAX_DEVICES)."""

    limit: int = 256
    pools: dict[int, ResourcePool] = field(default_factory=dict)

    def of(self, nec_dev: int) -> ResourcePool:
        """The pool of a virtual core. Raises InvalidCluster for an id that cannot be."""
        if not 0 <= nec_dev < self.limit:
            raise InvalidCluster(f"virtual core {nec_dev} is not one of the {self.limit} possible")
        return self.pools.setdefault(nec_dev, ResourcePool(nec_dev))


def own_chips(mla_indexes: Sequence[int], host_device_ids: Sequence[int]) -> dict[int, int]:
    """Chip -> host device id, from the two parallel lists that a caller passes."""
    if len(mla_indexes) != len(host_device_ids):
        raise InvalidCluster(
            f"{len(mla_indexes)} chip indexes stand beside {len(host_device_ids)} host device ids"
        )
    if len(set(mla_indexes)) < len(mla_indexes):
        raise InvalidCluster(f"a chip is listed twice: {list(mla_indexes)}")
    return dict(zip(mla_indexes, host_device_ids, strict=True))
