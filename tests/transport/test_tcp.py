"""TCP keeps the contract, and strangers cost it nothing but a line in a list."""

from __future__ import annotations

import errno
import secrets
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager

import pytest

from rankmuster.address import BadAddress, Ends
from rankmuster.testing import contract
from rankmuster.transport import guests
from rankmuster.transport.base import Identity, Joined, Knocked, Lost, Received, Role
from rankmuster.transport.framing import Frame, Kind
from rankmuster.transport.handshake import CONFIRM, MAGIC, Credentials, dial
from rankmuster.transport.tcp import TcpEndpoint

US = Credentials(b"s" * 32, b"job", 1)


def endpoint(process=0, credentials=US) -> TcpEndpoint:
    return TcpEndpoint(credentials, Identity(process, process, 1), lambda: secrets.token_bytes(16))


@contextmanager
def pair(credentials=US):
    with closing(endpoint(1, credentials)) as dialler, closing(endpoint()) as listener:
        handle = dialler.dial(listener.listen("127.0.0.1"), Role.PEER)
        yield dialler, listener, handle


def turn(until, *endpoints, patience_s=5.0):
    """Poll all in turns until one's event fits; return all events by endpoint."""
    heard = {each: [] for each in endpoints}
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        for each in endpoints:
            events = each.poll(0.001)
            heard[each] += events
            if any(map(until, events)):
                return heard
    raise AssertionError(f"it never came: {heard}")


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_tcp_keeps_the_contract(check):
    """Every check of the shipped contract holds."""
    check(pair)


def test_both_sides_are_told_who_the_other_is():
    """A handshake shows the dialler at the listener's door, then joins both."""
    with pair() as (dialler, listener, handle):
        heard = turn(lambda event: isinstance(event, Joined), dialler, listener)
        heard[listener] += turn(lambda event: isinstance(event, Joined), listener)[listener]
        assert heard[listener] == [
            Knocked(1, Identity(1, 1, 1), Role.PEER),
            Joined(1, Identity(1, 1, 1), Role.PEER),
        ]
        assert heard[dialler] == [Joined(handle, Identity(0, 0, 1), Role.PEER)]


def test_a_dialler_waits_for_a_listener_that_comes_later():
    """Nobody has to be first: a refused connection is dialled again."""
    with closing(socket.socket()) as reserved, closing(endpoint(1)) as dialler:
        reserved.bind(("127.0.0.1", 0))
        host, port = reserved.getsockname()
        handle = dialler.dial(f"{host}:{port}", Role.CENSUS)
        dialler.send(handle, Frame(Kind.CARD, b"early"))
        for _ in range(5):
            assert dialler.poll(0.002) == []
        reserved.listen()
        with closing(endpoint()) as listener:
            listener.adopt(reserved)
            heard = turn(lambda event: isinstance(event, Received), dialler, listener)
            assert heard[listener][-1].frame == Frame(Kind.CARD, b"early")


def test_a_wrong_secret_is_told_on_both_sides():
    """The dialler learns why at once, and the listener counts a stranger."""
    with pair(US._replace(secret=b"x" * 32)) as (dialler, listener, handle):
        heard = turn(lambda event: isinstance(event, Lost), dialler, listener)
        assert heard[dialler] == [Lost(handle, "refused: wrong secret")]
        assert listener.strangers == {"wrong secret": 1}


def test_a_process_that_is_ahead_waits_for_the_others():
    """The second attempt of a job may dial while its root still ends the first."""
    with pair(US._replace(epoch=2)) as (dialler, listener, _):
        for _ in range(10):
            assert [*dialler.poll(0.005), *listener.poll(0.005)] == []
        assert set(listener.strangers) == {"other epoch"}


def test_a_process_that_is_behind_is_turned_away():
    """A process of an earlier attempt has no place in this one."""
    with pair(US._replace(epoch=0)) as (dialler, listener, handle):
        heard = turn(lambda event: isinstance(event, Lost), dialler, listener)
        assert heard[dialler] == [Lost(handle, "refused: other epoch")]


def replayed() -> bytes:
    ends = Ends("127.0.0.1:1", "127.0.0.1:2")
    return next(dial(US, Identity(3, 3, 1), Role.CENSUS, b"n" * 16, ends)).send


