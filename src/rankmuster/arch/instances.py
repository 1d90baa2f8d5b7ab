"""The catalogue of Neuron servers: chips, cores, wiring, network, pods (facts §3.1, §3.3).

One row a server; an UltraServer is a row that stands for several. Figures whose source is not the
vendor's own documentation carry a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from rankmuster.arch import fabric
from rankmuster.arch.chip import Generation
from rankmuster.arch.fabric import Fabric
from rankmuster.arch.pods import PodMode, PodType


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One kind of server. `generation` is None for a machine without Neuron chips.

    `core_sizes` are the logical-core sizes it allows, the default first; `network_gbps` is all of
    the server's network, 0 where it has none that joins servers; `pod_nodes` how many servers
    share a pod at most; `rack_nodes` how many stand in one rack, 0 where that is not known;
    `servers` how many of them one name stands for; `reordered_cores` says that logical cores are
    not the physical ones in order (`arch.cores`).
    """

    name: str
    generation: Generation | None
    fabric: Fabric
    cores_per_chip: int
    core_sizes: tuple[int, ...] = (1,)
    network_gbps: int = 0
    link: str = ""
    memory_gib: int | None = None
    pod_type: PodType = PodType.NONE
    pod_nodes: int = 1
    rack_nodes: int = 0
    servers: int = 1
    spans_nodes: bool = True
    reordered_cores: bool = False
    note: str = ""

    @property
    def chips(self) -> int:
        """Chips of one server."""
        return self.fabric.chips

    @property
    def pod_modes(self) -> tuple[PodMode, ...]:
        """The ways in which a job may use a pod: only chip-to-chip pods come in parts."""
        return tuple(PodMode) if self.pod_type is PodType.P2P else (PodMode.UNSET,)

    @property
    def chip_counts(self) -> tuple[int, ...]:
        """How many chips of one server a job may use; empty where no such limit is known.

        What libnccom's topology check accepts (facts §3.5). Only of trn1 have users reported it:
        "Supported number of Neuron Cores is 1, 2, 8, 16 or a multiple of 32".
        """
        is_trn1 = self.generation is Generation.SUNDA and self.fabric.shape == "torus"
        return (1, 4, 8, 16) if is_trn1 else ()

    @property
    def trn2_trn3(self) -> bool:
        """`nrt_is_trn2_trn3_family`."""
        return self.generation in {Generation.CAYMAN, Generation.MARIANA}

    @property
    def full_mesh_only(self) -> bool:
        """The family that meshes 2, 4 or 8 ranks, and in rows of chips multiples of 6."""
        return self.generation is Generation.SUNDA

    @property
    def grouped_mesh(self) -> bool:
        """Whether multiples of 6 may mesh too (inf2)."""
        return self.fabric.shape in {"ring", "chain"}


