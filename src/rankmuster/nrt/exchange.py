"""Exchanges of a whole world outside of any program: its barrier and its gather."""

from __future__ import annotations

from rankmuster.communicator import GATHERED_BYTES
from rankmuster.communicator import all_gather as gather_steps
from rankmuster.errors import BadArgument, MusterError
from rankmuster.libnccom.boundary import Nccom, drive
from rankmuster.protocol.barrier import barrier
from rankmuster.transport.base import Deadline
from rankmuster.worlds.global_comm import GlobalComm


def world_barrier(world: GlobalComm, nccom: Nccom, deadline: Deadline) -> None:
    """Return once all devices have come: those of each machine, then one of each, then all again.

    Raises `PeerLost` or `DeadlineExceeded`.
    """
    rings, chiefs = world.local_rings, one_per_machine(world)
    assert rings is not None, "a world is set up before it is used"
    rings.wait(deadline)
    if len(chiefs) == 1:
        return
    if world.identity.g_device_id in chiefs:
        no = _over_network(world, chiefs, nccom, deadline)
        if no is not None:
            raise no.__cause__ if isinstance(no.__cause__, MusterError) else no
    rings.wait(deadline)


def one_per_machine(world: GlobalComm) -> tuple[int, ...]:
    """The first device of each machine; every device where the library does not tell machines."""
    ci = world.comm.ci
    assert ci is not None, "a world is set up before it is used"
    if not ci.peers:
        return tuple(range(ci.rank_n))
    first: dict[str, int] = {}
    for peer in ci.peers:
        first.setdefault(peer.host, peer.device)
    return tuple(first.values())


def _over_network(
    world: GlobalComm, members: tuple[int, ...], nccom: Nccom, deadline: Deadline
) -> MusterError | None:
    rank = members.index(world.identity.g_device_id)
    steps = barrier(rank, len(members))
    return drive(steps, nccom, world.bootstrap_socket, members, deadline)


def all_gather(
    world: GlobalComm, payload: bytes, nccom: Nccom, deadline: Deadline
) -> tuple[bytes, ...]:
    """Every device's *payload*, by id. Raises BadArgument for unequal sizes and large ones."""
    identity = world.identity
    size = identity.g_device_cnt
    if len(payload) * size > GATHERED_BYTES:
        raise BadArgument(
            f"{len(payload)} bytes from each of {size} devices are over {GATHERED_BYTES}",
            fix="control-plane payloads only",
        )
    steps = gather_steps(identity.g_device_id, size, payload)
    gathered = drive(steps, nccom, world.bootstrap_socket, range(size), deadline)
    sizes = {len(each) for each in gathered}
    if len(sizes) > 1:
        raise BadArgument(f"devices gather inputs of {', '.join(map(str, sorted(sizes)))} bytes")
    return gathered
