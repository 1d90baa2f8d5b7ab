"""The entry points over real connections: what each returns, on every device."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from dataclasses import fields
from typing import Any

import pytest
from nrt_worlds import Agreeable, free_root, in_threads, node, world_of

from rankmuster import nrt
from rankmuster.environment import BY_NAME
from rankmuster.node import Node
from rankmuster.nrt import NrtCcComm, Out, Runtime, Status
from rankmuster.program import OpKind
from rankmuster.testing.build import all_reduce, permute, program
from rankmuster.transport import link
from rankmuster.transport.framing import Frame, Kind, pack

FOUR = [bytes(4)], [bytes(4)]
OK = Status.SUCCESS
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
STEP = program(all_reduce(7), permute(), groups=[[[0, 1], [2, 3]]], pairs=[RING])
OTHER = program(all_reduce(8), permute(), groups=[[[0, 1], [2, 3]]], pairs=[RING])
TEXT = b"""{"format": "rankmuster.program/1", "world_size": 1, "replica_groups": [[[0]]],
 "ops": [{"kind": "all_reduce", "group": 0, "elements": 8, "dtype": "f32", "reduce": "add"}]}"""


def load(runtime: Runtime, device: int, size: int, what: Any = STEP) -> tuple[Status, Any]:
    out: Out[Any] = Out()
    length = len(what) if isinstance(what, bytes) else 0
    status = runtime.nrt_load_collectives(what, length, 0, -1, device, size, out)
    return status, out.value


def alone(**rest: Any) -> Runtime:
    given = {"environ": {"NEURON_RT_ROOT_COMM_ID": free_root()}, "deadline_s": 5.0}
    runtime = Runtime(**(given | rest))
    assert runtime.nrt_init(0, "2.0", "2.0") is OK
    return runtime


def test_the_whole_way() -> None:
    """Four devices build, load, meet, gather, prepare a host-driven op, and close."""

    def body(runtime: Runtime, device: int) -> list[Any]:
        built = runtime.nrt_build_global_comm(0, device, 4)
        loaded, model = load(runtime, device, 4)
        gathered = bytearray(8)
        steps = [
            *(built, loaded, runtime.nrt_barrier(0, device, 4)),
            runtime.nrt_all_gather(0, device, 4, 2, bytes([device] * 2), gathered),
            runtime.nrt_cc_global_comm_init(0, device, 4),
            runtime.nrt_unload(model),
            runtime.nrt_unload(model),
        ]
        ids = [runtime.enc_get_cluster_id(0, ctx) for ctx in (0, 1)]
        return [steps, bytes(gathered), ids, runtime.enc_get_epoch(0) > 0]

    told = world_of(4, body)
    assert told[0][0] == [OK] * 6 + [Status.INVALID_HANDLE]
    assert told[0][1] == bytes([0, 0, 1, 1, 2, 2, 3, 3])
    assert len(set(told[0][2])) == 2
    assert all(each == told[0] for each in told)


def test_loading_makes_the_world() -> None:
    """Without a world, loading makes one of the context's size."""
    told = world_of(4, lambda runtime, device: load(runtime, device, 4)[0])
    assert told == [OK] * 4


def test_one_program_differs() -> None:
    """A process with another program ends every load in a failure at once; the world goes on."""

    def body(runtime: Runtime, device: int) -> list[Status]:
        first = load(runtime, device, 4, OTHER if device == 3 else STEP)[0]
        return [first, load(runtime, device, 4)[0], runtime.nrt_barrier(0, device, 4)]

    began = time.monotonic()
    assert world_of(4, body) == [[Status.FAILURE, OK, OK]] * 4
    assert time.monotonic() - began < 4.0


@pytest.mark.parametrize("bad", [b"hello", program(all_reduce(7), groups=[[[0, 1], [2, 9]]])])
def test_one_program_cannot_be_loaded(bad: Any) -> None:
    """Its process knows at once; when it closes so do those whose group it is in."""

    def body(runtime: Runtime, device: int) -> list[Status]:
        built = runtime.nrt_build_global_comm(0, device, 4)
        groups = program(all_reduce(7), groups=[[[0, 1], [2, 3]]])
        return [built, load(runtime, device, 4, bad if device == 1 else groups)[0]]

    began = time.monotonic()
    told = world_of(4, body, deadline_s=20.0)
    assert told == [[OK, Status.FAILURE], [OK, Status.INVALID], [OK, OK], [OK, OK]]
    assert time.monotonic() - began < 10.0


