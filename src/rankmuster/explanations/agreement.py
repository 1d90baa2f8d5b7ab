"""RM3: how the programs of a world differ, or cannot be compared."""

from __future__ import annotations

from rankmuster.explanations.base import Explanation

AGREEMENT = {
    "RM301": Explanation(
        "In the same place of a communicator, devices post different kinds of op.",
        "A branch on the rank in the model, or a stale build on one host.",
        "devices 0-6 post all_reduce where device 7 posts all_gather",
    ),
    "RM302": Explanation(
        "The same op moves different numbers of elements. Most libraries hang, or read past the "
        "end of a buffer.",
        "Another batch size, sequence length or padding; a last batch that is not full; a checkout "
        "of another commit.",
        "devices 0-4,6-7 post all_reduce of 128 f32 where device 5 posts 192 f32",
    ),
    "RM303": Explanation(
        "The same op moves elements of different types.",
        "Mixed precision that is switched on for some ranks only, or a compiler flag.",
        "bf16 on seven devices and f32 on one",
    ),
    "RM304": Explanation(
        "The same op reduces with different functions. Nothing hangs; the numbers are wrong.",
        "A changed loss or norm; another version of a computation that is written out in full.",
        "seven devices add and one takes the maximum",
    ),
    "RM305": Explanation(
        "Members disagree about the root, the dimension along which data is cut, or how many "
        "elements go from whom to whom.",
        "A root that was computed from local state; splits of an all-to-all that nobody exchanged.",
        "device 0 sends 3 elements to device 1, which expects 4 of it",
    ),
    "RM306": Explanation(
        "One side posts an op that the other does not.",
        "A branch that only some ranks take, such as logging or a check for overflow on rank 0.",
        "device 0 posts 25 ops on a group where its seven peers post 24",
    ),
    "RM307": Explanation(
        "The same ops in another order: in one communicator, or taking turns between two that the "
        "same devices share. Each then waits for the other.",
        "Collectives that are issued from several threads, or in the order of a set or dict; a "
        "schedule that depends on the host.",
        "device 1 enters group 1 before group 0, its peers group 0 first",
    ),
    "RM308": Explanation(
        "Processes place the same op in different groups.",
        "A mesh that was built from a device list in another order.",
        "device 2 forms 2,3 and device 3 forms 3,2",
    ),
    "RM309": Explanation(
        "Processes create the same groups in different orders. Libraries that number groups as "
        "they are created then mix them up.",
        "Groups that are created inside a branch on the rank.",
        "device 0 creates 0-3 first, device 1 creates 0,1 first",
        is_reserved=True,
    ),
    "RM310": Explanation(
        "The programs differ, but not in anything that devices do together; or only in messages, "
        "splits and names. With --same it is an error.",
        "Pipeline stages: each runs its own program and shares with the others only what it sends.",
        "two halves of a world that have no group in common",
    ),
    "RM311": Explanation(
        "The same loop runs a different number of times.",
        "Another number of layers, steps or microbatches.",
        "a loop of 12 on seven devices and of 11 on one",
    ),
    "RM312": Explanation(
        "The program holds nothing to compare, and that is no agreement.",
        "A dump from before partitioning, where collectives do not exist yet; a module that is no "
        "training step; a NEFF, which does not record ops.",
        "the *before_optimizations.txt of an XLA dump",
    ),
    "RM313": Explanation(
        "A branch depends on the rank, and its bodies communicate differently: whoever takes one "
        "meets nobody who takes the other.",
        "lax.cond on axis_index with a collective inside.",
        "an all_reduce in one of two bodies",
    ),
    "RM314": Explanation(
        "How often a loop runs is not known, so the counts of two processes cannot be compared.",
        "The loop ends on data, or the text does not say.",
        '"trips": null',
    ),
}
