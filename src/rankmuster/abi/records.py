"""The group records of a program as one device holds them, and their images.

`enc_replica_group_info` (S0 §3) and `enc_src_target_pairs_info` (S1 §4). Content behind pointers is
kept in a `Memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankmuster.abi.groups import PAIRS, REPLICA_GROUP
from rankmuster.abi.memory import Memory
from rankmuster.errors import InvalidProgram
from rankmuster.group import SubGroup

NOBODY = -1  # the rank of a device that is no member
NO_SIGNATURE = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """One group of one device; `participants` are all members, by global id, in written order.

    `bootstrap_participants` are those that exchange id and signature, and `bootstrap_rank` is the
    device's place among them. `pairs_id` is None for a declared group. Not a member: ranks None.
    """

    rank: int | None
    group_id: int
    pairs_id: int | None = None
    num_ops: int = 0
    sendrecv: bool = False
    nccl_mesh_supported: bool = False
    must_use_ring_alg: bool = False
    signature: bytes = NO_SIGNATURE
    participants: SubGroup = ()
    bootstrap_participants: SubGroup = ()
    bootstrap_rank: int | None = None

    @property
    def rank_n(self) -> int:
        """How many members bootstrap: the length of the pool's key in ids (facts D22)."""
        return len(self.bootstrap_participants)

    def pack(self, memory: Memory) -> bytes:
        """The 96 bytes; both member lists go into *memory*."""
        image = REPLICA_GROUP.structure(
            rank=or_nobody(self.rank),
            rank_n=self.rank_n,
            group_id=self.group_id,
            src_target_pairs_id=or_nobody(self.pairs_id),
            num_ops=self.num_ops,
            sendrecv=self.sendrecv,
            nccl_mesh_supported=self.nccl_mesh_supported,
            must_use_ring_alg=self.must_use_ring_alg,
            signature=tuple(self.signature),
            bootstrap_rank=or_nobody(self.bootstrap_rank),
        )
        held = bytearray(image)
        for name in ("participants", "bootstrap_participants"):
            at = REPLICA_GROUP.offset_of(name)
            held[at : at + 24] = memory.put_u32_vector(getattr(self, name))
        return bytes(held)

    @staticmethod
    def unpack(image: bytes, memory: Memory) -> GroupRecord:
        """Read what `pack` wrote. Raises InvalidProgram for another size or foreign pointers."""
        held = REPLICA_GROUP.read(image)
        record = GroupRecord(
            rank=or_none(held.rank),
            group_id=held.group_id,
            pairs_id=or_none(held.src_target_pairs_id),
            num_ops=held.num_ops,
            sendrecv=bool(held.sendrecv),
            nccl_mesh_supported=bool(held.nccl_mesh_supported),
            must_use_ring_alg=bool(held.must_use_ring_alg),
            signature=bytes(held.signature),
            participants=memory.get_u32_vector(bytes(held.participants)),
            bootstrap_participants=memory.get_u32_vector(bytes(held.bootstrap_participants)),
            bootstrap_rank=or_none(held.bootstrap_rank),
        )
        if held.rank_n != record.rank_n:
            what = f"rank_n is {held.rank_n}, and {record.rank_n} participants bootstrap"
            raise InvalidProgram(what, offset=REPLICA_GROUP.offset_of("rank_n"))
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsRecord:
    """One pairs set of one device: all its pairs, sorted, and the component with the device."""

    pairs: tuple[tuple[int, int], ...]
    participants: SubGroup
    pairs_id: int
    group_id: int
    rank: int | None
    signature: bytes = NO_SIGNATURE

    def pack(self, memory: Memory) -> bytes:
        """The 80 bytes; pairs and members go into *memory*."""
        image = PAIRS.structure(
            signature=tuple(self.signature),
            rank=or_nobody(self.rank),
            rank_n=len(self.participants),
            replica_group_id=self.group_id,
            src_target_pairs_id=self.pairs_id,
        )
        held = bytearray(image)
        held[0:24] = memory.put_u32_lists(self.pairs)
        held[24:48] = memory.put_u32_vector(self.participants)
        return bytes(held)

    @staticmethod
    def unpack(image: bytes, memory: Memory) -> PairsRecord:
        """Read what `pack` wrote. Raises InvalidProgram for another size or foreign pointers."""
        held = PAIRS.read(image)
        lists = memory.get_u32_lists(bytes(held.pairs))
        if any(len(each) != 2 for each in lists):
            raise InvalidProgram("a pair has not two members", offset=0)
        return PairsRecord(
            pairs=tuple((source, target) for source, target in lists),
            participants=memory.get_u32_vector(bytes(held.participants)),
            pairs_id=held.src_target_pairs_id,
            group_id=held.replica_group_id,
            rank=or_none(held.rank),
            signature=bytes(held.signature),
        )


def or_nobody(number: int | None) -> int:
    """A number as the original writes it, -1 for none."""
    return NOBODY if number is None else number


def or_none(number: int) -> int | None:
    """A number as we hold it, None for a negative one."""
    return None if number < 0 else number
