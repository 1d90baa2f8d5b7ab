"""What a root concludes from the address at which the others look for it."""

from __future__ import annotations

import contextlib

import pytest

from rankmuster.address import Reach
from rankmuster.doorway import Doorway
from rankmuster.launch.base import Place
from rankmuster.transport.doors import open_door
from rankmuster.transport.handshake import Credentials
from rankmuster.transport.interfaces import interfaces
from rankmuster.transport.tcp import TcpEndpoint

JOB = {"job": bytes(16), "epoch": 0, "secret": bytes(32)}
OURS = next((each.address for each in interfaces() if each.reach is Reach.ROUTABLE), "127.0.0.1")


@pytest.mark.parametrize(
    ("root", "elsewhere", "misplaced"),
    [
        ("192.0.2.77", True, True),
        ("127.0.0.1", False, True),
        ("trn1", False, False),
        ("TRN1.cluster.local", False, False),
        ("trn2", True, False),
        (OURS, False, None),
    ],
)
def test_where_a_root_is_looked_for(root: str, elsewhere: bool, misplaced: bool | None) -> None:
    """Another host's address or name may lead to another root; the loopback leads to nobody's."""
    place = Place(
        **JOB,
        process=0,
        processes=2,
        devices=(0,),
        world_size=2,
        root=f"[{root}]:20480",
        host="trn1",
        open_door=lambda: open_door("192.0.2.77"),
    )
    me = TcpEndpoint(Credentials(**JOB), place.identity, lambda: bytes(16))
    with contextlib.closing(me):
        doorway = Doorway(place, me)
        doorway.open_for_census()
        assert doorway.is_elsewhere() is elsewhere
        if misplaced is not None:
            assert (doorway.misplaced_root() is not None) is misplaced


def test_a_root_whose_door_was_given_to_it_is_where_it_is_looked_for() -> None:
    """Whoever forked the processes has told them all."""
    with open_door("127.0.0.1") as door:
        place = Place(
            **JOB,
            process=0,
            processes=2,
            devices=(0,),
            world_size=2,
            root="192.0.2.77:20480",
            listener=door,
        )
        me = TcpEndpoint(Credentials(**JOB), place.identity, lambda: bytes(16))
        with contextlib.closing(me):
            doorway = Doorway(place, me)
            doorway.open_for_census()
            assert not doorway.is_elsewhere()
            assert doorway.misplaced_root() is None
