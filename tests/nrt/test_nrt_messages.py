"""Every message that S0 and S1 quote: one place in the source, and one way to produce it."""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from nrt_worlds import Agreeable, node, registry, settings

import rankmuster
from rankmuster import messages
from rankmuster.errors import MusterError, PeerLost, SetupFailed
from rankmuster.messages import Message
from rankmuster.node import Driver
from rankmuster.nrt.comms import get_nccl_comm
from rankmuster.nrt.groups import parse_src_target_pairs
from rankmuster.nrt.log import LOGGER, report
from rankmuster.nrt.model import Compat, Model
from rankmuster.nrt.streams import StreamMap
from rankmuster.protocol.frames import pack_ticket
from rankmuster.testing.build import all_reduce, permute, program
from rankmuster.transport.base import Deadline
from rankmuster.worlds.global_comm import GlobalComm
from rankmuster.worlds.registry import WorldRegistry
from rankmuster.worlds.setup import check_invariants, setup

SOURCES = [path.read_text() for path in Path(str(rankmuster.__file__)).parent.rglob("*.py")]
ALL = program(all_reduce(7), groups=[[[0, 1, 2, 3]]])
NO = SetupFailed("the library says no")
LOST = PeerLost("device 1 went away")


def soon() -> Deadline:
    return Deadline.after(2.0)


def made(the_node: Any = None, **rest: Any) -> GlobalComm:
    return registry(the_node, **rest).init(0, 1, 4, 0)


def make_locks(left: int) -> None:
    count = iter(range(1000))

    def scarce() -> Any:
        if next(count) == left:
            raise OSError(12, "no")
        return threading.Lock()

    WorldRegistry(node(), make_lock=scarce).create_locks()


def init_twice() -> None:
    worlds = registry()
    worlds.init(0, 1, 4, 0)
    worlds.init(0, 1, 8, 0)


def register_twice() -> None:
    worlds = registry()
    worlds.set(0, 0, worlds.init(0, 1, 4, 0))


def validate(count: int) -> None:
    worlds = registry()
    worlds.init(0, 1, 4, 0)
    worlds.validate(0, 1, count, 0)


def no_memory(size: int) -> mmap.mmap:
    raise OSError(12, "Cannot allocate memory")


class Root(Agreeable):
    """The same library, for the device of rank 0, which hears verdicts."""

    def bootstrap_recv(self, comm: Any, peer: int, nbytes: int, deadline: Deadline) -> bytes:
        self._check("bootstrap_recv")
        return bytes(16) + b"\x01"


def world(nccom: Agreeable, device: int = 3) -> GlobalComm:
    worlds = registry()
    comm = worlds.init(0, device, 4, 0)
    setup(worlds, comm, nccom, soon())
    return comm


def load(nccom: Agreeable, device: int = 3, **fails: Exception) -> None:
    comm = world(nccom, device)
    nccom.fails |= fails
    model = Model([ALL], comm, nccom, settings(), compat=Compat())
    model.parse()
    try:
        model.load(soon())
    finally:
        rings = comm.local_rings
        assert rings is not None
        rings.close()


def contradict(**changes: Any) -> None:
    comm = world(Agreeable())
    rings, ci = comm.local_rings, comm.comm.ci
    assert rings is not None
    assert ci is not None
    rings.close()
    if "rank" in changes or "rank_n" in changes:
        comm.comm.ci = replace(ci, **changes)
    else:
        for name, value in changes.items():
            setattr(comm, name, value)
    check_invariants(comm)


def told_no() -> None:
    nccom = Agreeable()
    nccom.bootstrap_recv = lambda *_: pack_ticket(bytes(128), agrees=False)
    load(nccom)


def sign_late() -> None:
    nccom = Agreeable()
    comm = world(nccom)
    rings = comm.local_rings
    assert rings is not None
    model = Model([ALL], comm, nccom, settings(), compat=Compat())
    model.parse()
    model.load(soon())
    model.unload()
    rings.close()
    model.calculate_signature()


def barrier_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LOST

    nccom = Agreeable()
    comm = world(nccom)
    rings = comm.local_rings
    assert rings is not None
    rings.close()
    monkeypatch.setattr("rankmuster.nrt.comms.open_barrier", refuse)
    model = Model([ALL], comm, nccom, settings(), compat=Compat())
    model.parse()
    model.load(soon())


