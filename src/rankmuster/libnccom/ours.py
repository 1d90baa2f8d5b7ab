"""Our own collectives library: the boundary over TCP connections that prove the job's secret.

The global communicator meets at the root address; all others are made over its links and share
them. One thread at a time may use a global communicator and what was made from it.
"""

from __future__ import annotations

import errno
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from rankmuster.address import BadAddress, Reach, reach_of, split_address
from rankmuster.environment import ROOT_COMM_ID, BadSetting, Settings
from rankmuster.errors import Closed, OutOfResources, SetupFailed, WorldMismatch
from rankmuster.launch.names import SECRET, SECRET_FILE
from rankmuster.launch.secret import MAKE_ONE, BadSecret, given_secret, loopback_secret
from rankmuster.libnccom.boundary import CommRequest
from rankmuster.libnccom.info import CommInfo, describe
from rankmuster.libnccom.links import Links
from rankmuster.libnccom.meeting import HEAL_S, ROOT, Hello, Table, meet
from rankmuster.protocol.unique_id import NONCE_BYTES, UniqueId, unpack_unique_id
from rankmuster.transport.base import Deadline, Identity
from rankmuster.transport.handshake import Credentials
from rankmuster.transport.tcp import TcpEndpoint

PAUSE_S = 0.05  # between attempts to listen where somebody still does
NONCE_OF_A_HANDSHAKE = 16
ALIKE = (
    *("NEURON_RT_DBG_CC_CHECK_SIGS", "NEURON_RT_DBG_CC_SORT_RG"),
    "RANKMUSTER_NRT_KEY_ORDER",
)
"""Who differs in one of these has other frames, other signatures or other trees."""


@dataclass(slots=True, kw_only=True, eq=False)
class OurComm:
    """A communicator of ours. The `links` are shared with all that is made from a global one."""

    request: CommRequest
    links: Links
    info: CommInfo
    graph_built: bool = False
    closed: bool = False


class OurNccom:
    """The library that the runtime uses unless it is told of another.

    *say* takes lines about who is still missing; a contradiction between two devices is given
    *heal_s* seconds to be put right by a better card.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        say: Callable[[str], None] = lambda _: None,
        heal_s: float = HEAL_S,
    ) -> None:
        self._settings, self._say, self._heal_s = settings, say, heal_s
        self._address = ""

    def init(self) -> None:
        """Nothing to load."""

    def get_unique_id(self, size: int, tag: str) -> bytes:
        """A new id: where this process can be reached, and a nonce (facts D12)."""
        if size < 1 or not self._address:
            raise SetupFailed(f"{tag}: no unique id for {size} devices before a world is up")
        host, port = split_address(self._address)
        return UniqueId(host=host, port=port, nonce=secrets.token_bytes(NONCE_BYTES)).pack()

    def init_comm(self, request: CommRequest, deadline: Deadline) -> OurComm:
        """Rendezvous for the global communicator; any other is a view of its parent's links."""
        if request.parent is None:
            return self._rendezvous(request, deadline)
        parent: OurComm = request.parent
        _check_open(parent)
        unpack_unique_id(request.unique_id)
        by_device = {peer.device: peer for peer in parent.info.peers}
        unknown = [device for device in request.participants if device not in by_device]
        if unknown:
            raise WorldMismatch(f"devices {unknown} are not in the world of {len(by_device)}")
        info = describe(
            [by_device[device] for device in request.participants],
            request.rank,
            cluster_id=parent.info.cluster_id,
            epoch=parent.info.epoch,
        )
        return OurComm(
            request=request,
            links=parent.links,
            info=info,
            graph_built=not request.disable_graph,
        )

    def bootstrap_send(self, comm: OurComm, peer: int, frame: bytes, deadline: Deadline) -> None:
        """Hand a frame over; returns once it has left."""
        _check_open(comm)
        comm.links.send(peer, frame, deadline)

    def bootstrap_recv(self, comm: OurComm, peer: int, nbytes: int, deadline: Deadline) -> bytes:
        """Wait for the next frame of *peer*; those of others are kept for their own receives."""
        _check_open(comm)
        return comm.links.recv(peer, nbytes, deadline)

    def build_graph(self, comm: OurComm) -> None:
        """Note that the graph was asked for; it is host data of the original's own."""
        _check_open(comm)
        comm.graph_built = True

    def comm_info(self, comm: OurComm) -> CommInfo:
        """What the members told each other at the rendezvous."""
        _check_open(comm)
        return comm.info

    def close_comm(self, comm: OurComm) -> None:
        """Close the connections with the global communicator; any other only ends."""
        comm.closed = True
        if comm.request.parent is None:
            comm.links.close()

    def _rendezvous(self, request: CommRequest, deadline: Deadline) -> OurComm:
        root = request.root_comm_id
        host, _ = parse_root(root)
        door = open_door(root, deadline) if request.me.device == ROOT else None
        endpoint = TcpEndpoint(
            _credentials(request, secret_for(self._settings, host)),
            Identity(request.me.device, request.me.device, 1),
            lambda: secrets.token_bytes(NONCE_OF_A_HANDSHAKE),
        )
        links = Links(request.me.device, endpoint)
        try:
            if door is not None:
                endpoint.adopt(door)
            table = self._meet(links, request, deadline)
            if door is not None:  # before anybody is told: who comes now is of a later world
                endpoint.deafen(door)
                links.drain(deadline)
        except BaseException:
            endpoint.close()
            raise
        info = describe(
            [each.peer for each in table.hellos],
            request.rank,
            cluster_id=table.cluster_id,
            epoch=table.epoch,
        )
        return OurComm(request=request, links=links, info=info)

    def _meet(self, links: Links, request: CommRequest, deadline: Deadline) -> Table:
        address = links.endpoint.listen(own_host(request.root_comm_id))
        hello = Hello(
            peer=request.me,
            world_size=len(request.participants),
            address=address,
            settings={name: self._settings[name] for name in ALIKE},
        )
        table = meet(
            links, hello, request.root_comm_id, deadline, say=self._say, heal_s=self._heal_s
        )
        self._address = address
        return table


