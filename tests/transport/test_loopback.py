"""The loopback transport keeps the contract, and whole sessions run over it in threads."""

from __future__ import annotations

from contextlib import closing, contextmanager

import pytest

from rankmuster.testing import contract
from rankmuster.transport.base import Deadline, Identity, Role
from rankmuster.transport.loopback import Loopback


@contextmanager
def pair():
    world = Loopback(2)
    zero, one = (
        world.transport(process).open(Identity(process, process, 1), Deadline.after(60))
        for process in range(2)
    )
    with closing(one), closing(zero):
        yield one, zero, one.dial(zero.listen(), Role.PEER)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_loopback_keeps_the_contract(check):
    """Every check of the shipped contract holds."""
    check(pair)
