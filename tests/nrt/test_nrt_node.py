"""The node that the environment describes: cores, chips, pod."""

from __future__ import annotations

import pytest
from nrt_worlds import node, settings

from rankmuster.environment import BadSetting
from rankmuster.node import Driver, node_from

POD = {"NEURON_RT_FAKE_INSTANCE_TYPE": "trn2u.48xlarge", "NEURON_RT_ULTRASERVER_SERVER_ID": "40"}


def test_a_whole_server() -> None:
    """Without settings the process owns a trn2 server: 64 virtual cores of two, on 16 chips."""
    made = node_from(settings())
    assert (made.name, len(made.visible), len(made.chips)) == ("trn2.48xlarge", 64, 16)
    assert made.layout.core_size == 2
    assert made.driver == Driver()


@pytest.mark.parametrize(
    ("environ", "visible"),
    [
        ({"NEURON_RT_NUM_CORES": "2"}, range(2)),
        ({"NEURON_RT_VISIBLE_CORES": "4,5-7"}, range(4, 8)),
        ({"NEURON_RT_VISIBLE_CORES": "9", "NEURON_RT_NUM_CORES": "2"}, range(9, 10)),
    ],
)
def test_cores_of_a_process(environ: dict[str, str], visible: range) -> None:
    """Visible cores win over a number of cores."""
    assert node_from(settings(**environ)).visible == visible


@pytest.mark.parametrize(
    "environ",
    [
        {"NEURON_RT_NUM_CORES": "65"},
        {"NEURON_RT_FAKE_INSTANCE_TYPE": "trn1", "NEURON_RT_VIRTUAL_CORE_SIZE": "2"},
        {"NEURON_RT_FAKE_INSTANCE_TYPE": "p5.48xlarge"},
    ],
)
def test_what_a_server_has_not(environ: dict[str, str]) -> None:
    """Too many cores, a core size and a server that do not exist are refused."""
    with pytest.raises(BadSetting):
        node_from(settings(**environ))


@pytest.mark.parametrize(
    ("mode", "seat"),
    [
        ({"NEURON_RT_ULTRASERVER_NODE_ID": "3"}, (1, 3, 4, 40)),
        ({"NEURON_RT_ULTRASERVER_NODE_ID": "7"}, (1, 7, 4, 40)),
        ({"NEURON_RT_ULTRASERVER_NODE_ID": "3", "NEURON_RT_ULTRASERVER_MODE": "1"}, (1, 3, 4, 40)),
        ({"NEURON_RT_ULTRASERVER_NODE_ID": "3", "NEURON_RT_ULTRASERVER_MODE": "3"}, (1, 1, 2, 39)),
        ({"NEURON_RT_ULTRASERVER_NODE_ID": "3", "NEURON_RT_ULTRASERVER_MODE": "4"}, (0, -1, 0, 0)),
        (
            {"NEURON_RT_ULTRASERVER_NODE_ID": "3", "NEURON_RT_ULTRASERVER_SINGLE_NODE": "1"},
            (0, -1, 0, 0),
        ),
        ({}, (0, -1, 0, 0)),
    ],
)
def test_seats_in_a_pod(mode: dict[str, str], seat: tuple[int, ...]) -> None:
    """The mode decides what of a pod the job sees; a seat out of range is left to the world."""
    driver = node_from(settings(**POD, **mode)).driver
    assert driver is not None
    assert (driver.pod_type, driver.pod_node_id, driver.pod_sz, driver.reservation_id) == seat


def test_cores_that_are_not_ours() -> None:
    """A core beyond the process's own is none; a chip that may not be opened, too."""
    here = node(visible=range(8, 10), chips=frozenset({0}))
    core = here.virtual_core(1)
    assert core is not None
    assert (core.nec_dev, core.tpbs, here.mla_idx(core)) == (1, (9,), None)
    assert (here.virtual_core(2), here.virtual_core(-1), here.vtpb_idx(5)) == (None, None, -1)


def test_a_secret_is_not_told() -> None:
    """What is wrong with the secret is said without it."""
    with pytest.raises(BadSetting) as caught:
        settings(RANKMUSTER_SECRET="hush\0")
    assert "hush" not in str(caught.value)
    assert "RANKMUSTER_SECRET" in str(caught.value)
