"""Worlds and their registry: made once, checked in order, nothing left behind."""

from __future__ import annotations

import mmap
import threading
from typing import Any

import pytest
from nrt_worlds import in_threads, node, registry

from rankmuster.errors import BadArgument, MusterError, SetupFailed, Uninitialized, WorldMismatch
from rankmuster.node import Driver
from rankmuster.status import Status
from rankmuster.worlds.global_comm import INC_RECV_SEM_VALUES, anonymous_memory
from rankmuster.worlds.identity import check_pod, virtual_server_of
from rankmuster.worlds.registry import WorldRegistry

U32 = 0xFFFF_FFFF


class Meeting:
    """A lock that two threads reach before either gets it: both have missed the first look-up."""

    def __init__(self, door: threading.Barrier) -> None:
        self._lock, self._door = threading.Lock(), door

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        self._door.wait(10.0)
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)


def test_a_race_makes_one_world() -> None:
    """Of two threads that both find none, one makes the world and the other gets that very one."""
    maps: list[mmap.mmap] = []

    def mapped(size: int) -> mmap.mmap:
        maps.append(anonymous_memory(size))
        return maps[-1]

    door = threading.Barrier(2)
    worlds = registry(make_lock=lambda: Meeting(door), map_memory=mapped)
    rounds = 1000

    def racer() -> list[int]:
        seen = []
        for _ in range(rounds):
            world = worlds.init(0, 1, 4, 0)
            seen.append(id(world))
            if door.wait(10.0) == 0:  # both have it: one takes it out for the next round
                worlds.remove(world)
            door.wait(10.0)
        return seen

    first, second = in_threads([racer, racer])
    assert first == second
    assert (len(maps), len(worlds)) == (rounds, 0)
    assert all(each.closed for each in maps)


def test_identity() -> None:
    """A world knows its core, chip, routing id, virtual server and pod."""
    pod = Driver(pod_type=1, pod_node_id=3, pod_sz=4, reservation_id=77)
    worlds = registry(node(driver=pod, visible=range(8, 16)), virtual_server_size=4)
    identity = worlds.init(2, 5, 8, 1, root_comm_id="h:1", check_sigs=False).identity
    assert (identity.g_device_id, identity.g_device_cnt, identity.ctx_id) == (5, 8, 1)
    assert (identity.nec_dev_id, identity.vtpb_idx, identity.mla_idx) == (2, 10, 1)
    assert (identity.host_device_id, identity.routing_id, identity.virtual_server_id) == (1, 8, 1)
    assert (identity.pod_type, identity.pod_node_id, identity.pod_sz) == (1, 3, 4)
    assert (identity.reservation_id, identity.root_comm_id, identity.check_sigs) == (
        77,
        "h:1",
        False,
    )


def test_semaphore_values() -> None:
    """The buffer holds 516 bytes: a header and 128 values, one apart."""
    world = registry().init(0, 0, 1, 0)
    buffer = world.inc_recv_sem_values_buffer
    assert INC_RECV_SEM_VALUES.unpack(buffer[:]) == tuple(range(0x10000, 0x10081))
    assert world.inc_recv_sem_values_buffer_size == len(buffer) == 516


def test_a_fresh_world_is_bare() -> None:
    """Before set-up there is no node, no channel and no barrier entry."""
    world = registry().init(0, 0, 1, 0)
    assert (world.bootstrapped, world.local_rings, world.local_peer_handles) == (False, None, None)
    assert world.device_barrier_table == []


def test_contexts_and_cores_are_apart() -> None:
    """Each core has two worlds, and making one twice gives the same."""
    worlds = registry()
    made = {(core, ctx): worlds.init(core, core, 4, ctx) for core in (0, 1) for ctx in (0, 1)}
    assert len(set(map(id, made.values()))) == 4
    assert worlds.init(1, 1, 4, 1) is worlds.get(1, 1) is made[1, 1]


@pytest.mark.parametrize("claim", [(1, 4), (0, 8)])
def test_a_world_never_changes(claim: tuple[int, int]) -> None:
    """Another id or another count is refused, and the world stays."""
    worlds = registry()
    world = worlds.init(0, 0, 4, 0)
    with pytest.raises(WorldMismatch) as caught:
        worlds.init(0, *claim, 0)
    assert caught.value.status is Status.INVALID
    assert worlds.get(0, 0) is world


@pytest.mark.parametrize(
    ("device", "count"), [(4, 4), (0, 0), (-1, 4), (0, U32 + 1)], ids=["high", "none", "low", "u33"]
)
def test_ids_lie_in_the_world(device: int, count: int) -> None:
    """A global id is any u32 below the count."""
    with pytest.raises(BadArgument):
        registry().init(0, device, count, 0)
    assert registry().init(0, U32 - 1, U32, 0).identity.g_device_id == U32 - 1


