"""The five callbacks that the NCCL fork imports, as thin as the original's (S4 §3).

The boundary to libnccom: C-shaped answers, one line each, nothing decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankmuster.arch import mapping
from rankmuster.arch.chip import Chip
from rankmuster.errors import MusterError
from rankmuster.status import Status


@dataclass(frozen=True, slots=True)
class NecCallbacks:
    """One node's callbacks; `host_rids` is what its driver answers, None where it does not."""

    chip: Chip
    host_rids: Mapping[int, int] | None

    def nec_build_port_and_rid_map(
        self, local: int, mla_indexes: Sequence[int], host_device_ids: Sequence[int], count: int
    ) -> Status:
        """Build the maps of *local* from the first *count* entries of both lists."""
        ids = mla_indexes[:count], host_device_ids[:count]
        try:
            mapping.build_port_and_rid_map(self.chip, local, *ids, self.host_rids)
        except MusterError as error:
            return error.status
        return Status.SUCCESS

    def nec_is_mla_available(self, local: int, mla: int) -> bool:
        """Whether this node sees the chip."""
        return mapping.is_mla_available(self.chip, local, mla)

    def nec_mla_idx_to_rid(self, local: int, mla: int) -> int:
        """Chip -> routing id."""
        return mapping.mla_idx_to_rid(self.chip, local, mla)

    def nec_rid_to_mla_idx(self, local: int, rid: int) -> int:
        """Routing id -> chip, -3 for none."""
        return mapping.rid_to_mla_idx(self.chip, local, rid)

    def nec_get_peer_mla_idx(self, local: int, mla: int, port: int) -> int:
        """Chip behind a port, -22 for none, -3 for one that is not visible."""
        return mapping.get_peer_mla_idx(self.chip, local, mla, port)
