"""Worlds for the tests of the runtime: threads that meet for real, and a library that agrees."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rankmuster.arch.driver import CAYMAN
from rankmuster.arch.layout import VirtualLayout
from rankmuster.environment import Settings, read_settings
from rankmuster.libnccom.boundary import CommRequest
from rankmuster.libnccom.info import CommInfo, describe
from rankmuster.node import Driver, Node
from rankmuster.nrt import Runtime
from rankmuster.protocol.frames import VERDICT, pack_ticket, pack_verdict
from rankmuster.transport.base import Deadline
from rankmuster.worlds.registry import WorldRegistry

T = TypeVar("T")
SOON_S = 5.0


def node(**changes: Any) -> Node:
    """A server of two chips with eight cores each, all ours."""
    fields: dict[str, Any] = {
        "layout": VirtualLayout(driver=CAYMAN, core_size=1, chips=2),
        "rids": (0, 8),
        "visible": range(16),
        "chips": frozenset({0, 1}),
        "driver": Driver(),
    }
    return Node(**fields | changes)


def registry(the_node: Node | None = None, **rest: Any) -> WorldRegistry:
    """A registry with its locks."""
    made = WorldRegistry(the_node or node(), **rest)
    made.create_locks()
    return made


def settings(**environ: str) -> Settings:
    return read_settings(environ)


def free_root() -> str:
    """An address at which a world may meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def in_threads(bodies: Sequence[Callable[[], T]]) -> list[T]:
    """What each body returns, all of them run at once; the first error is raised."""
    results: dict[int, T] = {}
    raised: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = bodies[number]()
        except BaseException as error:  # noqa: BLE001 raised below
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    for error in raised:
        raise error
    return [results[number] for number in range(len(bodies))]


def world_of(
    size: int,
    body: Callable[[Runtime, int], T],
    *,
    environ: dict[str, str] | None = None,
    deadline_s: float = SOON_S,
    hosts: Sequence[str] = (),
    **rest: Any,
) -> list[T]:
    """Run *body* with an initialised runtime for each device, all at once; then close them."""
    root = {"NEURON_RT_ROOT_COMM_ID": free_root()}

    def one(device: int) -> T:
        runtime = Runtime(
            environ=root | (environ or {}),
            deadline_s=deadline_s,
            host=hosts[device] if hosts else "",
            **rest,
        )
        assert runtime.nrt_init(0, "", "") == 0
        try:
            return body(runtime, device)
        finally:
            runtime.nrt_close()

    return in_threads([lambda device=device: one(device) for device in range(size)])


class Agreeable:
    """A library whose other devices agree with whatever the last one says.

    It is enough for the device of the highest rank, which sends its verdict and hears the ticket.
    """

    def __init__(self) -> None:
        self.open: list[CommRequest] = []
        self.sent: list[tuple[int, bytes]] = []
        self.graphs: list[CommRequest] = []
        self.fails: dict[str, Exception] = {}

    def _check(self, call: str) -> None:
        if call in self.fails:
            raise self.fails[call]

    def init(self) -> None:
        self._check("init")

    def get_unique_id(self, size: int, tag: str) -> bytes:
        self._check("get_unique_id")
        return b"u" * 128

    def init_comm(self, request: CommRequest, deadline: Deadline) -> CommRequest:
        self._check("init_global" if request.parent is None else "init_comm")
        self.open.append(request)
        return request

    def bootstrap_send(
        self, comm: CommRequest, peer: int, frame: bytes, deadline: Deadline
    ) -> None:
        self._check("bootstrap_send")
        self.sent.append((peer, frame))

    def bootstrap_recv(
        self, comm: CommRequest, peer: int, nbytes: int, deadline: Deadline
    ) -> bytes:
        self._check("bootstrap_recv")
        if nbytes == VERDICT.size:  # a communicator that is there is confirmed
            return pack_verdict(bytes(16), agrees=True)
        return pack_ticket(b"u" * 128, agrees=True)

    def build_graph(self, comm: CommRequest) -> None:
        self.graphs.append(comm)

    def comm_info(self, comm: CommRequest) -> CommInfo:
        others = [
            comm.me if device == comm.me.device else _elsewhere(comm, device)
            for device in comm.participants
        ]
        return describe(others, comm.rank, cluster_id=7, epoch=9)

    def close_comm(self, comm: CommRequest) -> None:
        if comm in self.open:
            self.open.remove(comm)


def _elsewhere(comm: CommRequest, device: int) -> Any:
    from msgspec.structs import replace

    return replace(comm.me, device=device, host=f"host{device}")
