"""Which stream each group's ops run on (`stream_id_map`, facts D27, D28)."""

from __future__ import annotations

from collections.abc import Iterable

from rankmuster import messages
from rankmuster.errors import InvalidProgram, InvariantError, PoolExhausted
from rankmuster.pool import MAX_STREAMS
from rankmuster.program import Op

UNINITIALIZED = -1  # ENC_STREAM_ID_UNINITIALIZED


class StreamMap:
    """One entry for each group that a program may have; all unset at first.

    Raises `PoolExhausted` for more streams than the runtime has.
    """

    def __init__(self, num_streams: int, groups: int) -> None:
        if not 1 <= num_streams <= MAX_STREAMS:
            raise PoolExhausted(
                f"the program wants {num_streams} streams, and there are {MAX_STREAMS}"
            )
        self._num_streams = num_streams
        self.ids = [UNINITIALIZED] * groups

    def set(self, group_id: int, stream_id: int) -> None:
        """Bind a group. Raises InvalidProgram for an unknown stream and for a second one."""
        if not 0 <= stream_id < self._num_streams:
            raise InvalidProgram(
                f"group {group_id} posts on stream {stream_id} of {self._num_streams}",
                fix="raise num_streams",
            )
        if self.ids[group_id] not in {UNINITIALIZED, stream_id}:
            raise InvalidProgram(
                f"group {group_id} posts on streams {self.ids[group_id]} and {stream_id}",
                fix="give each stream a group of its own",
            )
        self.ids[group_id] = stream_id

    def bind(self, group_id: int, ops: Iterable[Op]) -> None:
        """Bind a group to the streams that its ops name; 0 where they name none."""
        for op in ops:
            self.set(group_id, op.stream or 0)

    def resolve(self, group_id: int, num_ops: int) -> int:
        """The stream of a group; 0 for one that never posts. Others are bound by now."""
        stream_id = self.ids[group_id]
        if stream_id != UNINITIALIZED:
            return stream_id
        if num_ops:
            raise InvariantError(messages.NO_STREAM(group_id))
        return 0
