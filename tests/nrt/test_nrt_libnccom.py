"""The libnccom boundary: ours over real connections, and a shared library's by its symbols."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from nrt_worlds import free_root, in_threads, settings

from rankmuster.environment import BadSetting
from rankmuster.errors import (
    Closed,
    DeadlineExceeded,
    MusterError,
    OutOfResources,
    PeerLost,
    SetupFailed,
    WorldMismatch,
)
from rankmuster.launch.secret import BadSecret
from rankmuster.libnccom import meeting
from rankmuster.libnccom.boundary import CommRequest, Nccom
from rankmuster.libnccom.info import PeerInfo, describe
from rankmuster.libnccom.ours import OurNccom, open_door, parse_root, secret_for
from rankmuster.libnccom.shared_library import SharedNccom
from rankmuster.nrt import Out, Runtime, Status
from rankmuster.testing.build import all_reduce, program
from rankmuster.transport.base import Deadline


def peer(device: int, host: str = "h", pid: int = 1, **rest: int) -> PeerInfo:
    fields = {"neuron_dev": 0, "rid": 0, "tpb_index": 0}
    fields |= {"pod_type": 0, "pod_node_id": 0, "reservation_id": 0, **rest}
    return PeerInfo(device=device, host=host, pid=pid, **fields)


def globally(device: int, size: int, root: str, context: int = 0) -> CommRequest:
    return CommRequest(
        participants=tuple(range(size)),
        rank=device,
        me=peer(device),
        context=context,
        root_comm_id=root,
    )


def soon(seconds: float = 5.0) -> Deadline:
    return Deadline.after(seconds)


def meet(sizes: list[int], *, devices: list[int] | None = None, heal_s: float = 0.5) -> list[Any]:
    """What becomes of devices that take the world for these sizes."""
    root = free_root()

    def one(number: int) -> Any:
        nccom = OurNccom(settings(), heal_s=heal_s)
        device = number if devices is None else devices[number]
        try:
            comm = nccom.init_comm(globally(device, sizes[number], root), soon(3.0))
        except MusterError as error:
            return error
        info = nccom.comm_info(comm)
        nccom.close_comm(comm)
        return info

    return in_threads([lambda number=number: one(number) for number in range(len(sizes))])


def test_all_members_see_one_world() -> None:
    """After the rendezvous all know the same peers, cluster id and epoch."""
    infos = meet([3, 3, 3])
    assert [(i.rank, i.rank_n, i.node_n) for i in infos] == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]
    assert len({(i.cluster_id, i.epoch, i.peers) for i in infos}) == 1
    assert infos[0].cluster_id > 0


def test_another_size_is_refused_by_name() -> None:
    """Whoever takes the world for another size is told; so is everybody else, after a while."""
    told = meet([3, 3, 4], devices=[0, 1, 2])
    assert [type(each) for each in told] == [WorldMismatch] * 3
    assert all("device 2" in str(each) and "4 devices" in str(each) for each in told)


def test_two_claim_one_device() -> None:
    """The second claim to a device is refused and named."""
    told = meet([3, 3, 3], devices=[0, 1, 1])
    assert [type(each) for each in told] == [WorldMismatch] * 3
    assert "device 1 is claimed by process" in str(told[0])


def test_who_never_came() -> None:
    """The root names the missing devices in time for the others to hear it."""
    told = meet([4, 4], heal_s=5.0)
    assert [type(each) for each in told] == [DeadlineExceeded] * 2
    assert all("devices 2-3 of 4 never came" in str(each) for each in told)


def test_no_root() -> None:
    """Without a root a device says whom it waited for."""
    with pytest.raises(DeadlineExceeded, match=r"was not there within 0\.3 s"):
        OurNccom(settings()).init_comm(globally(1, 2, free_root()), soon(0.3))


@pytest.mark.parametrize("root", ["", "host", "1.2.3.4:0", "fe80::1:99"])
def test_root_address_has_a_form(root: str) -> None:
    """A missing or malformed root address is answered with the form (D17)."""
    with pytest.raises(BadSetting, match=r"NEURON_RT_ROOT_COMM_ID.*ip:port, or \[ipv6\]:port"):
        parse_root(root)


def test_root_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that somebody keeps is named; an address of another machine too."""
    monkeypatch.setattr("rankmuster.libnccom.ours.HEAL_S", 0.1)
    root = free_root()
    door = open_door(root, soon())
    with door, pytest.raises(OutOfResources, match="somebody else listens there"):
        open_door(root, soon())
    with pytest.raises(BadSetting, match="device 0 cannot listen there"):
        open_door("192.0.2.1:99", soon())


def pair(first: Any, second: Any) -> list[Any]:
    """Run the two sides with (nccom, comm) of a world of two."""
    root = free_root()

    def one(device: int, body: Any) -> Any:
        nccom = OurNccom(settings())
        comm = nccom.init_comm(globally(device, 2, root), soon())
        try:
            return body(nccom, comm)
        finally:
            nccom.close_comm(comm)

    return in_threads([lambda: one(0, first), lambda: one(1, second)])