def test_without_signatures() -> None:
    """With check_sigs off nothing is compared and everybody agrees (D15)."""
    off = {"NEURON_RT_DBG_CC_CHECK_SIGS": "0"}
    told = world_of(
        4,
        lambda runtime, device: load(runtime, device, 4, OTHER if device == 3 else STEP)[0],
        environ=off,
    )
    assert told == [OK] * 4


def test_a_pool_hit_checks_too() -> None:
    """A second load of the same group shares its node, and still finds a program that differs."""

    def body(runtime: Runtime, device: int) -> list[Any]:
        _, first = load(runtime, device, 4)
        _, second = load(runtime, device, 4)
        node_of = second.comms[0].nccl_comm_node
        shared = node_of is first.comms[0].nccl_comm_node
        differs = load(runtime, device, 4, OTHER if device == 1 else STEP)[0]
        return [shared, node_of.refcnt, differs]

    told = world_of(4, body)
    assert told == [[True, 2, Status.FAILURE]] * 4


def test_several_machines() -> None:
    """The barrier meets on each machine, then across them, then again."""
    hosts = ("a", "b", "a", "b", "c")

    def body(runtime: Runtime, device: int) -> list[Any]:
        steps = [runtime.nrt_build_global_comm(0, device, 5)]
        steps += [runtime.nrt_barrier(0, device, 5) for _ in range(3)]
        world = runtime.registry.get(0, 0)
        assert world is not None
        assert world.local_peer_handles is not None
        return [steps, world.local_ranks, tuple(world.local_peer_handles), world.rank_nodes]

    told = world_of(5, body, hosts=hosts)
    assert [each[0] for each in told] == [[OK] * 4] * 5
    assert [each[1] for each in told] == [(0, 2), (1, 3), (0, 2), (1, 3), (4,)]
    assert all(each[2] == each[1] and each[3] == (0, 1, 0, 1, 2) for each in told)


def test_the_barrier_fails_for_good() -> None:
    """A device that never comes is a timeout, and the next barrier fails without waiting."""

    def body(runtime: Runtime, device: int) -> list[Any]:
        built = runtime.nrt_build_global_comm(0, device, 2)
        if device == 1:
            time.sleep(1.4)
            return [built]
        first = runtime.nrt_barrier(0, device, 2)
        began = time.monotonic()
        return [built, first, runtime.nrt_barrier(0, device, 2), time.monotonic() - began < 0.5]

    told = world_of(2, body, deadline_s=1.0)
    assert told[0] == [OK, Status.TIMEOUT, Status.TIMEOUT, True]


