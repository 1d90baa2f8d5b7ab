"""What kind of server this process runs on, and how it counts cores: a claim for its card."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")  # "trn2.48xlarge" on EC2
INSTANCE = re.compile(r"[a-z]+[0-9][a-z0-9-]*\.[0-9]*[a-z]+")
CORE_SIZES = ("NEURON_RT_VIRTUAL_CORE_SIZE", "NEURON_LOGICAL_NC_CONFIG")  # facts §6.1


def this_instance() -> str:
    """The instance type that the runtime would see; "" where this is none."""
    return os.environ.get("NEURON_RT_FAKE_INSTANCE_TYPE", "") or _product()


def this_core_size() -> int | None:
    """Physical cores of a logical one, where the environment says so."""
    said = (os.environ.get(name, "") for name in CORE_SIZES)
    return next((int(text) for text in said if text in {"1", "2"}), None)


@functools.cache
def _product() -> str:
    try:
        name = PRODUCT.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return name if INSTANCE.fullmatch(name) else ""