def bad_record(stream: int, rank: int) -> None:
    nccom = Agreeable()
    comm = world(nccom)
    rings = comm.local_rings
    assert rings is not None
    rings.close()
    model = Model([ALL], comm, nccom, settings(), compat=Compat())
    model.parse()
    record = model.replica_groups[0]
    record.bootstrap_rank = rank
    get_nccl_comm(comm, record, stream, nccom, soon(), disable_graph=True)


def too_many_groups() -> None:
    nccom = Agreeable()
    comm = world(nccom)
    rings = comm.local_rings
    assert rings is not None
    rings.close()
    many = program(permute(), groups=[[[0, 1, 2, 3]]] * 12, pairs=[[(0, 1), (1, 0)]])
    Model([many], comm, nccom, settings(), compat=Compat()).parse()


CASES: list[tuple[Message, str, str, Callable[[], Any]]] = [
    (messages.INIT_LOCK, "Failed to create global comm init lock",
     "Failed to create global comm init lock (ret=12)", lambda: make_locks(4)),
    (messages.SETUP_LOCK, "Failed to create global comm setup lock",
     "Failed to create global comm setup lock (ret=12)", lambda: make_locks(5)),
    (messages.NO_CORE, "Failed to find core", "Failed to find core 99",
     lambda: registry().init(99, 0, 4, 0)),
    (messages.NO_MLA, "Failed to get MLA", "Failed to get MLA",
     lambda: made(node(chips=frozenset()))),
    (messages.NO_TDRV, "TDRV not initialized!", "TDRV not initialized!",
     lambda: made(node(driver=None))),
    (messages.OTHER_WORLD, "NRT has already been setup with a collectives world size of",
     "NRT has already been setup with a collectives world size of 4", init_twice),
    (messages.NO_DIVISOR, "is not a divisor of world size",
     "virtual server size 3 is not a divisor of world size 4",
     lambda: made(virtual_server_size=3)),
    (messages.NO_MAPPING,
     "global comm failed to mmap memory for the semaphore increment value buffer",
     "global comm failed to mmap memory for the semaphore increment value buffer",
     lambda: made(map_memory=no_memory)),
    (messages.POD_TYPE, "Invalid pod_type:", "Invalid pod_type: 3",
     lambda: made(node(driver=Driver(pod_type=3)))),
    (messages.POD_NODE, "Invalid pod_node_id:",
     "Invalid pod_node_id: 4294967295 (pod_size: 8) pod_type:1",
     lambda: made(node(driver=Driver(pod_type=1, pod_sz=8)))),
    (messages.NOT_REGISTERED, "failed to set global comm", "failed to set global comm",
     register_twice),
    (messages.LARGER_PROGRAM, "is greater than world size of global communicator",
     "World size of neff 8 is greater than world size of global communicator 4",
     lambda: validate(8)),
    (messages.SMALLER_PROGRAM, "Recommend nrt_build_global_comm first.",
     "World size of neff != global communicator. Recommend nrt_build_global_comm first.",
     lambda: validate(2)),
    (messages.SETUP_RANK, "g_device_id == comm.ci.rank", "g_device_id == comm.ci.rank",
     lambda: contradict(rank=2)),
    (messages.SETUP_SIZE, "g_device_cnt == comm.ci.rank_n", "g_device_cnt == comm.ci.rank_n",
     lambda: contradict(rank_n=5)),
    (messages.SETUP_RINGS, "local_rings != NULL", "local_rings != NULL",
     lambda: contradict(local_rings=None)),
    (messages.SETUP_HANDLES, "local_peer_handles != NULL", "local_peer_handles != NULL",
     lambda: contradict(local_peer_handles=None)),
    (messages.NOT_PARSING, "cannot calculate CC signature: not in parse state",
     "cannot calculate CC signature: not in parse state (3)", sign_late),
    (messages.STREAM_RANGE, "stream_id < ENC_MAX_STREAM_N",
     "enc.cc:0x29D: stream_id < ENC_MAX_STREAM_N, got 4", lambda: bad_record(4, 3)),
    (messages.NO_UNIQUE_ID, "failed to get unique ID", "failed to get unique ID",
     lambda: load(Root(), 0, get_unique_id=NO)),
    (messages.GROUP_RANK, "rank_n > 0 && rank < rank_n",
     "enc.cc:0x114: rank_n > 0 && rank < rank_n, got rank 5 of 4", lambda: bad_record(0, 5)),
    (messages.NOT_RECEIVED, "failed to receive signature validation result from",
     "failed to receive signature validation result from 1",
     lambda: load(Root(), 0, bootstrap_recv=LOST)),
    (messages.NOT_SENT, "failed to send signature validation result to",
     "failed to send signature validation result to 1",
     lambda: load(Agreeable(), bootstrap_send=LOST)),
    (messages.MISMATCH, "failed signature validation", "[gid: 0] failed signature validation",
     told_no),
    (messages.MISMATCH, "mismatched collectives between the peers",
     "mismatched collectives between the peers", lambda: load(Root(), 0)),
    (messages.NO_COMM, "failed to init NCCL comm stream_id:",
     "failed to init NCCL comm stream_id:0 group_id:0",
     lambda: load(Agreeable(), init_comm=NO)),
    (messages.NO_STREAM, "!= ENC_STREAM_ID_UNINITIALIZED",
     "enc.cc:0x68C: stream_id_map[2] != ENC_STREAM_ID_UNINITIALIZED",
     lambda: StreamMap(1, 12).resolve(2, 1)),
    (messages.NO_WORLD, "Global communicator was not created. Unable to parse targets.",
     "(hint: was `nrt_load_collectives` called?)",
     lambda: parse_src_target_pairs(None, [], {}, key_order="declared", max_groups=12)),
    (messages.NO_PAIRS_GROUP, "Failed to parse replica group generated from source_target_pairs",
     "Failed to parse replica group generated from source_target_pairs 0", too_many_groups),
]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "text", "said", "trigger"), CASES, ids=[case[1] for case in CASES]
)
def test_message(entry: Message, text: str, said: str, trigger: Callable[[], Any]) -> None:
    """The message is produced by what S0 and S1 say produces it, and knows its function."""
    with pytest.raises((MusterError, AssertionError)) as caught:
        trigger()
    assert said in str(caught.value)
    what = getattr(caught.value, "what", None) or caught.value.args[0]
    assert getattr(what, "origin", entry) is entry