def test_exchanges_are_of_the_whole_world() -> None:
    """Another count, or another device's id, is refused on all devices; the world goes on."""

    def body(runtime: Runtime, device: int) -> list[Status]:
        calls = [(device, 3), (device, 2), ((device + 1) % 3, 3), (7, 9), (device, 3)]
        gathers = [
            runtime.nrt_all_gather(0, me, count, 1, b"a", bytearray(count)) for me, count in calls
        ]
        return gathers + [runtime.nrt_barrier(0, me, count) for me, count in calls]

    wrong = [Status.INVALID] * 3
    assert world_of(3, body) == [[OK, *wrong, OK] * 2] * 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NEURON_RT_DBG_CC_CHECK_SIGS", "0"),
        ("NEURON_RT_DBG_CC_SORT_RG", "1"),
        ("RANKMUSTER_NRT_KEY_ORDER", "sorted"),
    ],
)
def test_settings_that_must_be_alike(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A device whose frames, signatures or trees would be others is refused where all meet."""
    root = {"NEURON_RT_ROOT_COMM_ID": free_root()}

    def one(device: int) -> list[Status]:
        runtime = Runtime(environ=root | ({name: value} if device else {}), deadline_s=1.0)
        calls = [runtime.nrt_init(0, "", ""), runtime.nrt_build_global_comm(0, device, 2)]
        return [*calls, runtime.nrt_close()]

    assert in_threads([lambda: one(0), lambda: one(1)]) == [[OK, Status.INVALID, OK]] * 2
    assert f"{name}=" in caplog.text


class SlowNode(Node):
    """A machine that takes its time to find a core."""

    asked = threading.Event()

    def virtual_core(self, vnc: int) -> Any:
        self.asked.set()
        time.sleep(0.1)
        return super().virtual_core(vnc)


def test_closing_while_a_world_is_made() -> None:
    """Whoever makes a world while the runtime closes hears so, and the world goes too."""
    slow = SlowNode(**{each.name: getattr(node(), each.name) for each in fields(Node)})
    runtime = Runtime(environ={}, nccom=Agreeable(), node=slow, deadline_s=5.0)
    runtime.nrt_init(0, "", "")

    def close() -> Status:
        slow.asked.wait(5.0)
        return runtime.nrt_close()

    built, closed = in_threads([lambda: runtime.nrt_build_global_comm(0, 3, 4), close])
    assert closed is OK
    assert built in {OK, Status.CLOSED}
    assert len(runtime.registry) == 0


@pytest.mark.parametrize("deadline", [-1.0, float("nan"), "60"])
def test_a_deadline_that_is_none(deadline: Any) -> None:
    """A runtime is not made with a deadline that its calls could not keep."""
    with pytest.raises((ValueError, TypeError)):
        Runtime(deadline_s=deadline)


def test_two_cores_of_one_process() -> None:
    """Two cores of one runtime are two devices of the world; each thread drives one."""
    runtime = alone()

    def one(core: int) -> list[Status]:
        return [
            runtime.nrt_build_global_comm(core, core, 2),
            runtime.nrt_load_collectives(
                program(all_reduce(7), groups=[[[0, 1]]]), 0, core, -1, core, 2, Out()
            ),
            runtime.nrt_barrier(core, core, 2),
        ]

    assert in_threads([lambda: one(0), lambda: one(1)]) == [[OK] * 3] * 2
    assert runtime.nrt_close() is OK


def test_the_wire_holds_the_md5(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes up the tree is 17 bytes: the group's MD5 and a yes."""
    frames: list[bytes] = []

    def watch(frame: Frame) -> bytes:
        if frame.kind is Kind.CALLER and len(frame.payload) in {17, 129}:
            frames.append(frame.payload)
        return pack(frame)

    monkeypatch.setattr(link, "pack", watch)

    def body(runtime: Runtime, device: int) -> bytes:
        model = load(runtime, device, 2, program(all_reduce(7), groups=[[[0, 1]]]))[1]
        return model.replica_groups[0].signature

    signature = world_of(2, body)[1]
    assert frames[0] == signature + b"\x01"
    assert [len(frame) for frame in frames] == [17, 129]
    assert frames[1][128:] == b"\x01"


def test_states() -> None:
    """Before init every call says 13, after close 14; initialising twice is fine."""
    runtime = Runtime(environ={}, nccom=Agreeable())
    calls = {
        "build": lambda: runtime.nrt_build_global_comm(0, 0, 1),
        "user": lambda: runtime.nrt_cc_global_comm_init(0, 0, 1),
        "load": lambda: load(runtime, 0, 1, TEXT)[0],
        "unload": lambda: runtime.nrt_unload(None),
        "barrier": lambda: runtime.nrt_barrier(0, 0, 1),
        "gather": lambda: runtime.nrt_all_gather(0, 0, 1, 1, b"a", bytearray(1)),
        "prepare": lambda: runtime.nrta_cc_prepare(host_comm(), *FOUR, 0xA, 0, 1, Out()),
        "close": runtime.nrt_close,
    }  # fmt: skip
    assert {name: call() for name, call in calls.items()} == dict.fromkeys(calls, 13)
    assert (runtime.nrt_init(0, "", ""), runtime.nrt_init(0, "", "")) == (OK, OK)
    assert runtime.nrt_close() is OK
    assert {name: call() for name, call in calls.items()} == dict.fromkeys(calls, 14)
    assert runtime.nrt_init(0, "", "") is Status.CLOSED


def host_comm(**changes: Any) -> NrtCcComm:
    given = {"replica_group": (0,), "rank": 0, "rank_n": 1, "ctx_device_id": 0}
    return NrtCcComm(**(given | {"ctx_device_count": 1, "vnc": 0} | changes))


def test_host_driven_collectives() -> None:
    """The op counts what facts E4 says, in a world of its own context."""
    runtime = alone()
    wanted = {0: (OpKind.ALL_GATHER, 4), 1: (OpKind.ALL_REDUCE, 4), 2: (OpKind.REDUCE_SCATTER, 2)}
    for cc_op, (kind, elements) in wanted.items():
        out: Out[Any] = Out()
        buffers = [bytes(16)], [bytes(8)]
        assert runtime.nrta_cc_prepare(host_comm(), *buffers, 0xA, 0, cc_op, out) is OK
        (op,) = out.value.resolved.program.walk()
        assert (op.kind, op.elements, op.dtype) == (kind, (elements,), ("f32",))
    assert [world.identity.ctx_id for world in runtime.registry] == [1]
    assert runtime.nrt_close() is OK


def freed() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


def closed_map() -> mmap.mmap:
    memory = mmap.mmap(-1, 16)
    memory.close()
    return memory


def square() -> memoryview:
    return memoryview(bytes(4)).cast("B", (2, 2))


BAD: dict[str, Any] = {
    "framework": lambda r: r.nrt_init(9, "", ""),
    "core": lambda r: r.nrt_build_global_comm(99, 0, 1),
    "core of -1": lambda r: r.nrt_build_global_comm(-1, 0, 1),
    "no number": lambda r: r.nrt_build_global_comm("0", 0, 1),
    "id": lambda r: r.nrt_build_global_comm(0, 1, 1),
    "negative id": lambda r: r.nrt_build_global_comm(0, -1, 1),
    "no devices": lambda r: r.nrt_cc_global_comm_init(0, 0, 0),
    "no program": lambda r: load(r, 0, 1, b"hello")[0],
    "cut program": lambda r: r.nrt_load_collectives(TEXT, 20, 0, -1, 0, 1, Out()),
    "size": lambda r: r.nrt_load_collectives(TEXT, len(TEXT) + 1, 0, -1, 0, 1, Out()),
    "no out": lambda r: r.nrt_load_collectives(TEXT, len(TEXT), 0, -1, 0, 1, None),
    "no buffer": lambda r: r.nrt_load_collectives(7, 0, 0, -1, 0, 1, Out()),
    "no function": lambda r: r.nrt_load_collectives([], 0, 0, -1, 0, 1, Out()),
    "no part": lambda r: r.nrt_load_collectives([7], 0, 0, -1, 0, 1, Out()),
    "no set": lambda r: load(r, 0, 1, program(all_reduce(7)))[0],
    "short out": lambda r: r.nrt_all_gather(0, 0, 1, 4, bytes(4), bytearray(3)),
    "short in": lambda r: r.nrt_all_gather(0, 0, 1, 4, bytes(3), bytearray(4)),
    "read-only": lambda r: r.nrt_all_gather(0, 0, 1, 4, bytes(4), bytes(4)),
    "large": lambda r: r.nrt_all_gather(0, 0, 1, 9 << 20, bytes(9 << 20), bytearray(9 << 20)),
    "dtype": lambda r: r.nrta_cc_prepare(host_comm(), [b""], [b""], 99, 0, 1, Out()),
    "op": lambda r: r.nrta_cc_prepare(host_comm(), [b""], [b""], 0xA, 7, 1, Out()),
    "cc_op": lambda r: r.nrta_cc_prepare(host_comm(), [b""], [b""], 0xA, 0, [], Out()),
    "part": lambda r: r.nrta_cc_prepare(host_comm(), [b"a"], [b"a"], 0xA, 0, 1, Out()),
    "unpaired": lambda r: r.nrta_cc_prepare(host_comm(), [bytes(4)], [], 0xA, 0, 1, Out()),
    "no tensors": lambda r: r.nrta_cc_prepare(host_comm(), [], [], 0xA, 0, 1, Out()),
    "no list": lambda r: r.nrta_cc_prepare(host_comm(), 5, 5, 0xA, 0, 1, Out()),
    "rank": lambda r: r.nrta_cc_prepare(host_comm(rank=1), *FOUR, 0xA, 0, 1, Out()),
    "other id": lambda r: r.nrta_cc_prepare(
        host_comm(replica_group=(5,)), *FOUR, 0xA, 0, 1, Out()),
    "no comm": lambda r: r.nrta_cc_prepare(None, *FOUR, 0xA, 0, 1, Out()),
    "no group": lambda r: r.nrta_cc_prepare(
        host_comm(replica_group=None), *FOUR, 0xA, 0, 1, Out()),
    "no count": lambda r: r.nrta_cc_prepare(host_comm(rank_n=[1]), *FOUR, 0xA, 0, 1, Out()),
    "true": lambda r: r.nrta_cc_prepare(host_comm(), *FOUR, 0xA, 0, True, Out()),
    "freed program": lambda r: r.nrt_load_collectives(freed(), 0, 0, -1, 0, 1, Out()),
    "freed in": lambda r: r.nrt_all_gather(0, 0, 1, 1, freed(), bytearray(1)),
    "closed out": lambda r: r.nrt_all_gather(0, 0, 1, 1, b"a", closed_map()),
    "freed list": lambda r: r.nrta_cc_prepare(host_comm(), freed(), freed(), 0xA, 0, 1, Out()),
    "square": lambda r: r.nrta_cc_prepare(host_comm(), square(), square(), 0xA, 0, 1, Out()),
}  # fmt: skip


@pytest.mark.parametrize("which", BAD)
def test_wrong_arguments_are_statuses(which: str) -> None:
    """Whatever a caller gets wrong is NRT_INVALID, never an exception, and costs nothing."""
    runtime = Runtime(environ={}, nccom=Agreeable())
    assert runtime.nrt_init(0, "", "") is OK
    assert BAD[which](runtime) is Status.INVALID
    assert runtime.nrt_close() is OK


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({}, Status.INVALID),
        ({"NEURON_RT_ROOT_COMM_ID": "nowhere"}, Status.INVALID),
        ({"NEURON_RT_ROOT_COMM_ID": "a..b:80"}, Status.INVALID),
        ({"NEURON_RT_ROOT_COMM_ID": "x" * 70 + ":80"}, Status.INVALID),
        ({"NEURON_RT_ROOT_COMM_ID": "10.255.0.1:99"}, Status.INVALID),
    ],
    ids=["unset", "malformed", "empty part", "long part", "no secret"],
)
def test_root_address(environ: dict[str, str], status: Status) -> None:
    """A world needs the root's address, and a secret beyond this machine."""
    runtime = Runtime(environ=environ, deadline_s=1.0)
    assert runtime.nrt_init(0, "", "") is OK
    assert runtime.nrt_build_global_comm(0, 0, 2) is status
    assert len(runtime.registry) == 0
    assert runtime.nrt_close() is OK


