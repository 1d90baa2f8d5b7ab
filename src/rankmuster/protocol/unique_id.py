"""The 128-byte unique id of a group (`ncclUniqueId`): where its root listens, and a nonce.

Packed root address, random nonce, zero padding (facts D12). The randomness is passed in.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from functools import lru_cache

from rankmuster.errors import LocalProtocolError, RemoteProtocolError
from rankmuster.protocol.frames import UNIQUE_ID_BYTES

NONCE_BYTES = 32
LAYOUT = struct.Struct("<HHI16s32s72x")  # family, port, IPv6 scope, address, nonce
assert LAYOUT.size == UNIQUE_ID_BYTES

# On the wire as Linux numbers them; AF_INET6 differs elsewhere.
FAMILY_V4 = 2
FAMILY_V6 = 10
FAMILIES = {FAMILY_V4: 4, FAMILY_V6: 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueId:
    """A group's root address (`host` is an IPv4 or IPv6 literal) and what tells two ids apart."""

    host: str
    port: int
    nonce: bytes
    scope: int = 0

    def pack(self) -> bytes:
        """The 128 bytes; raises `LocalProtocolError` for what has no place in them."""
        address = _parsed(self.host)
        if not 0 <= self.port < 1 << 16 or len(self.nonce) != NONCE_BYTES:
            raise LocalProtocolError(
                f"a unique id holds a port below 65536 and {NONCE_BYTES} bytes of nonce, "
                f"not {self.port} and {len(self.nonce)}"
            )
        family = FAMILY_V4 if address.version == 4 else FAMILY_V6
        return LAYOUT.pack(family, self.port, self.scope, address.packed, self.nonce)


@lru_cache(maxsize=16)  # a process makes an id for each of its groups, all with its own address
def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(host)
    except ValueError as error:
        raise LocalProtocolError(f"a unique id holds an address, not {host!r}") from error


def unpack_unique_id(packed: bytes) -> UniqueId:
    """Read what `UniqueId.pack` made; raises `RemoteProtocolError` for anything else."""
    if len(packed) != UNIQUE_ID_BYTES:
        raise RemoteProtocolError(f"a unique id has {UNIQUE_ID_BYTES} bytes, not {len(packed)}")
    family, port, scope, address, nonce = LAYOUT.unpack(packed)
    if family not in FAMILIES:
        raise RemoteProtocolError(f"a unique id's address family is 2 or 10, not {family}")
    host = str(ipaddress.ip_address(address[: FAMILIES[family]]))
    unique_id = UniqueId(host=host, port=port, nonce=nonce, scope=scope)
    if unique_id.pack() != packed:
        raise RemoteProtocolError("a unique id has bytes where there should be none")
    return unique_id