def test_frames_keep_their_order() -> None:
    """Frames of one sender come in the order in which they were sent."""
    sent = [bytes([n]) * (n + 1) for n in range(20)]

    def send(nccom: Nccom, comm: Any) -> None:
        for frame in sent:
            nccom.bootstrap_send(comm, 1, frame, soon())

    got = pair(send, lambda n, c: [n.bootstrap_recv(c, 0, 64, soon()) for _ in sent])
    assert got[1] == sent


def test_a_peer_that_left_is_lost() -> None:
    """Waiting for one that has gone ends before the deadline, also if it never dialled us."""

    def wait(nccom: Nccom, comm: Any) -> str:
        with pytest.raises(PeerLost) as caught:
            nccom.bootstrap_recv(comm, 0, 1, soon())
        return str(caught.value)

    assert "device 0" in pair(lambda _nccom, _comm: None, wait)[1]


def test_out_of_step() -> None:
    """After one wait ended by its deadline, the next ends at once and says why."""

    def impatient(nccom: Nccom, comm: Any) -> str:
        for _ in range(2):
            with pytest.raises(DeadlineExceeded) as caught:
                nccom.bootstrap_recv(comm, 1, 1, soon(0.1))
        return str(caught.value)

    def idle(nccom: Nccom, comm: Any) -> None:
        with pytest.raises(MusterError):
            nccom.bootstrap_recv(comm, 0, 1, soon(2.0))

    assert "out of step" in pair(impatient, idle)[0]


def test_communicators_of_a_world() -> None:
    """One made from a world knows its own members; the world's end is not its own."""

    def both(nccom: OurNccom, comm: Any) -> tuple[int, int]:
        device = comm.request.me.device
        unique_id = nccom.get_unique_id(2, "tag")
        request = CommRequest(
            participants=(1, 0), rank=1 - device, me=peer(device), context=0, parent=comm,
            unique_id=unique_id,
        )  # fmt: skip
        made = nccom.init_comm(request, soon())
        nccom.build_graph(made)
        info = nccom.comm_info(made)
        nccom.close_comm(made)
        with pytest.raises(Closed):
            nccom.comm_info(made)
        assert len(unique_id) == 128
        return info.rank, info.peers[0].device

    assert pair(both, both) == [(1, 1), (0, 1)]


def test_contexts_share_an_address() -> None:
    """Two worlds of one root address, in two contexts, come up one after the other."""
    root = free_root()

    def one(device: int) -> list[int]:
        nccom = OurNccom(settings())
        comms = [nccom.init_comm(globally(device, 2, root, context), soon()) for context in (0, 1)]
        ids = [nccom.comm_info(comm).cluster_id for comm in comms]
        for comm in comms:
            nccom.close_comm(comm)
        return ids

    first, second = in_threads([lambda: one(0), lambda: one(1)])
    assert first == second
    assert first[0] != first[1]


def test_another_secret_is_no_member() -> None:
    """A process with another secret is turned away and told so."""
    root = free_root()

    def one(device: int) -> Any:
        nccom = OurNccom(settings(RANKMUSTER_SECRET=f"{'secret' * 4}{device}"))
        with pytest.raises(MusterError) as caught:
            nccom.init_comm(globally(device, 2, root), soon(1.0))
        return str(caught.value)

    told = in_threads([lambda: one(0), lambda: one(1)])
    assert "wrong secret" in told[1]


def test_secret_beyond_this_machine() -> None:
    """The loopback needs no secret; another address does, and says how to make one."""
    assert secret_for(settings(), "127.0.0.1") == secret_for(settings(), "::1")
    with pytest.raises(BadSecret, match="umask 077"):
        secret_for(settings(), "10.0.0.1")
    assert len(secret_for(settings(RANKMUSTER_SECRET="s" * 16), "10.0.0.1")) >= 16


def test_describe() -> None:
    """Nodes are machines in rank order; pods are counted by reservation."""
    peers = [
        peer(4, "b", pod_type=1, pod_node_id=1, reservation_id=7),
        peer(0, "a", pod_type=1, pod_node_id=0, reservation_id=7),
        peer(5, "b", pod_type=1, pod_node_id=1, reservation_id=7),
    ]
    info = describe(peers, 2, cluster_id=3, epoch=4)
    assert (info.local_rank_n, info.node, info.node_n, info.use_net) == (2, 0, 2, True)
    assert (info.enable_pod, info.pod_n, info.pod_node, info.pod_node_n) == (True, 1, 1, 2)


def test_a_roll_forgets_who_left() -> None:
    """A device whose connection ended may come again."""
    roll = meeting.Roll(meeting.Hello(peer=peer(0), world_size=2, address="x"))
    late = meeting.Hello(peer=peer(1), world_size=2, address="y")
    assert roll.take(1, late) == ""
    roll.forget(1)
    assert (roll.complete, roll.missing) == (False, "device 1 of 2")
    assert roll.verdict() == ("device 1 came and went away", "lost")
    assert roll.take(2, late) == ""
    assert (roll.complete, roll.unsettled) == (True, False)


