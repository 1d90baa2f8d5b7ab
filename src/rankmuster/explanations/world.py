"""RM0, RM4 and RM5: the world, where its groups lie, and the deadlocks that the runtime avoids."""

from __future__ import annotations

from rankmuster.explanations.base import Explanation

WORLD = {
    "RM001": Explanation(
        "Not everybody believes in the same number of devices.",
        "Files state worlds of different sizes, or processes were started with different counts. "
        "One stale dump in a folder is enough.",
        "seven files say world_size 8 and one says 16",
    ),
    "RM002": Explanation(
        "The program names more devices than there are.",
        "It was compiled for a larger job, or too few processes were started, or --cluster names "
        "fewer nodes than the program was written for.",
        "a program for 16 devices under `rankmuster up -n 8`",
    ),
    "RM003": Explanation(
        "The program is for fewer devices than the world has. The original cannot bring up a part "
        "of a world before the whole, and neither does `up`; `check` warns.",
        "A small program was given to a large job.",
        "a program that states world_size 4 under `rankmuster up -n 8`",
    ),
    "RM004": Explanation(
        "The runtime cuts a world into virtual servers of equal size, and this size leaves a rest.",
        "A virtual-server size that was set for another world.",
        "virtual servers of 3 devices in a world of 8",
        is_reserved=True,
    ),
    "RM005": Explanation(
        "What a node says of its pod cannot be: the type is none of the three, or its number is "
        "not below the pod's size (below 4 behind a switch).",
        "Settings were copied from another node or another kind of pod.",
        "node 5 of a pod behind a switch",
        is_reserved=True,
    ),
    "RM006": Explanation(
        "Two things that one process says about itself cannot both be true. The process takes part "
        "with one of them, so that all others learn whom to blame.",
        "A variable that a script exports beats or contradicts the launcher's; a count of devices "
        "does not add up to the world; a JSON program beside a NEFF has other groups; the rank "
        "in a program file is another process's; or a card said one program and the frames said "
        "another.",
        "RANK=3 stays exported while Slurm starts this process as number 0",
    ),
    "RM401": Explanation(
        "A group spans more chips, nodes, pods or racks than its size calls for, and no heavier "
        "group needs that place more.",
        "The order of the mesh axes: the outermost axis is the one that is torn apart.",
        "the pair 0,4 on two hosts of four devices, while 0,1 would fit into one",
    ),
    "RM402": Explanation(
        "Nodes do not give a group the same number of devices, or not the same ones. The Neuron "
        "runtime wants both.",
        "A group was built from a list of devices instead of a mesh axis.",
        "a group with three devices on node 0 and one on node 1",
    ),
    "RM403": Explanation(
        "Two or more cores work as one device, and program and cluster differ in how many.",
        "NEURON_LOGICAL_NC_CONFIG or the compiler's --lnc was set for one of them only.",
        "128 devices on one trn2.48xlarge, which has 64 at logical-core size 2",
    ),
    "RM404": Explanation(
        "What a server says about its chips, or a program about those it was compiled for, "
        "contradicts what the cluster was said to be, or another server; or the world takes a part "
        "of a server that the runtime does not take.",
        "The listing is of another kind of instance, a chip is missing from it, or the program was "
        "compiled for another; or somebody asked for 24 cores of a trn1, whose runtime takes 1, 2, "
        "8, 16 or a multiple of 32.",
        "--cluster trn2u.48xlarge:4:ls=node0.json where node0.json lists twelve chips",
    ),
    "RM501": Explanation(
        "Two kinds of groups of eight occur together that could wait for each other in the DMA "
        "engines, so the runtime routes one of them over proxies on two devices. It runs, slower.",
        "On Trn2 and Trn3 at logical-core size 2: some device is in a group of eight on two "
        "neighbouring chips and in one that takes a rank of each of eight chips.",
        "groups 0-7 and 0,4,8,12,16,20,24,28 in one program",
    ),
    "RM502": Explanation(
        "Behind a NeuronSwitch, a group holds two chips that share no port, so the runtime gives "
        "up routing by destination. It runs, slower.",
        "The layout of a group on a pod with switches.",
        "a group over two chips without a common switch port",
    ),
    "RM503": Explanation(
        "Every process of a circle waits for the next one, so none moves, although no two of them "
        "take turns otherwise. Collectives are looked at, in programs without branches; exchanges "
        "on pairs, sends and receives are not.",
        "Each process meets its neighbours of a ring in an order of its own.",
        "device 0 enters 0,1 and then 2,0, device 1 enters 1,2 and then 0,1, device 2 enters 2,0 "
        "and then 1,2",
    ),
}
