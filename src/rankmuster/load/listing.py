"""Opens the listings of servers that a cluster's name points at."""

from __future__ import annotations

from rankmuster.formats.neuron_ls import LIMIT_BYTES
from rankmuster.load.files import contents


def read_listing(path: str) -> bytes:
    """What a server's `neuron-ls -j` wrote, a byte more than the limit at most.

    Raises `UnreadableInput`.
    """
    with contents(path, lambda _: LIMIT_BYTES) as data:
        return bytes(data[: LIMIT_BYTES + 1])
