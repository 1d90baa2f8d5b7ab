"""A loaded program's life: parse, load, start, stop (`enc_context`, `enc_model_state_t`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from rankmuster import messages
from rankmuster.environment import Settings
from rankmuster.errors import InvalidProgram, MusterError, OutOfOrder, WorldMismatch
from rankmuster.finding import Severity
from rankmuster.group import ReplicaGroups
from rankmuster.libnccom.boundary import Nccom
from rankmuster.nrt.comms import nccl_init_comm, refuse_group, release
from rankmuster.nrt.groups import (
    PairsRecord,
    ReplicaGroupRecord,
    parse_replica_group,
    parse_src_target_pairs,
)
from rankmuster.nrt.streams import StreamMap
from rankmuster.program import Program
from rankmuster.resolve import Resolved
from rankmuster.signature.libnrt import queues, sign
from rankmuster.transport.base import Deadline
from rankmuster.verify import own_world, verify
from rankmuster.worlds.global_comm import GlobalComm, GroupComm


class ModelState(IntEnum):
    """`enc_model_state_t`."""

    PARSE = 0
    LOAD = 1
    START = 2
    STOP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """Where the original's listing and sense part, its side of it; all off by default.

    *hash_only_nonmember_groups* signs the groups that this device is not in (facts D5);
    *strict_cpp* puts a device that no pair names into vertex 0's component (facts D30).
    """

    hash_only_nonmember_groups: bool = False
    strict_cpp: bool = False


class Model:
    """A program in a world, as its device sees it; `functions` are its parts, in order.

    Records and signatures are filled in by `parse`, communicators by `load`. Only the owner of the
    collective ops (`ccop_owner`) signs. One thread at a time: the caller holds the set-up lock.
    """

    def __init__(
        self,
        functions: Sequence[Program],
        world: GlobalComm,
        nccom: Nccom,
        settings: Settings,
        *,
        compat: Compat,
        ccop_owner: bool = True,
    ) -> None:
        self.functions = tuple(functions)
        self.world, self.nccom, self.settings, self.compat = world, nccom, settings, compat
        self.ccop_owner = ccop_owner
        self.state, self.unloaded = ModelState.PARSE, False
        self.replica_groups: list[ReplicaGroupRecord] = []
        self.src_target_pairs: list[PairsRecord] = []
        self.src_target_pairs_initialized = False
        self.signature: bytes | None = None
        self.comms: dict[int, GroupComm] = {}
        self.max_groups: int = settings["RANKMUSTER_NRT_MAX_GROUPS"]
        self.key_order: str = settings["RANKMUSTER_NRT_KEY_ORDER"]
        program = joined(self.functions)
        if settings["NEURON_RT_DBG_CC_SORT_RG"]:
            program = with_sorted_groups(program)
        self.resolved = Resolved(program)
        self.stream_id_map = StreamMap(program.num_streams, self.max_groups)

    # parse

    def parse(self) -> None:
        """Fill in the records, bind streams, sign.

        Raises InvalidProgram for groups that cannot be (facts D29, D34), `WorldMismatch` for a
        program larger than the world, `PoolExhausted` for too many groups or streams.
        """
        self._expect(ModelState.PARSE, "parse")
        self._check()
        device = self.world.identity.g_device_id
        ops = queues(self.resolved)
        declared = [each for each in self.resolved.sets if each.pairs is None]
        self.replica_groups = [
            parse_replica_group(
                *(each.id, each.by_device.get(device, ()), ops.get(each.id, ()), device),
                key_order=self.key_order,
                max_groups=self.max_groups,
            )
            for each in declared
        ]
        self.build_cc_context()
        for record in self.replica_groups:
            self.stream_id_map.bind(record.group_id, ops.get(record.group_id, ()))
        self.calculate_signature()

    def build_cc_context(self) -> None:
        """Parse the pairs, once a load however many instructions ask for it (S1 §3's gate)."""
        if self.src_target_pairs_initialized:
            return
        parsed = parse_src_target_pairs(
            self.world,
            [each for each in self.resolved.sets if each.pairs is not None],
            queues(self.resolved),
            key_order=self.key_order,
            max_groups=self.max_groups,
            strict_cpp=self.compat.strict_cpp,
        )
        self.src_target_pairs = [pairs for pairs, _ in parsed]
        self.replica_groups += [group for _, group in parsed]
        self.src_target_pairs_initialized = True

    def calculate_signature(self) -> None:
        """Sign the groups and the whole (`enc_calculate_signature`); the owner of the ops only.

        A group's ops are those of all functions, in their order. Raises `OutOfOrder` after parse.
        """
        if not self.ccop_owner:
            return
        if self.state is not ModelState.PARSE:
            raise OutOfOrder(messages.NOT_PARSING(self.state), fix="sign before the program loads")
        signed = sign(
            self.resolved,
            self.world.identity.g_device_id,
            hash_only_nonmember_groups=self.compat.hash_only_nonmember_groups,
        )
        for record in self.replica_groups:
            record.signature = bytes(signed.groups.get(record.group_id, record.signature))
        for pairs in self.src_target_pairs:
            pairs.signature = bytes(signed.groups.get(pairs.replica_group_id, pairs.signature))
        self.signature = None if signed.whole is None else bytes(signed.whole)

    def _check(self) -> None:
        size = self.world.identity.g_device_cnt
        claimed = own_world(self.resolved, size)
        if claimed > size:
            raise WorldMismatch(messages.LARGER_PROGRAM(claimed, size))
        for found in (*self.resolved.program.findings, *verify(self.resolved, size)):
            if found.severity is Severity.ERROR:
                raise InvalidProgram(f"{found.code}: {found.message}", fix=found.fix)

    # load, start, stop

    def load(self, deadline: Deadline) -> None:
        """Form the communicator of every group of ours, in table order (`enc_init_replica_groups`).

        Raises what `get_nccl_comm` raises, after saying no to the groups that are left, where
        others wait; what was formed before is given back.
        """
        self._expect(ModelState.PARSE, "load")
        ours = [record for record in self.replica_groups if record.rank >= 0]
        for at, record in enumerate(ours):
            try:
                self.comms[record.group_id] = self._form(record, deadline)
            except BaseException as error:
                if isinstance(error, MusterError):
                    self._refuse(ours[at + 1 :], error, deadline)
                self._release()
                raise
        self.state = ModelState.LOAD

    def _form(self, record: ReplicaGroupRecord, deadline: Deadline) -> GroupComm:
        streams, nccom = self.stream_id_map, self.nccom
        return nccl_init_comm(self.world, record, streams, nccom, self.settings, deadline)

    def _refuse(
        self, left: Sequence[ReplicaGroupRecord], no: MusterError, deadline: Deadline
    ) -> None:
        for record in left:
            stream_id = self.stream_id_map.resolve(record.group_id, record.num_ops)
            refuse_group(self.world, record, stream_id, no, self.nccom, deadline)

    def start(self) -> None:
        """Begin to run; a stopped program may start again. Raises `OutOfOrder`."""
        if self.unloaded or self.state is not ModelState.STOP:
            self._expect(ModelState.LOAD, "start")
        self.state = ModelState.START

    def stop(self) -> None:
        """End to run. Raises `OutOfOrder`."""
        self._expect(ModelState.START, "stop")
        self.state = ModelState.STOP

    def unload(self) -> None:
        """Give the communicators back, the last formed first; unloading twice is fine."""
        self._release()
        self.state, self.unloaded = ModelState.STOP, True

    def _release(self) -> None:
        while self.comms:
            _, comm = self.comms.popitem()
            assert comm.nccl_comm_node is not None
            with suppress(MusterError):  # a library that cannot free: the rest still goes
                release(self.world, comm.nccl_comm_node, self.nccom)

    def _expect(self, state: ModelState, call: str) -> None:
        if self.state is not state:
            raise OutOfOrder(f"{call} in state {self.state.name.lower()} of a program")


def joined(functions: Sequence[Program]) -> Program:
    """One program with the ops of all *functions* in order. Raises InvalidProgram.

    They share one table of groups and one of pairs, as the functions of a NEFF do.
    """
    if not functions:
        raise InvalidProgram("a program has at least one function")
    first = functions[0]
    tables = (first.replica_groups, first.src_target_pairs)
    for number, each in enumerate(functions):
        if (each.replica_groups, each.src_target_pairs) != tables:
            raise InvalidProgram(
                f"function {number} has other tables of groups and pairs than function 0",
                fix="give all functions of a program the same tables",
            )
    return msgspec.structs.replace(
        first,
        ops=tuple(node for each in functions for node in each.ops),
        num_streams=max(each.num_streams for each in functions),
        findings=tuple(found for each in functions for found in each.findings),
    )


def with_sorted_groups(program: Program) -> Program:
    """The program with each sub-group's members in ascending order (NEURON_RT_DBG_CC_SORT_RG)."""
    groups = (
        ReplicaGroups(tuple(tuple(sorted(members)) for members in each.members))
        for each in program.replica_groups
    )
    return msgspec.structs.replace(program, replica_groups=tuple(groups))