@pytest.mark.parametrize(
    "environ",
    [
        {"NEURON_RT_DBG_CC_CHECK_SIGS": "maybe"},
        {"NEURON_RT_VISIBLE_CORES": "0,2"},
        {"NEURON_RT_VISIBLE_CORES": "60-70"},
        {"NEURON_RT_FAKE_INSTANCE_TYPE": "trn9"},
        {"NEURON_RT_VIRTUAL_CORE_SIZE": "1", "NEURON_LOGICAL_NC_CONFIG": "2"},
        {"RANKMUSTER_NRT_LIBNCCOM": "libnothing-of-that-name.so"},
        *({name: "\udcff"} for name in BY_NAME),
        *({name: "a\0b"} for name in BY_NAME),
        {"RANKMUSTER_NRT_MAX_GROUPS": "0" * 20 + "999"},
    ],
)
def test_init_reads_the_environment(environ: dict[str, str]) -> None:
    """A variable that cannot be is refused by nrt_init, which may be tried again."""
    runtime = Runtime(environ=environ)
    assert runtime.nrt_init(0, "", "") in {Status.INVALID, Status.FAILURE}
    assert runtime.nrt_build_global_comm(0, 0, 1) is Status.UNINITIALIZED


def test_no_host_memory() -> None:
    """Python's MemoryError is NRT_FAIL_HOST_MEM_ALLOC."""
    nccom = Agreeable()
    nccom.fails["init"] = MemoryError()
    assert Runtime(environ={}, nccom=nccom).nrt_init(0, "", "") is Status.FAIL_HOST_MEM_ALLOC


