"""The worlds of this process by (`nec_dev`, context): made once, never changed (S0 §1, §6).

Threads may race for one world: exactly one makes it and all get it. Making a world does not reach
out to anybody; `setup` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol

from rankmuster import messages
from rankmuster.arch.layout import VirtualCore
from rankmuster.errors import (
    BadArgument,
    MusterError,
    SetupFailed,
    Uninitialized,
    WorldMismatch,
)
from rankmuster.messages import Message
from rankmuster.node import Node
from rankmuster.worlds.global_comm import (
    GlobalComm,
    MapMemory,
    anonymous_memory,
    semaphore_values,
)
from rankmuster.worlds.identity import U32, Identity, check_pod, virtual_server_of

MAX_CONTEXTS = 2  # ENCD_MAX_CONTEXTS: 0 programs, 1 the user's own calls
MAX_DEVICES = 256  # NEC_MAX_DEVICES


class Lock(Protocol):
    """What a lock does here."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 as `threading.Lock`
        """Take it, or not within *timeout* seconds."""

    def release(self) -> None:
        """Give it back."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None: ...


class WorldRegistry:
    """The two-slot table of every core, and the locks that guard it.

    *make_lock* and *map_memory* are the system's; a test hands in its own.
    """

    def __init__(
        self,
        node: Node,
        *,
        virtual_server_size: int = 0,
        make_lock: Callable[[], Lock] = threading.Lock,
        map_memory: MapMemory = anonymous_memory,
    ) -> None:
        self.node = node
        self._virtual_server_size = virtual_server_size
        self._make_lock, self._map_memory = make_lock, map_memory
        self._init_locks: list[Lock] = []
        self._setup_locks: list[Lock] = []
        self._worlds: dict[tuple[int, int], GlobalComm] = {}

    # locks

    def create_locks(self) -> None:
        """One init and one set-up lock for every core there can be (`enc_init`).

        Raises `SetupFailed`, and leaves no lock behind.
        """
        try:
            for _ in range(MAX_DEVICES):
                self._init_locks.append(self._new_lock(messages.INIT_LOCK))
                self._setup_locks.append(self._new_lock(messages.SETUP_LOCK))
        except MusterError:
            self.destroy_locks()
            raise

    def destroy_locks(self) -> None:
        """Drop them all (`enc_destroy_gcomm_locks`)."""
        self._setup_locks.clear()
        self._init_locks.clear()

    def setup_lock(self, nec_dev: int) -> Lock:
        """The lock under which a core's communicators are made (`gcomm_setup_mtx`)."""
        return self._lock(self._setup_locks, nec_dev)

    def _new_lock(self, message: Message) -> Lock:
        try:
            return self._make_lock()
        except (OSError, RuntimeError) as error:  # "can't allocate lock"
            raise SetupFailed(message(getattr(error, "errno", None) or -1)) from error

    def _lock(self, locks: list[Lock], nec_dev: int) -> Lock:
        if not locks:
            raise Uninitialized("the locks of the global communicators do not exist")
        if not 0 <= nec_dev < MAX_DEVICES:
            raise BadArgument(f"core {nec_dev} is not below {MAX_DEVICES}")
        return locks[nec_dev]

    # the table

    def get(self, nec_dev: int, ctx_id: int) -> GlobalComm | None:
        """The world of a core and context (`encd_get_global_comm`)."""
        return self._worlds.get((nec_dev, ctx_id))

    def set(self, nec_dev: int, ctx_id: int, world: GlobalComm) -> None:
        """Register a world (`encd_set_global_comm`). Raises `SetupFailed` without a free slot."""
        if not 0 <= nec_dev < MAX_DEVICES or (nec_dev, ctx_id) in self._worlds:
            raise SetupFailed(messages.NOT_REGISTERED())
        self._worlds[nec_dev, ctx_id] = world

    def remove(self, world: GlobalComm) -> None:
        """Take a world out and free it."""
        del self._worlds[world.identity.nec_dev_id, world.identity.ctx_id]
        world.free()

    def __iter__(self) -> Iterator[GlobalComm]:
        """The worlds, in the order in which they were made."""
        return iter(list(self._worlds.values()))

    def __len__(self) -> int:
        return len(self._worlds)

    # making and checking

    def init(
        self,
        vnc: int,
        g_device_id: int,
        g_device_cnt: int,
        ctx_id: int,
        *,
        root_comm_id: str = "",
        check_sigs: bool = True,
    ) -> GlobalComm:
        """Make the world of a core, or return the one that is there (`enc_init_global_comm`).

        Raises `WorldMismatch` for another id or count than those it was made with (facts D38), and
        for a virtual server or pod that cannot be; `SetupFailed`, `Uninitialized`,
        `OutOfResources` and MemoryError for what this machine lacks. Nothing is left behind.
        """
        check_context(ctx_id)
        core = self._core(vnc)
        mla_idx = self.node.mla_idx(core)
        if mla_idx is None:
            raise SetupFailed(messages.NO_MLA(), fix=f"core {vnc} lies on a chip of others")
        if self.node.driver is None:
            raise Uninitialized(messages.NO_TDRV())
        world = self._same_world(core.nec_dev, ctx_id, g_device_id, g_device_cnt)
        if world is not None:
            return world
        check_device(g_device_id, g_device_cnt)
        with self._lock(self._init_locks, core.nec_dev):
            # Two threads of one core may both have missed the look-up above: without this second
            # one the slower would leak its world, or register it in place of the one that others
            # have bootstrapped by now (S0 §6).
            world = self._same_world(core.nec_dev, ctx_id, g_device_id, g_device_cnt)
            if world is not None:
                return world
            identity = self._identity(
                core,
                mla_idx,
                g_device_id=g_device_id,
                g_device_cnt=g_device_cnt,
                ctx_id=ctx_id,
                root_comm_id=root_comm_id,
                check_sigs=check_sigs,
            )
            return self._make(identity)

    def validate(
        self,
        vnc: int,
        g_device_id: int,
        g_device_cnt: int,
        ctx_id: int,
        *,
        root_comm_id: str = "",
        check_sigs: bool = True,
    ) -> GlobalComm:
        """The world that a program of *g_device_cnt* devices may use (`enc_validate_global_comm`).

        One is made where there is none. Raises `WorldMismatch` for a program larger than the world,
        and for a smaller one before the world is bootstrapped: it cannot do that by itself.
        """
        check_context(ctx_id)
        world = self.get(self._core(vnc).nec_dev, ctx_id)
        if world is None:
            return self.init(
                *(vnc, g_device_id, g_device_cnt, ctx_id),
                root_comm_id=root_comm_id,
                check_sigs=check_sigs,
            )
        size = world.identity.g_device_cnt
        if size < g_device_cnt:
            raise WorldMismatch(messages.LARGER_PROGRAM(g_device_cnt, size))
        if size == g_device_cnt or world.bootstrapped:
            return world
        raise WorldMismatch(messages.SMALLER_PROGRAM(), fix=f"{g_device_cnt} is less than {size}")

    def _core(self, vnc: int) -> VirtualCore:
        core = self.node.virtual_core(vnc)
        if core is None or core.nec_dev >= MAX_DEVICES:
            count = len(self.node.visible)
            raise WorldMismatch(
                messages.NO_CORE(vnc & U32), fix=f"this process has {count}, from 0 on"
            )
        return core

    def _same_world(
        self, nec_dev: int, ctx_id: int, g_device_id: int, g_device_cnt: int
    ) -> GlobalComm | None:
        world = self.get(nec_dev, ctx_id)
        if world is None:
            return None
        held = (world.identity.g_device_cnt, world.identity.g_device_id)
        if held != (g_device_cnt, g_device_id):
            raise WorldMismatch(messages.OTHER_WORLD(*held, g_device_cnt, g_device_id))
        return world

    def _identity(self, core: VirtualCore, mla_idx: int, **given: Any) -> Identity:
        driver = self.node.driver
        assert driver is not None, "checked before the lock"
        return Identity(
            **given,
            virtual_server_id=virtual_server_of(
                given["g_device_id"], given["g_device_cnt"], self._virtual_server_size
            ),
            vtpb_idx=self.node.vtpb_idx(core.nec_dev) & U32,
            nec_dev_id=core.nec_dev,
            mla_idx=mla_idx,
            host_device_id=self.node.host_device_id(mla_idx),
            routing_id=self.node.rids[mla_idx],
            pod_type=driver.pod_type,
            pod_node_id=driver.pod_node_id & U32,
            pod_sz=driver.pod_sz,
            reservation_id=driver.reservation_id,
            vcore=core.tpbs[0],
        )

    def _make(self, identity: Identity) -> GlobalComm:
        world = GlobalComm(
            identity=identity, inc_recv_sem_values_buffer=semaphore_values(self._map_memory)
        )
        try:
            check_pod(identity.pod_type, identity.pod_node_id, identity.pod_sz)
            self.set(identity.nec_dev_id, identity.ctx_id, world)
        except BaseException:
            world.free()
            raise
        return world


def check_context(ctx_id: int) -> None:
    """Raise BadArgument for a context that there is not (facts D44)."""
    if not 0 <= ctx_id < MAX_CONTEXTS:
        raise BadArgument(f"context {ctx_id} is neither 0 (programs) nor 1 (the user's own)")


def check_device(g_device_id: int, g_device_cnt: int) -> None:
    """Raise BadArgument for an id that is not below the count, or a count that is no u32."""
    if not 0 < g_device_cnt <= U32:
        raise BadArgument(f"a world has 1 to {U32} devices, not {g_device_cnt}")
    if not 0 <= g_device_id < g_device_cnt:
        raise BadArgument(
            f"global device id {g_device_id} is not in a world of {g_device_cnt}",
            fix=f"ids run from 0 to {g_device_cnt - 1}",
        )