STRANGERS = {
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True, "HTTP request"),
    "tls": (b"\x16\x03\x01\x02\x00", True, "TLS client"),
    "noise": (bytes(range(7, 256)) * 4096, True, "not our protocol"),
    "nothing": (b"", True, "left without a word"),
    "three bytes": (MAGIC[:3], True, "left half-way"),
    "wrong proof": (replayed()[:-1] + b"\0", True, "wrong secret"),
    "replayed hello": (replayed() + bytes(CONFIRM.size), True, "handshake not confirmed"),
    "held open": (MAGIC[:3], False, "stopped half-way"),
    "silent": (b"", False, "silent"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_counted_by_kind_and_change_nothing(name, monkeypatch):
    """Whatever comes in, the connections of the job go on."""
    monkeypatch.setattr(guests, "HELLO_S", 0.05)
    said, leaves, kind = STRANGERS[name]
    with ExitStack() as stack:
        dialler, listener, handle = stack.enter_context(pair())
        address = listener.listen("127.0.0.1").rsplit(":", 1)
        stranger = stack.enter_context(closing(socket.create_connection(address)))
        stranger.setblocking(False)
        try:
            stranger.send(said)
            if leaves:
                stranger.shutdown(socket.SHUT_WR)
        except (ConnectionError, OSError):
            pass
        end = time.monotonic() + 5
        while not listener.strangers and time.monotonic() < end:
            listener.poll(0.01)
        assert listener.strangers == {kind: 1}
        dialler.send(handle, Frame(Kind.GROUP, b"still here"))
        turn(lambda event: isinstance(event, Received), listener, dialler)


def test_a_flood_of_silent_strangers_pushes_out_its_own_oldest(monkeypatch):
    """More silent connections than the bound close each other, and a process still gets in."""
    monkeypatch.setattr(guests, "UNPROVEN_LIMIT", 16)
    with ExitStack() as stack:
        listener = stack.enter_context(closing(endpoint()))
        address = listener.listen("127.0.0.1")
        host, port = address.rsplit(":", 1)
        for _ in range(100):
            stack.enter_context(closing(socket.create_connection((host, int(port)))))
            listener.poll(0.0)
        dialler = stack.enter_context(closing(endpoint(1)))
        dialler.dial(address, Role.CENSUS)
        turn(lambda event: isinstance(event, Joined), listener, dialler)
        assert listener.strangers["pushed out by newer ones"] >= 100 - 16


def test_replayed_hellos_push_each_other_out():
    """A hello that was overheard opens the door and no more, however often it is repeated."""
    with ExitStack() as stack:
        listener = stack.enter_context(closing(endpoint()))
        address = listener.listen("127.0.0.1")
        host, port = address.rsplit(":", 1)
        for _ in range(20):
            door = stack.enter_context(closing(socket.create_connection((host, int(port)))))
            door.sendall(replayed())
            listener.poll(0.1)
        dialler = stack.enter_context(closing(endpoint(3)))
        dialler.dial(address, Role.CENSUS)
        turn(lambda event: isinstance(event, Joined), listener, dialler)
        assert listener.strangers == {"replayed hello": 21 - guests.REPLAYS}


def test_without_descriptors_callers_wait_and_nobody_spins(monkeypatch):
    """Out of descriptors the door is closed for a moment, and opened again."""
    with ExitStack() as stack:
        listener = stack.enter_context(closing(endpoint()))
        address = listener.listen("127.0.0.1")
        (door,) = listener._listeners
        refusals = iter([OSError(errno.EMFILE, "Too many open files")] * 2)

        class Full:
            def __getattr__(self, name):
                return getattr(door, name)

            def accept(self):
                for refusal in refusals:
                    raise refusal
                return door.accept()

        full = Full()
        monkeypatch.setattr(listener, "_listeners", [full])
        listener._selector.unregister(door)
        listener._open_door(full)
        dialler = stack.enter_context(closing(endpoint(1)))
        dialler.dial(address, Role.CENSUS)
        turn(lambda event: isinstance(event, Joined), listener, dialler)
        assert listener.strangers == {}


def test_many_endpoints_in_a_row_leave_nothing_behind():
    """Descriptors return to where they were; the fixture of all tests looks."""
    for _ in range(50):
        with pair() as (dialler, listener, _):
            turn(lambda event: isinstance(event, Joined), listener, dialler)


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:0", "host:65536", "::1:80"])
def test_an_address_that_is_none_is_refused_with_its_text(text):
    """What cannot be dialled is said before anything is dialled."""
    with closing(endpoint()) as dialler, pytest.raises(BadAddress, match=r"address|ambiguous"):
        dialler.dial(text, Role.PEER)


def test_a_name_server_that_does_not_answer_holds_nobody_up(monkeypatch):
    """Names are asked for aside: meanwhile the endpoint turns, and then it goes on."""
    answer = threading.Event()
    really = socket.getaddrinfo

    def slow(host, *rest, **more):
        if host == b"root.example":
            if more.get("flags"):
                raise socket.gaierror(socket.EAI_NONAME, "not a number")
            answer.wait(10)
            host = b"127.0.0.1"
        return really(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with ExitStack() as stack:
        listener = stack.enter_context(closing(endpoint()))
        port = listener.listen("127.0.0.1").rsplit(":", 1)[1]
        dialler = stack.enter_context(closing(endpoint(1)))
        start = time.monotonic()
        handle = dialler.dial(f"root.example:{port}", Role.CENSUS)
        assert dialler.poll(0.05) == []
        assert time.monotonic() - start < 1.0
        assert dialler.unreached() == {handle: f"root.example:{port}: its name is being looked up"}
        answer.set()
        turn(lambda event: isinstance(event, Joined), listener, dialler)


def test_a_name_of_nothing_is_tried_again():
    """The name may come to be known; meanwhile it is said."""
    with closing(endpoint()) as dialler:
        handle = dialler.dial("no-such-host.invalid:80", Role.CENSUS)
        end = time.monotonic() + 10
        while "looked up" in dialler.unreached()[handle] and time.monotonic() < end:
            assert dialler.poll(0.05) == []
        assert dialler.unreached()[handle].startswith("no-such-host.invalid:80: ")
