"""The NRT_STATUS numbers of the public nrt_status.h (facts §2.3): what `rankmuster.nrt` returns."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """NRT_STATUS, number for number; only those that this library can return."""

    SUCCESS = 0
    FAILURE = 1
    INVALID = 2
    INVALID_HANDLE = 3
    RESOURCE = 4
    TIMEOUT = 5
    UNSUPPORTED_NEFF_VERSION = 10
    FAIL_HOST_MEM_ALLOC = 11
    UNINITIALIZED = 13
    CLOSED = 14

    def __str__(self) -> str:
        return f"NRT_{self.name} ({self.value})"
