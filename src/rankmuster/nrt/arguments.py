"""The C-shaped parameters: checked before use, so that a wrong one is a status and no exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rankmuster.errors import BadArgument, MusterError
from rankmuster.program import OpKind
from rankmuster.status import Status

T = TypeVar("T")
U32 = 0xFFFF_FFFF

# nrt.h (facts §2.4)
CC_OPS = {0: OpKind.ALL_GATHER, 1: OpKind.ALL_REDUCE, 2: OpKind.REDUCE_SCATTER}
OPS = {0: "add", 1: "fma", 2: "max", 3: "min"}
NO_OP = 0xF
# Number -> our name and bytes. FP32R is f32 in another format of the engine.
DTYPES = {
    0x1: ("u64", 8),
    0x2: ("s8", 1),
    0x3: ("u8", 1),
    0x4: ("s16", 2),
    0x5: ("u16", 2),
    0x6: ("bf16", 2),
    0x7: ("f16", 2),
    0x8: ("s32", 4),
    0x9: ("u32", 4),
    0xA: ("f32", 4),
    0xB: ("f32", 4),
    0xC: ("s64", 8),
    0xD: ("f8e3m4", 1),
    0xE: ("f8e4m3", 1),
    0xF: ("f8e5m2", 1),
}


class BadHandle(MusterError):
    """Something that this runtime did not hand out, or has taken back."""

    status = Status.INVALID_HANDLE


@dataclass(slots=True)
class Out(Generic[T]):
    """An out-parameter: `value` is set where the call succeeds."""

    value: T | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NrtCcComm:
    """`nrt_cc_comm`: the members of a host-driven collective, and this device's place."""

    replica_group: tuple[int, ...]
    rank: int
    rank_n: int
    ctx_device_id: int
    ctx_device_count: int
    vnc: int


def u32(name: str, value: Any) -> int:
    """An unsigned word. Raises BadArgument."""
    return _whole(name, value, 0, U32)


def core(name: str, value: Any) -> int:
    """A signed word that names a core. Raises BadArgument."""
    return _whole(name, value, -(1 << 31), (1 << 31) - 1)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadArgument(f"{name} is a whole number from {low} to {high}, not {value!r}")
    return value


def listed(name: str, value: Any) -> list[Any]:
    """The members of a list. Raises BadArgument."""
    try:
        return list(value)
    except (TypeError, ValueError, NotImplementedError) as error:  # a closed or odd buffer
        raise BadArgument(f"{name} is a list, not {value!r}") from error


def out(name: str, value: Any) -> Out[Any]:
    """An out-parameter. Raises BadArgument."""
    if not isinstance(value, Out):
        raise BadArgument(f"{name} takes its result in an Out, not {value!r}")
    return value


def readable(name: str, value: Any, at_least: int = 0) -> memoryview:
    """The bytes of a buffer. Raises BadArgument."""
    try:
        view = memoryview(value).cast("B")
    except (TypeError, ValueError) as error:  # closed, released, or of elements without a format
        raise BadArgument(f"{name} is no buffer of bytes: {error}") from error
    if len(view) < at_least:
        raise BadArgument(f"{name} has {len(view)} bytes where {at_least} are needed")
    return view


def writable(name: str, value: Any, at_least: int) -> memoryview:
    """A buffer to write to. Raises BadArgument."""
    view = readable(name, value, at_least)
    if view.readonly:
        raise BadArgument(f"{name} cannot be written to")
    return view


def choice(name: str, value: Any, allowed: dict[int, Any]) -> Any:
    """What a number of the header stands for. Raises BadArgument."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise BadArgument(f"{name} is one of {', '.join(map(str, allowed))}, not {value!r}")
    return allowed[value]