@pytest.mark.parametrize("ctx", [-1, 2])
def test_two_contexts(ctx: int) -> None:
    """There is no third context."""
    with pytest.raises(BadArgument):
        registry().init(0, 0, 1, ctx)


@pytest.mark.parametrize(
    ("pod_type", "node_id", "size", "good"),
    [
        (0, U32, 0, True),
        (1, 5, 8, True),
        (1, 8, 8, False),
        (1, -1, 8, False),
        (2, 3, 8, True),
        (2, 5, 8, False),
        (3, 0, 8, False),
    ],
)
def test_pod_limits_differ_by_type(pod_type: int, node_id: int, size: int, good: bool) -> None:
    """P2P goes by the pod's size, a switch pod by 4, no pod by nothing; no fourth type."""
    if good:
        check_pod(pod_type, node_id, size)
        return
    with pytest.raises(WorldMismatch):
        check_pod(pod_type, node_id, size)


def test_virtual_servers_divide_the_world() -> None:
    """The size of a virtual server divides the world; without one there is server 0."""
    assert (virtual_server_of(5, 8, 4), virtual_server_of(5, 8, 0)) == (1, 0)
    with pytest.raises(WorldMismatch):
        virtual_server_of(0, 8, 3)


def test_order_of_checks() -> None:
    """Core, chip, driver, same world, divisor, memory, pod: the first that fails speaks."""

    def no_memory(size: int) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    broken = {"driver": Driver(pod_type=9)}
    steps: list[tuple[dict[str, Any], dict[str, Any], int, str]] = [
        ({"chips": frozenset(), "driver": None}, {}, 99, "find core"),
        ({"chips": frozenset(), "driver": None}, {}, 0, "get MLA"),
        ({"driver": None}, {}, 0, "TDRV"),
        (broken, {"virtual_server_size": 3, "map_memory": no_memory}, 0, "divisor"),
        (broken, {"map_memory": no_memory}, 0, "mmap"),
        (broken, {}, 0, "pod_type"),
    ]
    for of_node, of_registry, vnc, said in steps:
        worlds = registry(node(**of_node), **of_registry)
        with pytest.raises(MusterError, match=said):
            worlds.init(vnc, 0, 4, 0)
        assert len(worlds) == 0


def test_failures_leave_nothing() -> None:
    """A pod that is refused after the memory was mapped gives the map back."""
    maps: list[mmap.mmap] = []

    def mapped(size: int) -> mmap.mmap:
        maps.append(anonymous_memory(size))
        return maps[-1]

    worlds = registry(node(driver=Driver(pod_type=9)), map_memory=mapped)
    with pytest.raises(WorldMismatch):
        worlds.init(0, 0, 4, 0)
    assert ([each.closed for each in maps], len(worlds)) == ([True], 0)


def test_no_host_memory() -> None:
    """A failed allocation is Python's own MemoryError (status 11), and leaves nothing."""

    def exhausted(size: int) -> mmap.mmap:
        raise MemoryError

    worlds = registry(map_memory=exhausted)
    with pytest.raises(MemoryError):
        worlds.init(0, 0, 4, 0)
    assert len(worlds) == 0


def test_validate() -> None:
    """No world: one is made. A larger program: no. Equal: yes. Smaller: once it is bootstrapped."""
    worlds = registry()
    world = worlds.validate(0, 1, 4, 0)
    assert worlds.validate(0, 3, 4, 0) is world  # the id is not looked at again (D47)
    for count in (8, 2):
        with pytest.raises(WorldMismatch):
            worlds.validate(0, 1, count, 0)
    world.comm.nccl_comm_node = object()
    assert worlds.validate(0, 1, 2, 0) is world
    with pytest.raises(WorldMismatch):
        worlds.validate(0, 1, 8, 0)


def test_registration_can_fail() -> None:
    """A slot that is taken, or of no core, is refused; the world that was there stays."""
    worlds = registry()
    world = worlds.init(0, 0, 4, 0)
    for core in (0, 256):
        with pytest.raises(SetupFailed):
            worlds.set(core, 0, world)
    assert worlds.get(0, 0) is world


def test_locks() -> None:
    """Locks are made for 256 cores; a failure leaves none, and without them nothing is made."""
    left = 300

    def scarce() -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("can't allocate lock")
        return threading.Lock()

    worlds = WorldRegistry(node(), make_lock=scarce)
    with pytest.raises(SetupFailed):
        worlds.create_locks()
    with pytest.raises(Uninitialized):
        worlds.init(0, 0, 4, 0)