def test_a_failed_set_up_may_be_repeated() -> None:
    """What one call began and could not finish is gone: another size is welcome."""
    nccom = Agreeable()
    runtime = Runtime(environ={}, nccom=nccom, node=node())
    runtime.nrt_init(0, "", "")
    nccom.fails["init_global"] = OSError(5, "no")
    assert runtime.nrt_build_global_comm(0, 3, 4) is Status.FAILURE
    nccom.fails.clear()
    assert runtime.nrt_build_global_comm(0, 1, 2) is OK
    assert runtime.nrt_close() is OK
    assert nccom.open == []


def test_closing_frees_the_youngest_first() -> None:
    """Groups go before their world, and of the groups the last formed first."""
    nccom = Agreeable()
    closed: list[int] = []
    close = nccom.close_comm
    nccom.close_comm = lambda comm: (closed.append(len(comm.participants)), close(comm))
    runtime = Runtime(environ={}, nccom=nccom)
    runtime.nrt_init(0, "", "")
    three = program(all_reduce(7), groups=[[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[0, 1], [2, 3]]])
    assert load(runtime, 3, 4, three)[0] is OK
    runtime.nrt_close()
    assert closed == [2, 3, 4, 4]


def test_the_default_runtime() -> None:
    """The module's functions are one runtime's; the names are the original's."""
    names = (
        *("nrt_init", "nrt_build_global_comm", "nrt_load_collectives", "nrt_barrier"),
        *("nrt_all_gather", "nrt_cc_global_comm_init", "nrta_cc_prepare", "nrt_close"),
    )
    assert {getattr(nrt, name).__self__ for name in names} == {nrt.DEFAULT}
    assert nrt.nrt_barrier(0, 0, 1) is Status.UNINITIALIZED


