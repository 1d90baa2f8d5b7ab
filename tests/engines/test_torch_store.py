"""The torch store keeps the contract of all transports, and leaves nothing in the store."""

from __future__ import annotations

from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from rankmuster.errors import MissingPackage
from rankmuster.testing import contract
from rankmuster.transport.base import Deadline, Identity, Lost, Role
from rankmuster.transport.torch_store import NoStore, StoreTransport, torch_distributed

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def torch():
    """The library, imported as our engine does it."""
    try:
        return torch_distributed()
    except MissingPackage as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def store(torch):
    """A server in this process, as the agent of torchrun keeps one."""
    return torch.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def pair(torch, store):
    """Two endpoints, each over a connection of its own to the store."""

    @contextmanager
    def make():
        clients = [
            torch.TCPStore(
                "127.0.0.1",
                store.port,
                is_master=False,
                wait_for_workers=False,
                timeout=timedelta(seconds=10),
            )
            for _ in range(2)
        ]
        zero, one = (
            StoreTransport(client, process, 2).open(
                Identity(process, process, 1), Deadline.after(60)
            )
            for process, client in enumerate(clients)
        )
        with closing(one), closing(zero):
            yield one, zero, one.dial(zero.listen(), Role.PEER)

    return make


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_torch_store_keeps_the_contract(pair, check):
    """Every check of the shipped contract holds."""
    check(pair)


@pytest.mark.usefixtures("store")  # torch keeps the pipes of its first server
def test_a_store_that_goes_away_loses_everybody(torch):
    """When the agent that keeps the store ends, every connection is lost, and nothing hangs."""
    server = torch.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = torch.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False)
    transport = StoreTransport(client, 1, 2)
    with closing(transport.open(Identity(1, 1, 1), Deadline.after(60))) as endpoint:
        handle = endpoint.dial("0", Role.CENSUS)
        assert endpoint.poll(0.0) == []
        del server
        (lost,) = endpoint.poll(1.0)
        assert (type(lost), lost.handle, lost.why[:16]) == (Lost, handle, "the torch store:")


def test_without_an_agent_there_is_no_store():
    """Asked for by name outside torchrun, the engine says what it needs."""
    with pytest.raises(NoStore, match="start it by torchrun"):
        StoreTransport.of_torchrun({"RANK": "0"}, Deadline.after(1))


def test_what_was_read_is_deleted(store, pair):
    """Only the farewells that nobody was left to read stay in the store."""
    with pair():
        pass
    before = store.num_keys()
    with pair() as (one, zero, _):
        for _ in range(10):
            one.poll(0.005)
            zero.poll(0.005)
        assert store.num_keys() <= before + 2  # the counts of announcements to each of them