def test_local_barrier_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local barrier that cannot be set up is told in S0's words, with the reason."""
    with pytest.raises(SetupFailed, match="failed to setup local barrier; device 1 went away"):
        barrier_fails(monkeypatch)


def test_unique_id_tag() -> None:
    """The id is asked for with S0's tag."""
    asked = []

    class Asked(Root):
        def get_unique_id(self, size: int, tag: str) -> bytes:
            asked.append((size, tag))
            raise NO

    with pytest.raises(MusterError):
        load(Asked(), 0)
    assert asked == [(4, "nccl init comm")]


TEXTS = [*(case[1] for case in CASES), "failed to setup local barrier", '"nccl init comm"']


def test_messages_stand_once() -> None:
    """No message is written down twice."""
    counts = {text: sum(source.count(text) for source in SOURCES) for text in TEXTS}
    assert {text: count for text, count in counts.items() if count != 1} == {}


def test_every_message_has_a_case() -> None:
    """The table holds nothing that no test produces."""
    table = {name for name, value in vars(messages).items() if isinstance(value, Message)}
    tested = {name for name in table for case in CASES if getattr(messages, name) is case[0]}
    assert table - tested == {"NO_LOCAL_BARRIER", "UNIQUE_ID_TAG"}


def test_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The log names module, function and level as the original does, causes first."""
    with pytest.raises(MusterError) as caught:
        load(Root(), 0, bootstrap_recv=LOST)
    with caplog.at_level(logging.INFO, LOGGER.name):
        report(caught.value, "nrt_load_collectives")
    lines = [(r.levelname, r.module, r.funcName, r.message) for r in caplog.records]
    assert [line[:3] for line in lines] == [
        ("ERROR", "ENC", "validate_rg_signature"),
        ("ERROR", "NRT", "nrt_load_collectives"),
    ]
    assert lines[0][3].startswith("failed to receive signature validation result from 1")
