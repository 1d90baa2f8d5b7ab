"""The boundary over a shared library: its `neuron*` symbols, opened by name with ctypes.

The symbols' names are public, their prototypes are not: those in `SYMBOLS` are our reading. All
return 0 or a code. A call into such a library ends when the library lets it: only the deadline's
start is ours to check.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import POINTER, byref, c_char_p, c_int, c_uint32, c_void_p, create_string_buffer
from typing import Any

from rankmuster.errors import DeadlineExceeded, LocalProtocolError, PeerLost, SetupFailed
from rankmuster.libnccom.boundary import CommRequest
from rankmuster.libnccom.info import CommInfo
from rankmuster.protocol.frames import UNIQUE_ID_BYTES
from rankmuster.transport.base import Deadline

SYMBOLS: dict[str, tuple[Any, ...]] = {
    "neuronInit": (),
    "neuronGetUniqueId": (c_void_p, c_int, c_char_p),  # id (128 bytes, out), size, tag
    "neuronInitGlobalComm": (POINTER(c_void_p), c_char_p, c_int, c_int),  # comm, root, rank, size
    # comm (out), id, rank, size, participants, global comm
    "neuronInitComm": (POINTER(c_void_p), c_char_p, c_int, c_int, POINTER(c_uint32), c_void_p),
    "neuronBootstrapSend": (c_void_p, c_int, c_char_p, c_int),  # comm, peer, bytes, how many
    "neuronBootstrapRecv": (c_void_p, c_int, c_void_p, c_int),
    "neuronBuildGraphComm": (c_void_p,),
    "neuronGetCommInfo": (c_void_p, c_void_p),  # comm, nccl_comm_info (out)
    "neuronFreeComm": (c_void_p,),
}
# nccl_comm_info, 1376 bytes (facts §1.4); what follows the counts are pointers and rings.
INFO = struct.Struct("<QQ7i2?2x4i")
assert INFO.size == 64
INFO_BYTES = 1376


class SharedNccom:
    """The boundary over the library *name*, a path or what the loader finds.

    `missing` names the symbols that it lacks. With *partial* they are missed when they are called,
    otherwise by `init`. Raises `SetupFailed` where the library cannot be opened.
    """

    def __init__(self, name: str, *, partial: bool = False) -> None:
        self.name, self._partial = name, partial
        try:
            library = ctypes.CDLL(name)
        except (OSError, ValueError) as error:  # a name that no file can have
            raise SetupFailed(f"libnccom {name!r} cannot be opened: {error}") from error
        self._calls: dict[str, Any] = {}
        for symbol, parameters in SYMBOLS.items():
            call = getattr(library, symbol, None)
            if call is not None:
                call.argtypes, call.restype = parameters, c_int
                self._calls[symbol] = call
        self.missing = tuple(symbol for symbol in SYMBOLS if symbol not in self._calls)

    def init(self) -> None:
        """Refuse a library that lacks symbols, then call its own init."""
        if self.missing and not self._partial:
            raise SetupFailed(f"libnccom {self.name!r} lacks {', '.join(self.missing)}")
        self._call("neuronInit")

    def get_unique_id(self, size: int, tag: str) -> bytes:
        """The library's id."""
        unique_id = create_string_buffer(UNIQUE_ID_BYTES)
        self._call("neuronGetUniqueId", unique_id, size, tag.encode())
        return unique_id.raw

    def init_comm(self, request: CommRequest, deadline: Deadline) -> int:
        """A communicator by its address."""
        _check(deadline)
        comm = c_void_p()
        size = len(request.participants)
        if request.parent is None:
            root = request.root_comm_id.encode()
            self._call("neuronInitGlobalComm", byref(comm), root, request.rank, size)
        else:
            members = (c_uint32 * size)(*request.participants)
            self._call(
                "neuronInitComm",
                *(byref(comm), request.unique_id, request.rank, size, members, request.parent),
            )
        if not comm.value:
            raise SetupFailed(f"libnccom {self.name!r} made no communicator and said it did")
        return comm.value

    def bootstrap_send(self, comm: int, peer: int, frame: bytes, deadline: Deadline) -> None:
        """Hand the frame over. Raises `PeerLost` for the library's no."""
        _check(deadline)
        self._call("neuronBootstrapSend", comm, peer, frame, len(frame), kind=PeerLost)

    def bootstrap_recv(self, comm: int, peer: int, nbytes: int, deadline: Deadline) -> bytes:
        """Exactly *nbytes*. Raises `PeerLost` for the library's no."""
        _check(deadline)
        buffer = create_string_buffer(nbytes)
        self._call("neuronBootstrapRecv", comm, peer, buffer, nbytes, kind=PeerLost)
        return buffer.raw

    def build_graph(self, comm: int) -> None:
        """The library's own graph."""
        self._call("neuronBuildGraphComm", comm)

    def comm_info(self, comm: int) -> CommInfo:
        """What the library says about a communicator; its peers stay behind a pointer."""
        image = create_string_buffer(INFO_BYTES)
        self._call("neuronGetCommInfo", comm, image)
        names = (name for name in CommInfo.__struct_fields__ if name != "peers")
        return CommInfo(**dict(zip(names, INFO.unpack_from(image), strict=True)))

    def close_comm(self, comm: int) -> None:
        """Free it."""
        self._call("neuronFreeComm", comm)

    def _call(
        self, symbol: str, *arguments: Any, kind: type[PeerLost | SetupFailed] = SetupFailed
    ) -> None:
        if symbol not in self._calls:
            raise SetupFailed(f"libnccom {self.name!r} lacks {symbol}")
        try:
            code = self._calls[symbol](*arguments)
        except ctypes.ArgumentError as error:
            raise LocalProtocolError(f"{symbol}: {error}") from error
        if code:
            raise kind(f"{symbol} of libnccom {self.name!r} returned {code}")


def _check(deadline: Deadline) -> None:
    if deadline.passed:
        raise DeadlineExceeded(f"the deadline of {deadline.whole_s:g} s has passed")
