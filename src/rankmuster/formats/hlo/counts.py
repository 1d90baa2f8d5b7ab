"""Replica and partition counts: from the caller, else the header, else from the ids in use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rankmuster.formats.hlo.collective import Form
from rankmuster.formats.hlo.groups import MAX_IDS
from rankmuster.formats.hlo.modes import Counts, Mode
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.scanner import malformed
from rankmuster.program import POINT_TO_POINT

Source = Literal["header", "option", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The counts, who said so, and what of it the text itself claims.

    With `is_split_inferred` at most their product was said.
    """

    counts: Counts
    source: Source
    world_size: int | None
    is_split_inferred: bool = False

    @property
    def stated(self) -> bool:
        """Whether anybody stated them: only then can an id be out of range."""
        return self.source != "inferred"

    def limit(self, mode: Mode) -> int | None:
        """How many ids there are in *mode*, None where nobody stated it."""
        return self.counts.limit(mode) if self.stated else None

    def mode_of(self, form: Form) -> Mode:
        """The mode; for sends and receives: partitions where there are several, else replicas."""
        if form.mode is not None:
            return form.mode
        return Mode.CROSS_PARTITION if self.counts.partitions > 1 else Mode.CROSS_REPLICA


def known_counts(
    module: Module,
    forms: Iterable[Form],
    replicas: int | None,
    partitions: int | None,
    world: int | None = None,
) -> Known:
    """The counts that the program runs with; *world* is their product, if neither is stated.

    XLA leaves a count of 1 out of the header, so one stated count fixes the other. Raises
    InvalidProgram for a world larger than this reader takes.
    """
    header = module.count(b"replica_count"), module.count(b"num_partitions")
    n_r, n_p = replicas or header[0], partitions or header[1]
    if n_r or n_p:
        counts = Counts(n_r or 1, n_p or 1)
        if counts.devices > MAX_IDS:
            raise malformed(
                module.text,
                0,
                f"the program runs on {counts.devices} devices",
                fix=f"this reader takes up to {MAX_IDS}",
            )
        source: Source = "option" if replicas or partitions else "header"
        return Known(counts=counts, source=source, world_size=counts.devices)
    spans = _spans(forms)
    counts = infer(spans)
    if world is not None and (filled := fill(counts, spans, world)) is not None:
        return Known(counts=filled, source="option", world_size=world, is_split_inferred=True)
    size = counts.devices if any(spans.values()) else None
    return Known(counts=counts, source="inferred", world_size=size, is_split_inferred=True)


def fill(counts: Counts, spans: dict[Mode | None, int], world: int) -> Counts | None:
    """The inferred counts with one of them grown to fill *world*; None where that cannot be.

    Groups cover all ids of their mode, so a count whose ids are written out stays as it is. Where
    none are, the partitions grow if any op would name partitions, else the replicas.
    """
    modes = Mode.CROSS_REPLICA, Mode.CROSS_REPLICA_AND_PARTITION
    has_replicas = any(spans.get(mode) for mode in modes)
    has_partitions = bool(spans.get(Mode.CROSS_PARTITION))
    if has_replicas == has_partitions:
        by_partition = bool(spans.keys() & {Mode.CROSS_PARTITION, Mode.FLATTENED_ID})
    else:
        by_partition = has_replicas
    fixed = counts.replicas if by_partition else counts.partitions
    grown, rest = divmod(world, fixed)
    if rest or world < counts.devices or world > MAX_IDS:
        return None
    return Counts(fixed, grown) if by_partition else Counts(grown, fixed)


def infer(spans: dict[Mode | None, int]) -> Counts:
    """The smallest world that has room for the ids in use, by mode; None is for send and receive.

    Flattened ids alone are read as partitions of one replica: what JAX and PyTorch/XLA print.
    """
    n_r = max(spans.get(Mode.CROSS_REPLICA, 0), spans.get(Mode.CROSS_REPLICA_AND_PARTITION, 0), 1)
    n_p = max(spans.get(Mode.CROSS_PARTITION, 0), 1)
    n_p = max(n_p, -(-spans.get(Mode.FLATTENED_ID, 0) // n_r))
    sends = spans.get(None, 0)
    if n_p > 1 or n_r == 1:
        n_p = max(n_p, sends)
    else:
        n_r = max(n_r, sends)
    if n_r * n_p > MAX_IDS:
        n_r, n_p = min(n_r, MAX_IDS), 1
    return Counts(n_r, n_p)


def _spans(forms: Iterable[Form]) -> dict[Mode | None, int]:
    # Ids beyond MAX_IDS are found out of range (RM101, RM203); they make no world.
    spans: dict[Mode | None, int] = {}
    seen: set[tuple[Mode | None, bytes]] = set()
    for form in forms:
        mode = None if form.kind in POINT_TO_POINT else form.mode
        if (mode, form.key) in seen:
            continue
        seen.add((mode, form.key))
        sets = form.groups.groups if form.groups else form.pairs or ()
        highest = max((i for ids in sets for i in ids if i < MAX_IDS), default=-1)
        spans[mode] = max(spans.get(mode, 0), highest + 1)
    return spans
