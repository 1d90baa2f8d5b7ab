"""RM1 and RM2: what can be wrong with the groups and pairs of one program, and with messages."""

from __future__ import annotations

from rankmuster.explanations.base import Explanation

GROUPS = {
    "RM101": Explanation(
        "An id is not one that the world has. In HLO the id counts replicas, partitions or "
        "devices, as the op's group mode says; a root is a position in its group.",
        "A mesh larger than the world, ids that count from 1, or counts that neither the file's "
        "header nor --replicas and --partitions give right.",
        "[[0,1],[2,8]] in a world of 8",
    ),
    "RM102": Explanation(
        "An id stands twice in one set. A device has one place in a set.",
        "Groups that were written by hand or concatenated.",
        "[[0,1],[1,2]]",
    ),
    "RM103": Explanation(
        "A set does not name every device. XLA demands that it does, so in HLO this is an error; "
        "elsewhere a device may stay out, and this is only told. In a NEFF it also stands for sets "
        "that name different numbers of devices.",
        "A group was lost, or counts are larger than the groups were built for.",
        "[[0,1],[2,3]] in a world of 8",
    ),
    "RM104": Explanation(
        "The op hands each member an equal share, and the groups have different sizes; or a group "
        "is empty.",
        "A mesh that does not divide the world, patched by hand.",
        "an all-gather over {{0,1,2},{3,4}}",
    ),
    "RM105": Explanation(
        "The shapes of operand and result speak of another group size than the groups do.",
        "The text was edited, or pasted together from two programs.",
        "an all-gather from f32[4] to f32[16] over groups of two",
    ),
    "RM106": Explanation(
        "The Neuron runtime has a fixed number of places for group sets: 12, and 16 from release "
        "2.34.10 on. Reported only where the program or --cluster says that it is for Neuron.",
        "Many parallelism axes at once, or the same groups written in several orders.",
        "13 sets in a NEFF",
    ),
    "RM107": Explanation(
        "A group list in short form does not multiply out: its dimensions and its ids disagree.",
        "A hand-written iota or mesh list.",
        "[2,4]<=[6]",
    ),
    "RM108": Explanation(
        "The attributes ask for a way of counting ids that XLA does not allow for this op.",
        "use_global_device_ids without channel_id, without groups, or on an op that has none.",
        "an all-reduce with use_global_device_ids=true and no channel_id",
    ),
    "RM109": Explanation(
        "The text states a group mode, and its other attributes make another one.",
        "Edited text. The stated mode is the one that is used.",
        "mode=flattened_id without use_global_device_ids",
    ),
    "RM201": Explanation(
        "A device sends twice in one permute.",
        "Pairs that were concatenated. (XLA's in-place form may name an id twice.)",
        "[[0,1],[0,2]]",
    ),
    "RM202": Explanation(
        "A device receives twice in one permute: one arrival would overwrite the other.",
        "Pairs that were concatenated. (XLA's in-place form may name an id twice.)",
        "[[0,2],[1,2]]",
    ),
    "RM203": Explanation(
        "A pair names a device that the world does not have.",
        "A ring that was closed by adding one instead of modulo the size.",
        "[[6,7],[7,8]] in a world of 8",
    ),
    "RM204": Explanation(
        "Neuron hardware permutes along closed rings; this component is a chain or has loose ends.",
        "A pipeline that sends forward only.",
        "[[0,1],[1,2],[2,3]] without [3,0]",
    ),
    "RM205": Explanation(
        "Neighbours in a ring sit on chips without a link, so their data passes other chips.",
        "The order of the ring does not follow the chips' torus.",
        "chips 0 and 10 of a 4x4 torus as neighbours",
    ),
    "RM206": Explanation(
        "The k-th send from one device to another has no k-th receive of the same size, type and "
        "loop count; whoever waits for it waits for ever.",
        "One end runs another number of microbatches, or another shape; or a send to a fixed "
        "device stands in a file that several devices run; or, in scheduled HLO, another op begins "
        "between a send and its receive.",
        "device 0 sends two messages to device 1, which posts one receive",
    ),
    "RM207": Explanation(
        "The permute has no pairs, so nobody sends.",
        "A mesh axis of size one.",
        "source_target_pairs={}",
    ),
    "RM208": Explanation(
        "Both ends post the same messages, in different orders, and nothing in them tells which is "
        "which. An error where unlike sizes or types would meet, else a warning.",
        "Two transfers between the same devices without labels.",
        "device 0 sends activations, then gradients; device 1 receives gradients first",
    ),
}
