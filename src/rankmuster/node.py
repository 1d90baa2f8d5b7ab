"""This machine as the runtime's device broker and driver describe it: cores, chips, pod.

There are no chips here; the node is made up from the name of a server, or by a test. Knows no
world and no program.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rankmuster.arch.chip import silicon
from rankmuster.arch.instances import ALIASES, INSTANCES, instance_named
from rankmuster.arch.layout import VirtualCore, VirtualLayout
from rankmuster.arch.pods import ALONE, PodMode, PodType, Seat, view
from rankmuster.environment import BadSetting, Settings
from rankmuster.errors import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the driver knows of the server (`tdrv_ctx`): its place in a pod.

    `pod_type` is the driver's number, which need not be one of `PodType`.
    """

    pod_type: int = PodType.NONE
    pod_node_id: int = ALONE.node
    pod_sz: int = ALONE.size
    reservation_id: int = ALONE.serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One server, and which of its cores this process owns.

    `visible` are host-wide core numbers; the process counts its own from 0 (`nec_dev`). `chips` are
    those that this process may open. `rids` are routing ids by chip. `driver` is None before the
    driver is up.
    """

    layout: VirtualLayout
    rids: tuple[int, ...]
    visible: range
    chips: frozenset[int]
    driver: Driver | None = field(default_factory=Driver)
    name: str = ""

    def virtual_core(self, vnc: int) -> VirtualCore | None:
        """`vtpb_get_virtual_core`: the process's *vnc*-th core, None where it has none."""
        if not 0 <= vnc < len(self.visible):
            return None
        core = self.layout.virtual_core(self.visible[vnc])
        return core and VirtualCore(nec_dev=vnc, tpbs=core.tpbs)

    def vtpb_idx(self, nec_dev: int) -> int:
        """A core's host-wide number; -1 where the process has none (facts D42)."""
        return self.visible[nec_dev] if 0 <= nec_dev < len(self.visible) else -1

    def mla_idx(self, core: VirtualCore) -> int | None:
        """The chip below a core, None where this process may not open it."""
        chip = core.tpbs[0] // self.layout.driver.num_tpb
        return chip if chip in self.chips else None

    def host_device_id(self, mla_idx: int) -> int:
        """The host's own number of a chip; alike here, where no container hides any."""
        return mla_idx


def node_from(settings: Settings) -> Node:
    """The server that `NEURON_RT_FAKE_INSTANCE_TYPE` names, as this process may use it.

    Raises `BadSetting` for what that server has not.
    """
    given = settings["NEURON_RT_FAKE_INSTANCE_TYPE"]
    instance = instance_named(given)
    if instance is None or instance.generation is None:
        hint = did_you_mean(given, {*INSTANCES, *ALIASES})
        raise BadSetting(f"NEURON_RT_FAKE_INSTANCE_TYPE={given!r} is no server", fix=hint)
    core_size = settings.core_size or instance.core_sizes[0]
    if core_size not in instance.core_sizes:
        allowed = ", ".join(map(str, sorted(instance.core_sizes)))
        raise BadSetting(
            f"{instance.name} has no logical-core size {core_size}", fix=f"use {allowed}"
        )
    layout = VirtualLayout(
        driver=silicon(instance.generation).driver, core_size=core_size, chips=instance.chips
    )
    return Node(
        layout=layout,
        rids=instance.fabric.rids,
        visible=visible_cores(settings, layout.num_vcores),
        chips=frozenset(range(instance.chips)),
        driver=driver_from(settings, instance.pod_type, instance.pod_nodes),
        name=instance.name,
    )


def visible_cores(settings: Settings, count: int) -> range:
    """The process's cores of a server that has *count*. Raises `BadSetting`."""
    visible: range | None = settings["NEURON_RT_VISIBLE_CORES"]
    wanted = settings["NEURON_RT_NUM_CORES"]
    chosen = visible or range(wanted or count)
    if chosen[-1] >= count:
        raise BadSetting(
            f"the process asks for cores {chosen[0]}-{chosen[-1]} of a server that has {count}",
            fix="mend NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES",
        )
    return chosen


def driver_from(settings: Settings, pod_type: PodType, pod_nodes: int) -> Driver:
    """The server's place in its pod; none where nobody names it or the mode forbids it (D40)."""
    node: int | None = settings["NEURON_RT_ULTRASERVER_NODE_ID"]
    if node is None or settings["NEURON_RT_ULTRASERVER_SINGLE_NODE"] or pod_type is PodType.NONE:
        return Driver()
    seat = Seat(node=node, size=pod_nodes, serial=settings["NEURON_RT_ULTRASERVER_SERVER_ID"])
    if (
        pod_type is PodType.P2P and node < pod_nodes
    ):  # a seat out of range is refused later, by name
        seat = view(seat, PodMode(settings["NEURON_RT_ULTRASERVER_MODE"]))
    if seat == ALONE:
        return Driver()
    return Driver(
        pod_type=pod_type, pod_node_id=seat.node, pod_sz=seat.size, reservation_id=seat.serial
    )