LIBRARY = """
#include <stdint.h>
#include <string.h>
static uint8_t wire[256]; static int filled; static int alive;
int neuronInit(void) { return 0; }
int neuronGetUniqueId(uint8_t *id, int size, const char *tag) {
  memset(id, size, 128); id[0] = (uint8_t)tag[0]; return 0; }
int neuronBootstrapSend(void *comm, int peer, const void *data, int size) {
  if (peer == 13) return 6;
  memcpy(wire, data, size); filled = size; return 0; }
int neuronBootstrapRecv(void *comm, int peer, void *data, int size) {
  if (size > filled) return 7;
  memcpy(data, wire, size); return 0; }
#ifdef WHOLE
static int32_t counts[2];
int neuronInitGlobalComm(void **comm, const char *root, int rank, int size) {
  counts[0] = rank; counts[1] = size; alive++; *comm = counts; return root[0] == 0; }
int neuronInitComm(
    void **comm, const uint8_t *id, int rank, int size, const uint32_t *who, void *up) {
  alive++; *comm = up; return who[rank] != 1; }
int neuronBuildGraphComm(void *comm) { return 0; }
int neuronGetCommInfo(void *comm, uint8_t *image) {
  int32_t fields[] = {0, counts[0], counts[1], 1, 1, 0, 1};
  uint64_t ids[] = {42, 1};
  memcpy(image, ids, 16); memcpy(image + 16, fields, 28); return 0; }
int neuronFreeComm(void *comm) { if (alive == 0) return 1; alive--; return 0; }
#endif
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A library with some of the symbols, and one with all."""
    folder = tmp_path_factory.mktemp("libnccom")
    source = folder / "nccom.c"
    source.write_text(LIBRARY)
    paths = {}
    for which, flags in {"some": [], "all": ["-DWHOLE"]}.items():
        paths[which] = str(folder / f"lib{which}.so")
        command = ["gcc", "-shared", "-fPIC", *flags, "-o", paths[which], str(source)]
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            pytest.skip("there is no C compiler here")
    return paths


def test_missing_symbols_are_named(built: dict[str, str]) -> None:
    """A library that lacks symbols is refused, with their names; one that is not there, too."""
    library = SharedNccom(built["some"])
    names = "neuronInitGlobalComm, neuronInitComm, neuronBuildGraphComm"
    with pytest.raises(SetupFailed, match=f"lacks {names}"):
        library.init()
    with pytest.raises(SetupFailed, match="cannot be opened"):
        SharedNccom("libnothing-of-that-name.so")


def test_a_part_of_a_library(built: dict[str, str]) -> None:
    """What such a library has can be used; what it lacks is missed by name."""
    library = SharedNccom(built["some"], partial=True)
    library.init()
    assert library.get_unique_id(3, "nccl") == b"n" + b"\x03" * 127
    library.bootstrap_send(0, 1, b"frame", soon())
    assert library.bootstrap_recv(0, 1, 5, soon()) == b"frame"
    with pytest.raises(PeerLost, match=r"neuronBootstrapSend .* returned 6"):
        library.bootstrap_send(0, 13, b"x", soon())
    with pytest.raises(SetupFailed, match="lacks neuronBuildGraphComm"):
        library.build_graph(0)


def test_a_whole_library(built: dict[str, str]) -> None:
    """Communicators are made, described and freed by the library's own code."""
    library = SharedNccom(built["all"])
    library.init()
    world = library.init_comm(globally(1, 2, "10.0.0.1:9"), soon())
    info = library.comm_info(world)
    assert (info.cluster_id, info.epoch, info.rank, info.rank_n, info.peers) == (42, 1, 1, 2, ())
    request = CommRequest(
        participants=(0, 1), rank=1, me=peer(1), context=0, parent=world, unique_id=bytes(128)
    )
    group = library.init_comm(request, soon())
    library.build_graph(group)
    library.close_comm(group)
    library.close_comm(world)
    with pytest.raises(SetupFailed, match="neuronFreeComm"):
        library.close_comm(world)


def test_the_runtime_over_a_library(built: dict[str, str]) -> None:
    """The runtime builds its world over a library that is named; its no is a failure."""
    environ = {"RANKMUSTER_NRT_LIBNCCOM": built["all"], "NEURON_RT_ROOT_COMM_ID": "10.0.0.1:9"}
    runtime = Runtime(environ=environ)
    assert runtime.nrt_init(0, "", "") is Status.SUCCESS
    assert runtime.nrt_build_global_comm(0, 1, 2) is Status.SUCCESS
    assert (runtime.enc_get_cluster_id(0), runtime.enc_get_epoch(0)) == (42, 1)
    step = program(all_reduce(7), groups=[[[0, 1]]])
    assert runtime.nrt_load_collectives(step, 0, 0, -1, 1, 2, Out()) is Status.FAILURE
    assert runtime.nrt_close() is Status.SUCCESS
