"""A cluster: so many servers of one kind, and where each device of a world lies on them.

Knows nothing of programs, nor of how people write a cluster (`naming`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rankmuster.arch.chip import Chip, chip_for
from rankmuster.arch.cores import FLIPPED_NODES, physical_core
from rankmuster.arch.instances import Instance
from rankmuster.arch.pods import ALONE, PodMode, PodType, Seat, view
from rankmuster.errors import InvalidCluster

MAX_NODES = 1 << 16
COMMUNICATORS = 12  # NEC_MAX_COMM_N
COMMUNICATORS_SINCE = ((2, 34, 10), 16)  # release note of SDK 2.32


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one device lies: `chip` counts inside the node, `worker` inside the chip.

    `cores` are the physical cores behind the device and `sync_processors` indexes on the chip;
    `pod` and `rack` are None where there is none.
    """

    device: int
    node: int
    chip: int
    worker: int
    cores: tuple[int, ...]
    sync_processors: tuple[int, ...]
    pod: int | None
    pod_node: int | None
    rack: int | None


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`nodes` servers of one kind with one logical-core size; device ids run server by server.

    `claims` are contradictions between what the servers said about themselves and each other or
    the catalogue. Raises InvalidCluster for what cannot be.
    """

    instance: Instance
    nodes: int = 1
    core_size: int = 1
    pod_mode: PodMode = PodMode.UNSET
    runtime: tuple[int, ...] | None = None
    claims: tuple[str, ...] = ()
    listed_core_size: int | None = None

    def __post_init__(self) -> None:
        name = self.instance.name
        if not 1 <= self.nodes <= MAX_NODES:
            raise InvalidCluster(f"a cluster has 1 to {MAX_NODES} nodes, not {self.nodes}")
        if self.core_size not in self.instance.core_sizes:
            allowed = ", ".join(map(str, sorted(self.instance.core_sizes)))
            raise InvalidCluster(
                f"{name} has no logical-core size {self.core_size}", fix=f"use lnc={allowed}"
            )
        if self.nodes > 1 and not self.instance.spans_nodes:
            raise InvalidCluster(
                f"{name}:{self.nodes}: this server has no network for collectives",
                fix="use one node, or an instance with EFA",
            )
        if self.pod_mode not in self.instance.pod_modes:
            raise InvalidCluster(f"{name} has no UltraServer modes", fix="leave out pod=")

    @property
    def is_neuron(self) -> bool:
        """Whether these are Neuron chips: only then do the runtime's own rules apply."""
        return self.instance.generation is not None

    @property
    def name(self) -> str:
        """The cluster as `parse` reads it."""
        if not self.is_neuron:
            return f"generic:{self.nodes}x{self.instance.chips}"
        lnc = "" if self.core_size == self.instance.core_sizes[0] else f":lnc={self.core_size}"
        mode = "" if self.pod_mode is PodMode.UNSET else f":pod={self.pod_mode.name.lower()}"
        return f"{self.instance.name}:{self.nodes // self.instance.servers}{lnc}{mode}"

    @cached_property
    def chip(self) -> Chip:
        """The chips of one node. Raises InvalidCluster where there are no Neuron chips."""
        if self.instance.generation is None:
            raise InvalidCluster(f"{self.name} has no Neuron chips")
        return chip_for(self.instance.generation, self.instance.fabric, core_size=self.core_size)

    @cached_property
    def workers_per_chip(self) -> int:
        """Devices of one chip."""
        return self.instance.cores_per_chip // self.core_size

    @cached_property
    def local_rank_n(self) -> int:
        """Devices of one node."""
        return self.workers_per_chip * self.instance.chips

    @cached_property
    def size(self) -> int:
        """Devices of the whole cluster."""
        return self.nodes * self.local_rank_n

    @property
    def network_gbps_per_device(self) -> float:
        """Each device's share of its node's network: 50 Gbps on trn2 at logical-core size 2."""
        return self.instance.network_gbps / self.local_rank_n

    @cached_property
    def switch_v1(self) -> bool:
        """`nrt_is_neuron_switch_v1_family`."""
        return self.instance.fabric.switch_v1

    @cached_property
    def max_communicators(self) -> int | None:
        """Group sets that the runtime has room for; None where there is no such limit."""
        since, more = COMMUNICATORS_SINCE
        recent = self.runtime is not None and self.runtime >= since
        return (more if recent else COMMUNICATORS) if self.is_neuron else None

    @cached_property
    def seats(self) -> tuple[Seat, ...]:
        """Each node's place in its pod; nodes fill pods in order."""
        return tuple(self._seat(node) for node in range(self.nodes))

    @cached_property
    def has_pods(self) -> bool:
        """Whether any two nodes share a pod."""
        return any(seat.size > 1 for seat in self.seats)

    def _seat(self, node: int) -> Seat:
        room = self.instance.pod_nodes
        if self.instance.pod_type is PodType.NONE:
            return ALONE
        pod, place = divmod(node, room)
        size = min(room, self.nodes - pod * room)
        # Serials two apart, so that the halves of a pod get different ones.
        seat = Seat(node=place, size=size, serial=2 * pod + 1)
        if self.instance.pod_type is PodType.SWITCH:
            return seat if size > 1 else ALONE
        return view(seat, self.pod_mode) if size in {2, 4} else ALONE

    def node_of(self, device: int) -> int:
        """The node of a device that is known to exist."""
        return device // self.local_rank_n

    def chip_of(self, device: int) -> int:
        """The chip of a device, counted over the whole cluster."""
        return device // self.workers_per_chip

    def pod_of(self, device: int) -> int:
        """A number that the devices of one pod share; a node without a pod has its own."""
        node = self.node_of(device)
        seat = self.seats[node]
        return seat.serial if seat.size > 1 else -1 - node

    def rack_of(self, device: int) -> int:
        """The rack of a device; everything is one rack where racks are not known."""
        return self.node_of(device) // self.instance.rack_nodes if self.instance.rack_nodes else 0

    def locate(self, device: int) -> Place:
        """Where *device*, a global id, lies. Raises InvalidCluster for one that is not here."""
        self._require(device)
        node, local = divmod(device, self.local_rank_n)
        seat = self.seats[node]
        in_pod = seat.size > 1
        return Place(
            device=device,
            node=node,
            chip=local // self.workers_per_chip,
            worker=local % self.workers_per_chip,
            cores=self._cores(local, seat),
            sync_processors=self._sync_processors(local),
            pod=seat.serial if in_pod else None,
            pod_node=seat.node if in_pod else None,
            rack=self.rack_of(device) if self.instance.rack_nodes else None,
        )

    def _require(self, device: int) -> None:
        if not 0 <= device < self.size:
            raise InvalidCluster(
                f"device {device} is not one of the {self.size} of {self.name}",
                fix=f"ids run from 0 to {self.size - 1}",
            )

    def _cores(self, local: int, seat: Seat) -> tuple[int, ...]:
        chip, worker = divmod(local, self.workers_per_chip)
        logical = range(worker * self.core_size, (worker + 1) * self.core_size)
        if not self.instance.reordered_cores:
            return tuple(logical)
        flipped = seat.size > 1 and seat.node in FLIPPED_NODES
        return tuple(physical_core(chip, core, flipped=flipped) for core in logical)

    def _sync_processors(self, local: int) -> tuple[int, ...]:
        if not self.is_neuron:
            return ()
        count = self.chip.num_topsp_per_worker()
        return tuple(self.chip.topsp_idx_for_worker(local, nth) for nth in range(count))

    def hops(self, a: int, b: int) -> int | None:
        """Links between two devices: 0 on one chip, None where only the network joins them.

        Raises InvalidCluster for a device that is not here.
        """
        for device in (a, b):
            self._require(device)
        chips = self.instance.chips
        (node_a, chip_a), (node_b, chip_b) = (divmod(self.chip_of(d), chips) for d in (a, b))
        inside = self.instance.fabric.hops(chip_a, chip_b)
        if node_a == node_b:
            return inside
        here, there = self.seats[node_a], self.seats[node_b]
        if here.size < 2 or there.size < 2 or here.serial != there.serial:
            return None
        if self.instance.pod_type is PodType.SWITCH:
            return 1
        # Chips of one position form a ring over the nodes of the pod (facts §3.1).
        apart = abs(here.node - there.node)
        return None if inside is None else inside + min(apart, here.size - apart)

    def to_dict(self) -> dict[str, Any]:
        """The cluster as the report shows it."""
        return {
            "name": self.name,
            "instance": self.instance.name,
            "nodes": self.nodes,
            "chips_per_node": self.instance.chips,
            "devices_per_chip": self.workers_per_chip,
            "devices_per_node": self.local_rank_n,
            "devices": self.size,
            "lnc": self.core_size,
            "topology": self.instance.fabric.name,
            "network_gbps": self.instance.network_gbps,
            "network_gbps_per_device": self.network_gbps_per_device,
            "pod": {
                "type": self.instance.pod_type.name.lower(),
                "mode": self.pod_mode.name.lower(),
                "sizes": sorted({seat.size for seat in self.seats}),
            },
        }