def secret_for(settings: Settings, host: str) -> bytes:
    """What all processes of the job know, that meet at *host*; on the loopback that may be nothing.

    Raises `BadSecret` for a secret that is none, and where one is needed.
    """
    named = {name: settings[name] for name in (SECRET_FILE, SECRET)}
    if (given := given_secret(named)) is not None:
        return given
    if reach_of(host) is Reach.LOOPBACK:
        return loopback_secret()
    raise BadSecret(f"{host} is not this host's loopback, and the job has no secret", fix=MAKE_ONE)


def _credentials(request: CommRequest, secret: bytes) -> Credentials:
    """One job is one root address; its contexts are told apart by the epoch."""
    job = blake2b(request.root_comm_id.encode(), digest_size=16, person=b"root_comm_id").digest()
    return Credentials(secret, job, request.context)


def _check_open(comm: OurComm) -> None:
    if comm.closed:
        raise Closed("this communicator was closed")


def parse_root(root_comm_id: str) -> tuple[str, int]:
    """Host and port of a root address. Raises `BadSetting` with the format (facts §6.1)."""
    form = "set it to the ip:port, or [ipv6]:port, on which the process of device 0 may listen"
    if not root_comm_id:
        raise BadSetting(f"{ROOT_COMM_ID} is not set", fix=form)
    try:
        host, port = split_address(root_comm_id)
        host.encode("idna")  # as the system will: a part may be empty, or longer than 63 characters
    except (BadAddress, UnicodeError) as error:
        raise BadSetting(f"{ROOT_COMM_ID}={root_comm_id!r} is no address", fix=form) from error
    return host, port


def open_door(root_comm_id: str, deadline: Deadline) -> socket.socket:
    """Listen at the root address.

    An earlier world of ours may be about to leave it: somebody else's listener is waited for a
    short while. Raises `OutOfResources` then, and `BadSetting` for an address of another machine.
    """
    until = min(deadline.at, time.monotonic() + HEAL_S)
    while True:
        try:
            return _listener(*parse_root(root_comm_id))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise BadSetting(
                    f"{ROOT_COMM_ID}={root_comm_id!r}: device 0 cannot listen there: "
                    f"{error.strerror or error}",
                    fix="name an address of the machine of device 0",
                ) from error
            if time.monotonic() >= until:
                raise OutOfResources(
                    f"{ROOT_COMM_ID}={root_comm_id!r}: somebody else listens there",
                    fix="choose another port, and reserve it (net.ipv4.ip_local_reserved_ports)",
                ) from error
        time.sleep(PAUSE_S)


def _listener(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(name)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def own_host(root_comm_id: str) -> str:
    """This machine's address on the way to the root. Raises `BadSetting` where there is no way."""
    host, port = parse_root(root_comm_id)
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(name)  # a datagram socket sends nothing here
            return str(probe.getsockname()[0])
    except OSError as error:
        raise BadSetting(
            f"{ROOT_COMM_ID}={root_comm_id!r} cannot be reached: {error.strerror or error}"
        ) from error
