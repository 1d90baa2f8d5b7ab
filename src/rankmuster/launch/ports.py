"""Where the root listens: next to the job's own root, never on its port.

Once the muster is over the job's runtime opens its port itself, perhaps while a late socket of ours
still lingers there; so ours is another one, which everybody derives alike.
"""

from __future__ import annotations

from zlib import crc32

from rankmuster.address import join_address, split_address

FIRST_PORT, PORTS = 20480, 4096  # below the ports that systems hand out by themselves


def derived_port(seed: str, taken: int | None = None) -> int:
    """The port that belongs to *seed*, such as a job's id; never *taken*."""
    port = FIRST_PORT + crc32(seed.encode()) % PORTS
    return port if port != taken else port + 1


def beside(address: str) -> str:
    """Our root for a job whose own is *address*: its host, and another port.

    That comes of theirs alone, for not everybody calls the host by the same name. Raises
    `BadAddress`.
    """
    host, port = split_address(address)
    return join_address((host, derived_port(str(port), port)))
