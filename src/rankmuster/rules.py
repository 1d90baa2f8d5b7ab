"""Every finding code: severity, what it means, and what to do. Codes are stable.

`rankmuster explain CODE` prints an entry; `finding()` takes its severity and fix from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class Rule(NamedTuple):
    """One finding code. `severity` is the default: a reader or a target may raise or lower it."""

    severity: Literal["error", "warning", "info"]
    title: str
    fix: str


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        # world
        "RM001": Rule(
            "error", "world sizes differ", "start every process with the same world size"
        ),
        "RM002": Rule(
            "error",
            "the program is larger than the world",
            "start as many devices as the program names, or recompile it for this world",
        ),
        "RM003": Rule(
            "error",
            "a program for a smaller world came before the full world was built",
            "build the full world on all ranks first",
        ),
        "RM004": Rule(
            "error",
            "the virtual-server size does not divide the world",
            "choose a virtual-server size that divides the world size",
        ),
        "RM005": Rule(
            "error", "pod type or pod node out of range", "check the pod settings of this node"
        ),
        "RM006": Rule(
            "error",
            "one process's own sources disagree",
            "make the launcher's variables and the options agree, or remove one of them",
        ),
        # groups
        "RM101": Rule(
            "error",
            "id out of range",
            "check the mesh or the replica groups against the world size",
        ),
        "RM102": Rule("error", "id repeated", "name each id once"),
        "RM103": Rule("error", "ids missing from the groups", "let the groups cover every id"),
        "RM104": Rule(
            "error",
            "uneven groups where the op needs even ones",
            "give every group the same number of members",
        ),
        "RM105": Rule(
            "error",
            "group size does not fit the operand shapes",
            "recompile: shapes and groups come from different meshes",
        ),
        "RM106": Rule(
            "error",
            "more communicators than the runtime has room for",
            "merge group sets, or move to a runtime with more room",
        ),
        "RM107": Rule(
            "error",
            "the product of an iota or mesh group list does not fit",
            "check the dimensions of the group list",
        ),
        "RM108": Rule(
            "error",
            "group mode not allowed for this op",
            "check channel_id and use_global_device_ids of the op",
        ),
        "RM109": Rule(
            "error",
            "the stated group mode contradicts the attributes",
            "remove mode=, or make the attributes agree with it",
        ),
        # pairs
        "RM201": Rule("error", "source repeated", "send from each device once per permute"),
        "RM202": Rule("error", "target repeated", "receive on each device once per permute"),
        "RM203": Rule(
            "error", "id out of range in a pair", "check the pairs against the world size"
        ),
        "RM204": Rule(
            "warning",
            "component is not a ring",
            "Neuron hardware permutes along rings only: close the chain",
        ),
        "RM205": Rule(
            "warning",
            "ring neighbours without a direct link",
            "reorder the ring so that neighbours share a link",
        ),
        "RM206": Rule(
            "error",
            "send and receive do not pair",
            "post one receive for each send, in the same order, with the same size and type",
        ),
        "RM207": Rule(
            "warning",
            "no pairs at all",
            "a permute without pairs moves nothing: remove it, or give it pairs",
        ),
        "RM208": Rule(
            "warning",
            "untagged messages cross",
            "tag the messages, or post them in one order on both sides",
        ),
        # agreement
        "RM301": Rule(
            "error",
            "op kinds differ",
            "run the same program on every rank: look for a branch on the rank or a stale build",
        ),
        "RM302": Rule(
            "error",
            "element counts differ",
            "recompile the ranks that differ with the same batch and shapes",
        ),
        "RM303": Rule(
            "error",
            "element types differ",
            "recompile the ranks that differ with the same precision settings",
        ),
        "RM304": Rule(
            "error",
            "reduce ops differ",
            "use one reduce op on every rank: this difference gives wrong numbers, not a hang",
        ),
        "RM305": Rule(
            "error",
            "root, dimension or splits differ",
            "make root, dimension and splits agree on every rank",
        ),
        "RM306": Rule(
            "error", "op missing or extra", "look for a branch that only some ranks take"
        ),
        "RM307": Rule("error", "same ops, other order", "issue the ops in one order on every rank"),
        "RM308": Rule(
            "error", "group membership differs", "build the groups from one mesh on every rank"
        ),
        "RM309": Rule(
            "error",
            "groups are created in another order",
            "create all groups on all ranks in one order",
        ),
        "RM310": Rule("info", "same communication, other text", ""),
        "RM311": Rule("error", "loop counts differ", "run the same number of steps on every rank"),
        "RM312": Rule(
            "warning",
            "nothing to compare: no collectives",
            "give the program after partitioning (*after_optimizations.txt)",
        ),
        "RM313": Rule(
            "warning",
            "processes may take different branches",
            "take the collectives out of the branch, or branch on shared data",
        ),
        "RM314": Rule("info", "trip count unknown", ""),
        # placement
        "RM401": Rule(
            "warning", "a group crosses a boundary that it need not", "reorder the mesh axes"
        ),
        "RM402": Rule(
            "warning",
            "nodes contribute unevenly to a group",
            "let each node hold the same number of the group's members",
        ),
        "RM403": Rule(
            "error",
            "logical-core size of program and cluster differ",
            "compile for the cluster's logical-core size",
        ),
        "RM404": Rule(
            "warning", "topology claims differ", "check what each node says about itself"
        ),
        # deadlock
        "RM501": Rule(
            "warning",
            "two-device proxy forced",
            "expect a slower DMA path, or lay one of the two groups out differently",
        ),
        "RM502": Rule(
            "warning",
            "destination routing disabled",
            "expect slower routes, or decide it: NEURON_RT_DBG_DISABLE_RMV_DST_ROUTING",
        ),
        "RM503": Rule(
            "error",
            "processes wait for each other in a circle",
            "let all processes enter what they share in one order",
        ),
        # bring-up
        "RM601": Rule("error", "absent", "look at the log of the processes that are missing"),
        "RM602": Rule(
            "error", "lost", "look at the last lines that the lost process printed, or at its log"
        ),
        "RM603": Rule(
            "error",
            "deadline passed",
            "find what holds up the processes named, or raise --deadline",
        ),
        "RM604": Rule("info", "strangers refused", ""),
        "RM605": Rule("error", "device claimed twice", "give each process its own devices"),
        "RM606": Rule("error", "wrong secret", "give every process of the job the same secret"),
        "RM607": Rule(
            "error", "versions differ", "install one version of rankmuster on every host"
        ),
        "RM608": Rule(
            "warning", "address that peers cannot reach", "choose the interface with --interface"
        ),
        # input
        "RM701": Rule(
            "error", "malformed", "correct it at the place named, or dump the program again"
        ),
        "RM702": Rule(
            "error", "unsupported version", "write the file with a version that this release reads"
        ),
        "RM703": Rule(
            "warning", "constants elided from the text", "dump with large constants printed"
        ),
        "RM704": Rule("info", "something was inferred", ""),
        "RM705": Rule(
            "warning",
            "the recorder's ring buffer lost the beginning",
            "record with a larger buffer",
        ),
        "RM706": Rule(
            "warning",
            "this evidence does not record what would decide it",
            "compare the programs themselves, or a format that records the field",
        ),
    }
)
