"""Everybody who may come to the door while sixteen processes come up: counted, and no more."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct

from session_worlds import muster_world
from test_muster import step

from rankmuster.address import Ends
from rankmuster.transport.base import Identity, Role
from rankmuster.transport.handshake import CONFIRM, MAGIC, Credentials, dial

SECRET = b"s" * 32
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close by reset


def hello(us: Credentials) -> bytes:
    ends = Ends("127.0.0.1:1", "127.0.0.1:2")
    return next(dial(us, Identity(5, 10, 2), Role.CENSUS, b"n" * 16, ends)).send


def strangers(job: bytes, epoch: int) -> dict[str, bytes]:
    us = Credentials(SECRET, job, epoch)
    return {
        "HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "not our protocol": os.urandom(1).replace(b"R", b"x") + bytes(1 << 20),
        "wrong secret": hello(us._replace(secret=b"x" * 32)),
        "other epoch": hello(us._replace(epoch=epoch + 7)),
        "handshake not confirmed": hello(us) + bytes(CONFIRM.size),
    }


def test_sixteen_processes_come_up_among_strangers(monkeypatch):
    """A scan, noise, replays, another job and a flood: all agree, and each kind is counted."""
    monkeypatch.setattr("rankmuster.launch.local.secrets", FixedSecret)
    may_go_on, go_on = os.pipe()

    def wait(number: int, phase: str) -> None:
        if (number, phase) == (3, "census"):
            os.read(may_go_on, 1)

    def knock(world) -> None:
        host, port = world.root.rsplit(":", 1)
        door = (host, int(port))
        held = []
        for said in strangers(bytes.fromhex(world._job), 0).values():
            held.append(socket.create_connection(door))
            with contextlib.suppress(ConnectionError):
                held[-1].sendall(said)
        held.append(socket.create_connection(door))  # says nothing
        held.append(socket.create_connection(door))
        held[-1].sendall(MAGIC[:3])
        for _ in range(20):
            with socket.create_connection(door) as scan:
                scan.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        flood(door, 5000)
        os.write(go_on, b".")
        os.close(go_on)
        os.close(may_go_on)
        for each in held:
            each.close()

    outcomes, report = muster_world(
        [lambda: step(32)] * 16,
        devices_each=2,
        on_phase=wait,
        meanwhile=knock,
        deadline_s=20.0,
    )
    assert [each.verdict for each in outcomes] == ["agree"] * 16
    (found,) = report["findings"]
    assert found["code"] == "RM604"
    for kind in (*strangers(b"", 0), "left without a word"):
        assert kind in found["message"]
    assert int(found["message"].split()[1]) >= 1000  # those that it came to before go


class FixedSecret:
    """The module `secrets`, but for the secret of the launch."""

    token_hex = staticmethod(secrets.token_hex)

    @staticmethod
    def token_bytes(count: int) -> bytes:
        return SECRET[:count]


def flood(door: tuple[str, int], count: int) -> None:
    """So many connections of one stranger, some hundreds of them open at any time."""
    held: list[socket.socket] = []
    for _ in range(count):
        held.append(socket.create_connection(door))
        if len(held) > 400:
            held.pop(0).close()
    for each in held:
        each.close()
