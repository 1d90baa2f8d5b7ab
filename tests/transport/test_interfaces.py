"""Addresses by class, and the choice of an interface among those of a host."""

from __future__ import annotations

import pytest

from rankmuster.address import Reach, reach_of
from rankmuster.transport.interfaces import Interface, NoSuchInterface, choose, interfaces

HOST = [
    Interface("lo", "127.0.0.1", Reach.LOOPBACK),
    Interface("docker0", "172.17.0.1", Reach.BRIDGE),
    Interface("enp90s0np0", "fe80::2%enp90s0np0", Reach.LINK_LOCAL),
    Interface("enp90s0np0", "fd00::2", Reach.ROUTABLE),
    Interface("enp90s0np0", "10.1.0.4", Reach.ROUTABLE),
    Interface("eth1", "192.168.3.8", Reach.ROUTABLE),
]


@pytest.mark.parametrize(
    ("host", "reach"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.1", "loopback"),
        ("::1", "loopback"),
        ("localhost", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("169.254.1.1", "link-local"),
        ("fe80::1%eth1", "link-local"),
        ("172.17.0.1", "bridge"),
        ("10.0.0.5", "routable"),
        ("fd00::5", "routable"),
        ("trn-3", "name"),
    ],
)
def test_addresses_are_told_apart(host, reach):
    """What others can reach, what only this host can, and what every host has."""
    assert reach_of(host) == reach


@pytest.mark.parametrize(
    ("wanted", "address"),
    [
        ("enp90s0np0", "10.1.0.4"),
        ("=enp90s0np0", "10.1.0.4"),
        ("en*", "10.1.0.4"),
        ("192.168.0.0/16", "192.168.3.8"),
        ("fd00::/8", "fd00::2"),
        ("10.1.0.4", "10.1.0.4"),
        ("docker0", "172.17.0.1"),
    ],
)
def test_an_interface_by_name_pattern_or_network(wanted, address):
    """Of several addresses the one that others can reach, IPv4 first."""
    assert choose(wanted, HOST) == address


def test_a_pattern_that_matches_nothing_lists_what_there_is():
    """The nearest name is offered."""
    with pytest.raises(NoSuchInterface) as caught:
        choose("enp90s0", HOST)
    assert "'enp90s0' matches none of lo 127.0.0.1 (loopback), docker0 172.17.0.1 (bridge)" in str(
        caught.value
    )
    assert str(caught.value).endswith("did you mean 'enp90s0np0'?")


def test_this_host_has_a_loopback():
    """The C library's list is read as it stands."""
    assert any(each.reach is Reach.LOOPBACK for each in interfaces())