def test_node_id() -> None:
    """A process that owns cores 4 to 7 counts them from 0, on the chips below them."""
    environ = {"NEURON_RT_VISIBLE_CORES": "4-7", "NEURON_RT_ULTRASERVER_NODE_ID": "2"}
    environ |= {"NEURON_RT_FAKE_INSTANCE_TYPE": "trn2u", "NEURON_RT_ULTRASERVER_SERVER_ID": "77"}
    environ |= {"NEURON_RT_ROOT_COMM_ID": free_root(), "NEURON_RT_VIRTUAL_CORE_SIZE": "2"}
    runtime = alone(environ=environ)
    assert runtime.nrt_build_global_comm(1, 0, 1) is OK
    assert runtime.nrt_build_global_comm(4, 0, 1) is Status.INVALID
    world = runtime.registry.get(1, 0)
    assert world is not None
    identity = world.identity
    assert (identity.nec_dev_id, identity.vtpb_idx, identity.mla_idx) == (1, 5, 1)
    assert (identity.pod_type, identity.pod_node_id, identity.pod_sz) == (1, 2, 4)
    assert (identity.reservation_id, identity.routing_id) == (77, 8)
    assert struct.calcsize("<129I") == len(world.inc_recv_sem_values_buffer)
    assert world.comm.ci is not None
    assert world.comm.ci.peers[0].pid == os.getpid()
    assert runtime.nrt_close() is OK


def test_a_neff_loads() -> None:
    """A NEFF gives its groups; ops that it does not record are none, and its groups still form."""
    from rankmuster.testing.neff import neff

    data = neff(replica_groups=[[[0, 1]]], src_target_pairs=[[[0, 1], [1, 0]]])
    told = world_of(2, lambda runtime, device: load(runtime, device, 2, data))
    assert [status for status, _ in told] == [OK, OK]
    assert [list(model.comms) for _, model in told] == [[], []]  # given back by closing
    assert [len(model.replica_groups) for _, model in told] == [2, 2]
