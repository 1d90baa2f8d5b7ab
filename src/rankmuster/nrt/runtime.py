"""The runtime behind the entry points: its state, its worlds, and the calls themselves."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Concatenate, ParamSpec

from rankmuster.environment import ROOT_COMM_ID, Settings, read_settings
from rankmuster.errors import BadArgument, Closed, MusterError, Uninitialized, status_of
from rankmuster.libnccom.boundary import Nccom
from rankmuster.node import Node, node_from
from rankmuster.nrt import arguments
from rankmuster.nrt.arguments import BadHandle, NrtCcComm, Out
from rankmuster.nrt.exchange import all_gather, world_barrier
from rankmuster.nrt.log import report, say
from rankmuster.nrt.model import Compat, Model
from rankmuster.nrt.programs import one_op, read_functions
from rankmuster.program import Program
from rankmuster.status import Status
from rankmuster.transport.base import Deadline
from rankmuster.worlds.global_comm import GlobalComm
from rankmuster.worlds.registry import WorldRegistry
from rankmuster.worlds.setup import holding, setup, tear_down

PROGRAMS, USER = 0, 1  # the contexts
FAITHFUL = Compat()
FRAMEWORKS = dict.fromkeys(range(6))  # nrt.h: INVALID 0 to PRECHECK 5
P = ParamSpec("P")


class State(Enum):
    """Where the runtime is in its life; it is never initialised a second time after closing."""

    UNINITIALIZED = 13
    READY = 0
    CLOSED = 14


def entry_point(
    call: Callable[Concatenate[Runtime, P], None],
) -> Callable[Concatenate[Runtime, P], Status]:
    """Make a method an entry point: what it raises is logged, and becomes its status."""

    @functools.wraps(call)
    def wrapped(runtime: Runtime, /, *args: P.args, **kwargs: P.kwargs) -> Status:
        try:
            call(runtime, *args, **kwargs)
        except (MusterError, MemoryError, OSError) as error:
            report(error, call.__name__)
            return status_of(error)
        return Status.SUCCESS

    return wrapped


class Runtime:
    """One libnrt: several may live in a process, beside each other or one after the other.

    *environ* is read by `nrt_init`; *node* and *nccom* stand in for this machine and for our own
    transports; *host* is this machine's name. Every call ends within *deadline_s*, by default
    RANKMUSTER_NRT_DEADLINE. Raises TypeError or ValueError for a deadline that is none.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        node: Node | None = None,
        nccom: Nccom | None = None,
        deadline_s: float | None = None,
        compat: Compat = FAITHFUL,
        host: str = "",
    ) -> None:
        if deadline_s is not None:
            Deadline.after(deadline_s)  # raises for what is none
        self.state = State.UNINITIALIZED
        self._environ, self._given_node, self._given_nccom = environ, node, nccom
        self._deadline_s, self._compat, self._host = deadline_s, compat, host
        self._state_lock = threading.Lock()
        self._models: dict[int, Model] = {}  # by identity, in the order in which they were loaded
        self._barrier_failures: dict[int, MusterError] = {}

    # life

    @entry_point
    def nrt_init(self, framework: int, fw_version: str, fal_version: str) -> None:
        """Read the environment, open the collectives library, make the locks (`enc_init`).

        Initialising twice is fine, and changes nothing; after `nrt_close` it is too late (14).
        """
        del fw_version, fal_version  # the original only logs them
        arguments.choice("framework", framework, FRAMEWORKS)
        with self._state_lock:
            if self.state is State.CLOSED:
                raise Closed("the runtime was closed", fix="start another process, or a Runtime")
            if self.state is State.UNINITIALIZED:
                self._enc_init()

    def _enc_init(self) -> None:
        settings = read_settings(os.environ if self._environ is None else self._environ)
        node = self._given_node or node_from(settings)
        nccom = self._given_nccom or default_nccom(settings)
        nccom.init()
        registry = WorldRegistry(
            node, virtual_server_size=settings["NEURON_RT_DBG_VIRTUAL_SERVER_SIZE"]
        )
        registry.create_locks()
        self.settings, self.nccom, self.registry = settings, nccom, registry
        self.state = State.READY

    @entry_point
    def nrt_close(self) -> None:
        """Free everything, the youngest first, and end; calls that still run are waited for.

        Where one of them outlasts the deadline (5), nothing of its core is freed, and closing may
        be tried again.
        """
        with self._state_lock:
            self._check_ready()
            self.state = State.CLOSED
            deadline = self._deadline()
            try:
                for world in reversed(list(self.registry)):
                    self._free(world, deadline)
            except BaseException:
                self.state = State.READY
                raise
            self.registry.destroy_locks()

    def _free(self, world: GlobalComm, deadline: Deadline) -> None:
        with holding(self.registry.setup_lock(world.identity.nec_dev_id), deadline):
            for model in reversed(list(self._models.values())):
                if model.world is world:
                    self._forget(model)
            # A set-up that failed while we waited has taken its world out itself.
            if self.registry.get(world.identity.nec_dev_id, world.identity.ctx_id) is world:
                tear_down(self.registry, world, self.nccom)

    # worlds

    @entry_point
    def nrt_build_global_comm(self, vnc: int, g_device_id: int, g_device_count: int) -> None:
        """Build and set up the world of programs (context 0).

        *g_device_count* is that of the largest program to come. Returns on all devices, or fails.
        """
        with self._world(vnc, g_device_id, g_device_count, PROGRAMS, make=True):
            pass

    @entry_point
    def nrt_cc_global_comm_init(self, vnc: int, g_device_id: int, g_device_count: int) -> None:
        """Build and set up the world of host-driven collectives (context 1)."""
        with self._world(vnc, g_device_id, g_device_count, USER, make=True):
            pass

    def enc_get_cluster_id(self, vnc: int, ctx_id: int = PROGRAMS) -> int:
        """The world's number, the same on all devices; 0 where there is none."""
        return self._info(vnc, ctx_id, "cluster_id")

    def enc_get_epoch(self, vnc: int, ctx_id: int = PROGRAMS) -> int:
        """When the world came up, in seconds since 1970 on device 0; 0 where there is none."""
        return self._info(vnc, ctx_id, "epoch")

    # programs

    @entry_point
    def nrt_load_collectives(  # noqa: PLR0917 the original's parameters
        self,
        neff: Any,
        size: int,
        vnc: int,
        vnc_count: int,
        ctx_device_id: int,
        ctx_device_count: int,
        model: Out[Model],
    ) -> None:
        """Load a program: parse and sign it, then form its communicators with the other devices.

        *neff* holds *size* bytes of a NEFF or of any program that we read; or it is a `Program`, or
        a sequence of either, the program's functions in order. Without a world one is made of
        *ctx_device_count* devices. *vnc_count* means nothing (deprecated).
        """
        arguments.core("vnc_count", vnc_count)
        arguments.out("model", model)
        count = arguments.u32("ctx_device_count", ctx_device_count)
        self._check_ready()
        programs = read_functions(neff, arguments.u32("size", size), count)
        with self._world(vnc, ctx_device_id, count, PROGRAMS) as (world, deadline):
            model.value = self._load(programs, world, deadline)

    @entry_point
    def nrt_unload(self, model: Model) -> None:
        """Give a loaded program's communicators back."""
        self._check_ready()
        stranger = BadHandle(f"{model!r} is not a loaded program of this runtime")
        if not isinstance(model, Model):
            raise stranger
        with self._state_lock:
            self._check_ready()
            lock = self.registry.setup_lock(model.world.identity.nec_dev_id)
        with holding(lock, self._deadline()):
            self._check_ready()
            if self._models.get(id(model)) is not model:
                raise stranger
            self._forget(model)

    # host-driven exchanges

    @entry_point
    def nrt_barrier(self, vnc: int, g_device_id: int, g_device_count: int) -> None:
        """Return once all devices of the world have come here. Once it failed, it always does."""
        with self._world(vnc, g_device_id, g_device_count, PROGRAMS, make=True) as (
            world,
            deadline,
        ):
            if failure := self._barrier_failures.get(world.identity.nec_dev_id):
                raise failure.with_traceback(None)  # each raise would add to it
            try:
                world_barrier(world, self.nccom, deadline)
            except MusterError as error:
                self._barrier_failures[world.identity.nec_dev_id] = error
                raise

    @entry_point
    def nrt_all_gather(  # noqa: PLR0917 the original's parameters
        self,
        vnc: int,
        g_device_id: int,
        g_device_count: int,
        rank_input_size: int,
        input: Any,  # noqa: A002 the original's name
        output: Any,
    ) -> None:
        """Put each device's *rank_input_size* bytes into every *output*, by device id."""
        size = arguments.u32("rank_input_size", rank_input_size)
        count = arguments.u32("g_device_count", g_device_count)
        own = arguments.readable("input", input, size)[:size]
        slots = arguments.writable("output", output, size * count)
        with self._world(vnc, g_device_id, count, PROGRAMS, make=True) as (world, deadline):
            gathered = all_gather(world, bytes(own), self.nccom, deadline)
            slots[: size * count] = b"".join(gathered)

    @entry_point
    def nrta_cc_prepare(  # noqa: PLR0917 the original's parameters
        self,
        comm: NrtCcComm,
        input: Any,  # noqa: A002 the original's name
        output: Any,
        dtype: int,
        op: int,
        cc_op: int,
        cc_ctx: Out[Model],
    ) -> None:
        """Prepare a host-driven collective: its one op, signed, in a world of context 1.

        *input* and *output* are sequences of buffers (`nrt_tensor_list`); only their sizes count.
        """
        arguments.out("cc_ctx", cc_ctx)
        program = one_op(comm, input, output, dtype, op, cc_op)
        with self._world(comm.vnc, comm.ctx_device_id, comm.ctx_device_count, USER) as held:
            cc_ctx.value = self._load((program,), *held)

    # what they share

    @contextmanager
    def _world(
        self, vnc: int, device: int, count: int, ctx_id: int, *, make: bool = False
    ) -> Iterator[tuple[GlobalComm, Deadline]]:
        """The set-up world of a call, with its core's set-up lock held."""
        self._check_ready()
        deadline = self._deadline()
        find = self.registry.init if make else self.registry.validate
        with self._state_lock:  # what is made while the runtime closes would stay
            self._check_ready()
            world = find(
                arguments.core("vnc", vnc),
                arguments.u32("g_device_id", device),
                arguments.u32("g_device_count", count),
                ctx_id,
                root_comm_id=self.settings[ROOT_COMM_ID],
                check_sigs=self.settings["NEURON_RT_DBG_CC_CHECK_SIGS"],
            )
            lock = self.registry.setup_lock(world.identity.nec_dev_id)
        with holding(lock, deadline):
            self._check_ready()
            setup(self.registry, world, self.nccom, deadline, self._host)
            yield world, deadline

    def _load(self, programs: tuple[Program, ...], world: GlobalComm, deadline: Deadline) -> Model:
        model = Model(programs, world, self.nccom, self.settings, compat=self._compat)
        model.parse()
        model.load(deadline)
        self._models[id(model)] = model
        return model

    def _forget(self, model: Model) -> None:
        del self._models[id(model)]
        model.unload()

    def _info(self, vnc: int, ctx_id: int, field: str) -> int:
        if self.state is not State.READY:
            return 0
        try:
            at = arguments.core("vnc", vnc), arguments.u32("ctx_id", ctx_id)
        except BadArgument:
            return 0
        world = self.registry.get(*at)
        number: int = getattr(world.comm.ci, field, 0) if world else 0
        return number

    def _check_ready(self) -> None:
        if self.state is State.UNINITIALIZED:
            raise Uninitialized("the runtime is not initialised", fix="call nrt_init first")
        if self.state is State.CLOSED:
            raise Closed("the runtime was closed")

    def _deadline(self) -> Deadline:
        own = self._deadline_s
        return Deadline.after(self.settings["RANKMUSTER_NRT_DEADLINE"] if own is None else own)


def default_nccom(settings: Settings) -> Nccom:
    """Our own transports, or the shared library that RANKMUSTER_NRT_LIBNCCOM names."""
    if name := settings["RANKMUSTER_NRT_LIBNCCOM"]:
        from rankmuster.libnccom.shared_library import SharedNccom

        return SharedNccom(name)
    from rankmuster.libnccom.ours import OurNccom

    def note(text: str) -> None:
        say(text, "enc_setup_global_comm", level=logging.WARNING)

    return OurNccom(settings, say=note)
