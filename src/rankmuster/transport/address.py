"""Where a process listens, as text: "10.0.0.1:4321", "[fe80::1]:4321", "trn-3:4321"."""

from __future__ import annotations

from typing import Any

from rankmuster.errors import MusterError
from rankmuster.status import Status


class BadAddress(MusterError):
    """An address is not of the form host:port."""

    status = Status.INVALID


def join_address(name: tuple[Any, ...]) -> str:
    """The text for a socket's own name; an IPv4 address in IPv6 clothes is written as IPv4."""
    host, port = str(name[0]).removeprefix("::ffff:"), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int]:
    """Host and port of *text*. Raises `BadAddress`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise BadAddress(f"{text!r} is not an address", fix="write host:port or [ipv6]:port")
    if ":" in host and not bracketed:
        raise BadAddress(f"{text!r} is ambiguous", fix=f"write [{host}]:{port}")
    return host, int(port)