LNC2_FIRST = (2, 1)
_TRN1 = Instance(
    name="trn1.32xlarge",
    generation=Generation.SUNDA,
    fabric=fabric.TRN1_TORUS,
    cores_per_chip=2,
    network_gbps=800,
    link="384 GiB/s a chip",
    memory_gib=512,
)
_INF2 = Instance(
    name="inf2.48xlarge",
    generation=Generation.SUNDA,
    fabric=fabric.INF2_RING,
    cores_per_chip=2,
    link="192 GiB/s a chip",
    memory_gib=384,
    spans_nodes=False,
)
_TRN2 = Instance(
    name="trn2.48xlarge",
    generation=Generation.CAYMAN,
    fabric=fabric.TRN2_TORUS,
    cores_per_chip=8,
    core_sizes=LNC2_FIRST,
    network_gbps=3200,
    link="1024 GB/s a chip",
    memory_gib=1536,
    reordered_cores=True,
)
_TRN2U = replace(
    _TRN2,
    name="trn2u.48xlarge",
    link="1024 GB/s a chip, 256 GB/s to other servers of the pod",
    pod_type=PodType.P2P,
    pod_nodes=4,
)
_TRN3 = Instance(
    name="trn3.48xlarge",
    generation=Generation.MARIANA,
    fabric=fabric.TRN3_SWITCH,
    cores_per_chip=8,
    core_sizes=LNC2_FIRST,
    network_gbps=3200,
    link="2048 GiB/s a chip",
    memory_gib=2304,
    pod_type=PodType.SWITCH,
    pod_nodes=4,
    note="wiring known only as all-to-all; platform by instance name; a quarter of the pod's"
    " network and memory",
)
_TRN3_SLED = replace(
    _TRN3,
    name="trn3e.24xlarge",
    fabric=fabric.TRN3_SLED,
    network_gbps=800,
    link="256 GB/s a chip in the sled, 320 in the rack, 128 between racks",
    memory_gib=576,
    pod_nodes=36,
    rack_nodes=18,
    note="a thirty-sixth of the pod's network and memory; two racks of 18 are our reading",
)
_ALL = (
    replace(_TRN1, name="trn1.2xlarge", fabric=fabric.SINGLE, network_gbps=0, link="",
            memory_gib=32, spans_nodes=False),
    _TRN1,
    replace(_TRN1, name="trn1n.32xlarge", network_gbps=1600, link="768 GiB/s a chip"),
    replace(_INF2, name="inf2.xlarge", fabric=fabric.SINGLE, link="", memory_gib=32),
    replace(_INF2, name="inf2.8xlarge", fabric=fabric.SINGLE, link="", memory_gib=32),
    replace(_INF2, name="inf2.24xlarge", fabric=fabric.INF2_CHAIN, memory_gib=192),
    _INF2,
    replace(_TRN2, name="trn2.3xlarge", fabric=fabric.SINGLE, network_gbps=0, link="",
            memory_gib=96, note="not in the vendor's local documentation"),
    _TRN2,
    _TRN2U,
    replace(_TRN2U, name="trn2-ultraserver", servers=4),
    replace(_TRN3, name="trn3.3xlarge", fabric=fabric.SINGLE, network_gbps=0, link="",
            memory_gib=144, pod_type=PodType.NONE, pod_nodes=1, note="known by name only"),
    _TRN3,
    _TRN3_SLED,
    replace(
        _TRN3,
        name="trn3p.48xlarge",
        fabric=fabric.TRN2_TORUS,
        pod_type=PodType.P2P,
        note="the torus platform reuses trn2's routing ids; pod type is a guess",
    ),
    replace(_TRN3, name="trn3-gen1-ultraserver", servers=4),
    replace(_TRN3_SLED, name="trn3-gen2-ultraserver", servers=36),
)  # fmt: skip
INSTANCES: Mapping[str, Instance] = MappingProxyType({each.name: each for each in _ALL})
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "trn2p.48xlarge": "trn2u.48xlarge",
        "trn2eu.48xlarge": "trn2u.48xlarge",
        "trn2n.48xlarge": "trn2.48xlarge",
        "trn2": "trn2.48xlarge",
        "trn2u": "trn2u.48xlarge",
        "trn1": "trn1.32xlarge",
        "trn1n": "trn1n.32xlarge",
        "inf2": "inf2.48xlarge",
        "trn3": "trn3.48xlarge",
        "trn3s-es.48xlarge": "trn3.48xlarge",
        "trn3sn.48xlarge": "trn3.48xlarge",
        "trn3sn-es.48xlarge": "trn3.48xlarge",
        "trn3e": "trn3e.24xlarge",
        "trn3p": "trn3p.48xlarge",
        "trn3pd98.3xlarge": "trn3.3xlarge",
        "trn3s-es.3xlarge": "trn3.3xlarge",
        "trn3sn.3xlarge": "trn3.3xlarge",
        "trn3sn-es.3xlarge": "trn3.3xlarge",
    }
)


def instance_named(name: str) -> Instance | None:
    """The row of a name or an alias."""
    return INSTANCES.get(ALIASES.get(name, name))


def generic(chips: int) -> Instance:
    """A host of *chips* devices of which nothing else is known."""
    return Instance(
        name="generic", generation=None, fabric=fabric.open_fabric(chips), cores_per_chip=1
    )
