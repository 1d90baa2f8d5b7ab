"""Every message that S4 quotes: one place in the source, and one way to produce it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rankmuster
from rankmuster.arch import mapping
from rankmuster.arch.chip import NETWORK_DEVICE, Chip, Generation, chip_for
from rankmuster.arch.devices import server_id
from rankmuster.arch.fabric import TRN1_TORUS, TRN2_TORUS, TRN3_SWITCH
from rankmuster.errors import (
    InvalidCluster,
    InvariantError,
    MusterError,
    NoSyncProcessor,
    UnknownGeneration,
)
from rankmuster.status import Status

SOURCES = [path.read_text() for path in Path(str(rankmuster.__file__)).parent.rglob("*.py")]
RIDS = dict(enumerate(TRN2_TORUS.rids))


def sunda() -> Chip:
    return chip_for(Generation.SUNDA, TRN1_TORUS)


def cayman(*, built: bool = False) -> Chip:
    chip = chip_for(Generation.CAYMAN, TRN2_TORUS, core_size=2)
    if built:
        mapping.build_port_and_rid_map(chip, 0, range(16), range(16), RIDS)
    return chip


def behind_switch() -> Chip:
    chip = chip_for(Generation.MARIANA, TRN3_SWITCH, core_size=2)
    mapping.build_port_and_rid_map(chip, 0, range(16), range(16), RIDS)
    return chip


def build(rids: dict[int, int] | None) -> Any:
    return mapping.build_port_and_rid_map(cayman(), 0, [0], [0], rids)


CASES: list[tuple[str, str, type[Exception], Callable[[], Any]]] = [
    (
        "Architecture not found",
        "Architecture not found 7",
        UnknownGeneration,
        lambda: chip_for(7, TRN2_TORUS),
    ),
    (
        "nec_dev_id != NEC_NET_MLA_DEV",
        "arch.c:131: encd_arch_get_resource_pool: nec_dev_id != NEC_NET_MLA_DEV",
        InvariantError,
        lambda: cayman().resource_pool(NETWORK_DEVICE),
    ),
    (
        "s.get_max_links_per_pod_port",
        "arch.c:267: encd_arch_get_max_links_per_pod_port: s.get_max_links_per_pod_port",
        InvariantError,
        lambda: sunda().max_links_per_pod_port(),
    ),
    (
        "s.get_seng_rel_devid",
        "s.get_seng_rel_devid",
        InvariantError,
        lambda: sunda().seng_rel_devid(0),
    ),
    (
        "s.get_die_idx_from_tpb_idx",
        "s.get_die_idx_from_tpb_idx",
        InvariantError,
        lambda: sunda().die_idx_from_tpb_idx(0),
    ),
    (
        "failed to get topsp",
        "[nec_dev 3] failed to get topsp",
        NoSyncProcessor,
        lambda: cayman().topsp_for_worker(3, 99),
    ),
    ("vcore != NULL", "vcore != NULL", InvariantError, lambda: cayman().mla_device_idx(64)),
    (
        "local_nec_dev_id != NEC_NET_MLA_DEV",
        "local_nec_dev_id != NEC_NET_MLA_DEV",
        InvariantError,
        lambda: mapping.build_port_and_rid_map(cayman(), NETWORK_DEVICE, [0], [0], RIDS),
    ),
    (
        "Failed to retrieve host device ID to routing ID map",
        "Failed to retrieve host device ID to routing ID map",
        InvalidCluster,
        lambda: build(None),
    ),
    (
        "Mismatching routing ID",
        "Mismatching routing ID 16 of chip 0",
        InvalidCluster,
        lambda: build({0: 16}),
    ),
    (
        "mla_idx < MAX_MLA_DEVICES",
        "mla_idx < MAX_MLA_DEVICES",
        InvariantError,
        lambda: mapping.is_mla_available(cayman(built=True), 0, 32),
    ),
    (
        "maps->device_id_maps_build",
        "maps->device_id_maps_build",
        InvariantError,
        lambda: mapping.is_mla_available(cayman(), 0, 0),
    ),
    (
        "maps.mla_to_rid[mla] >= 0",
        "maps.mla_to_rid[mla] >= 0",
        InvariantError,
        lambda: mapping.mla_idx_to_rid(cayman(built=True), 0, 31),
    ),
    (
        "encd_get_server_id(rid) == encd_get_server_id(my_rid)",
        "encd_get_server_id(rid) == encd_get_server_id(my_rid)",
        InvariantError,
        lambda: mapping.rid_to_mla_idx(behind_switch(), 0, 0x17),
    ),
    (
        "TRN_PDS_ROUTING_ID_ASSERT_UNUSED(routing_id)",
        "TRN_PDS_ROUTING_ID_ASSERT_UNUSED(routing_id)",
        InvariantError,
        lambda: server_id(1 << 20),
    ),
]


@pytest.mark.parametrize(
    ("text", "message", "error", "trigger"), CASES, ids=[case[0] for case in CASES]
)
def test_message(
    text: str, message: str, error: type[Exception], trigger: Callable[[], Any]
) -> None:
    """The message is produced by what S4 says produces it."""
    with pytest.raises(error) as caught:
        trigger()
    assert message in str(caught.value)


@pytest.mark.parametrize("text", [case[0] for case in CASES])
def test_message_stands_once(text: str) -> None:
    """No message is written down twice."""
    longer = [other for other, *_ in CASES if text in other and other != text]
    count = sum(source.count(text) for source in SOURCES)
    assert count - sum(source.count(other) for source in SOURCES for other in longer) == 1


def test_only_the_sync_processor_fails_for_callers() -> None:
    """A missing sync processor is a failure to handle; a bad core breaks an invariant (S4 §2)."""
    assert NoSyncProcessor.status is Status.FAILURE
    assert issubclass(NoSyncProcessor, MusterError)
    with pytest.raises(InvariantError):
        cayman().topsp_for_worker(NETWORK_DEVICE, 0)


GUARDED = (
    *("mla_device", "mla_device_idx", "worker_idx_rel_mla", "resource_pool", "dma_alloc_bitmap"),
    *("switch_exit_port", "max_devs", "mesh_max_folds"),
)


@pytest.mark.parametrize("name", GUARDED)
def test_guard_comes_before_the_look_up(name: str) -> None:
    """Accessors that take a device refuse the network pseudo-device first."""
    with pytest.raises(InvariantError, match="NEC_NET_MLA_DEV"):
        getattr(cayman(), name)(NETWORK_DEVICE)
