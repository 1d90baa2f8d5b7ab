"""What the original says, in its own words: each line once, with the function that says it.

A line is called with its values and becomes a `Line`, text that knows where it comes from, so that
whoever reports an error can log it as the original does. Knows no logger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

ERROR = 40  # as `logging` counts


class Line(str):
    """A message with its values filled in; `origin` is the entry of this table."""

    __slots__ = ("origin",)
    origin: Message

    def __new__(cls, text: str, origin: Message) -> Self:
        """Make the text remember its *origin*."""
        line = super().__new__(cls, text)
        line.origin = origin
        return line


@dataclass(frozen=True, slots=True)
class Message:
    """One line: *function* of *module* says *text*, with printf fields, at a `logging` *level*."""

    function: str
    text: str
    module: str = "ENC"
    level: int = ERROR

    def __call__(self, *values: object) -> Line:
        """The line with *values* in its fields."""
        return Line(self.text % values, self)


# enc_init (S0 §6)
INIT_LOCK = Message("enc_init", "Failed to create global comm init lock (ret=%d)")
SETUP_LOCK = Message("enc_init", "Failed to create global comm setup lock (ret=%d)")

# enc_init_global_comm (S0 §6)
NO_CORE = Message("enc_init_global_comm", "Failed to find core %u")
NO_MLA = Message("enc_init_global_comm", "Failed to get MLA")
NO_TDRV = Message("enc_init_global_comm", "TDRV not initialized!")
OTHER_WORLD = Message(
    "enc_init_global_comm",
    "NRT has already been setup with a collectives world size of %d and global device id %d; "
    "asked for %d and %d",
)
NO_DIVISOR = Message(
    "enc_init_global_comm", "virtual server size %u is not a divisor of world size %u"
)
NO_MAPPING = Message(
    "enc_init_global_comm",
    "global comm failed to mmap memory for the semaphore increment value buffer",
)
POD_TYPE = Message("enc_init_global_comm", "Invalid pod_type: %u")
POD_NODE = Message("enc_init_global_comm", "Invalid pod_node_id: %u (pod_size: %u) pod_type:%d")
NOT_REGISTERED = Message("enc_init_global_comm", "failed to set global comm")

# enc_validate_global_comm (S0 §6)
LARGER_PROGRAM = Message(
    "enc_validate_global_comm",
    "World size of neff %d is greater than world size of global communicator %d",
)
SMALLER_PROGRAM = Message(
    "enc_validate_global_comm",
    "World size of neff != global communicator. Recommend nrt_build_global_comm first.",
)

# enc_setup_global_comm, its four assertions (S0 §6; facts D46)
SETUP_RANK = Message("enc_setup_global_comm", "enc.cc:0x3E5F: g_device_id == comm.ci.rank")
SETUP_SIZE = Message("enc_setup_global_comm", "enc.cc:0x3E60: g_device_cnt == comm.ci.rank_n")
SETUP_RINGS = Message("enc_setup_global_comm", "enc.cc:0x3E61: local_rings != NULL")
SETUP_HANDLES = Message("enc_setup_global_comm", "enc.cc:0x3E62: local_peer_handles != NULL")

# enc_calculate_signature (S0 §4)
NOT_PARSING = Message(
    "enc_calculate_signature", "cannot calculate CC signature: not in parse state (%d)"
)

# get_nccl_comm and what it calls (S0 §5)
STREAM_RANGE = Message("get_nccl_comm", "enc.cc:0x29D: stream_id < ENC_MAX_STREAM_N, got %d")
NO_UNIQUE_ID = Message("get_nccl_comm", "failed to get unique ID")
GROUP_RANK = Message(
    "validate_rg_signature", "enc.cc:0x114: rank_n > 0 && rank < rank_n, got rank %d of %d"
)
NOT_RECEIVED = Message(
    "validate_rg_signature", "failed to receive signature validation result from %d: %s"
)
NOT_SENT = Message("validate_rg_signature", "failed to send signature validation result to %d: %s")
MISMATCH = Message(
    "get_nccl_comm",
    "[gid: %u] failed signature validation: %s: mismatched collectives between the peers",
)
NO_COMM = Message("get_nccl_comm", "failed to init NCCL comm stream_id:%d group_id:%d")
NO_LOCAL_BARRIER = Message("get_nccl_comm", "failed to setup local barrier")
UNIQUE_ID_TAG = Message("get_nccl_comm", "nccl init comm", level=10)  # an argument, never logged

# nccl_init_comm (S0 §5)
NO_STREAM = Message(
    "nccl_init_comm",
    "enc.cc:0x68C: stream_id_map[%d] != ENC_STREAM_ID_UNINITIALIZED",
)

# enc_parse_src_target_pairs (S1 §3)
NO_WORLD = Message(
    "enc_parse_src_target_pairs",
    "Global communicator was not created. Unable to parse targets. "
    "(hint: was `nrt_load_collectives` called?)",
)
NO_PAIRS_GROUP = Message(
    "enc_parse_src_target_pairs",
    "Failed to parse replica group generated from source_target_pairs %d",
)
