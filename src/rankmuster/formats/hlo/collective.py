"""One collective of the text: its groups or pairs as written, and the mode its attributes select."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.groups import GroupList, parse_groups, parse_pairs
from rankmuster.formats.hlo.instruction import Instruction
from rankmuster.formats.hlo.modes import HAS_FLAG, Mode, Pairs, mode_of
from rankmuster.formats.hlo.posted import KINDS
from rankmuster.formats.hlo.scanner import Text, malformed, shown
from rankmuster.program import ON_PAIRS, POINT_TO_POINT, OpKind

# frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}",...}; quotes are newer
_FRONTEND_PAIRS = re.compile(
    rb'_xla_send_recv_source_target_pairs=\s*"?\s*(\{[\d\s,{}-]*+\})\s*(?=["},])'
)
_CHANNEL = re.compile(rb"-?\d{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """An instruction that communicates. `groups` or `pairs` is set, both are None for a send or
    receive whose text names no pairs; `mode` is None for sends and receives (counts decide it)."""

    instruction: Instruction
    place: int
    kind: OpKind
    base: bytes
    key: bytes
    groups: GroupList | None = None
    pairs: Pairs | None = None
    mode: Mode | None = None
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class CollectiveReader:
    """Reads collectives of one text; the same groups in the same words are read once."""

    text: Text
    _groups: dict[bytes, GroupList] = field(default_factory=dict)
    _pairs: dict[bytes, Pairs] = field(default_factory=dict)

    def read(self, instruction: Instruction, place: int) -> Collective | None:
        """*instruction* as a collective; None for a transfer to the host.

        Raises InvalidProgram for attributes that are missing or cannot be read.
        """
        base = instruction.opcode.removesuffix(b"-start")
        kind = KINDS[base]
        try:
            if kind in POINT_TO_POINT:
                return self._point_to_point(instruction, place, kind, base)
            if kind in ON_PAIRS:
                return self._permute(instruction, place, kind, base)
            return self._grouped(instruction, place, kind, base)
        except InvalidProgram as error:
            if error.line is not None:
                raise
            raise malformed(
                self.text, instruction.start, f"{instruction.label}: {error.reason}", fix=error.fix
            ) from error

    def _point_to_point(
        self, instruction: Instruction, place: int, kind: OpKind, base: bytes
    ) -> Collective | None:
        if instruction.attributes.get(b"is_host_transfer") == b"true":
            return None
        match = _FRONTEND_PAIRS.search(instruction.attributes.get(b"frontend_attributes", b""))
        key = match[1] if match else b""
        return Collective(
            instruction=instruction,
            place=place,
            kind=kind,
            base=base,
            key=key,
            pairs=self._read_pairs(key) if match else None,
        )

    def _permute(
        self, instruction: Instruction, place: int, kind: OpKind, base: bytes
    ) -> Collective:
        key = instruction.attributes.get(b"source_target_pairs")
        if key is None:
            raise InvalidProgram("source_target_pairs= is missing")
        mode, problems = _mode(instruction, base, everybody=False)
        return Collective(
            instruction=instruction,
            place=place,
            kind=kind,
            base=base,
            key=key,
            pairs=self._read_pairs(key),
            mode=mode,
            problems=problems,
        )

    def _grouped(
        self, instruction: Instruction, place: int, kind: OpKind, base: bytes
    ) -> Collective:
        key = instruction.attributes.get(b"replica_groups", b"{}")
        groups = self._groups.get(key)
        if groups is None:
            groups = self._groups[key] = parse_groups(key)
        mode, problems = _mode(instruction, base, everybody=groups.everybody)
        return Collective(
            instruction=instruction,
            place=place,
            kind=kind,
            base=base,
            key=key,
            groups=groups,
            mode=mode,
            problems=problems,
        )

    def _read_pairs(self, key: bytes) -> Pairs:
        if key not in self._pairs:
            self._pairs[key] = parse_pairs(key)
        return self._pairs[key]


def _flag(instruction: Instruction, name: bytes) -> bool:
    value = instruction.attributes.get(name, b"false")
    if value not in (b"true", b"false"):
        raise InvalidProgram(f"{name.decode()}={shown(value)} is neither true nor false")
    return value == b"true"


def _mode(
    instruction: Instruction, base: bytes, *, everybody: bool
) -> tuple[Mode, tuple[tuple[str, str], ...]]:
    """The mode, and what the attributes that select it get wrong (RM108, RM109)."""
    channel = instruction.attributes.get(b"channel_id")
    if channel is not None and not _CHANNEL.fullmatch(channel):
        raise InvalidProgram(f"channel_id={shown(channel)} is not a number")
    flattened = _flag(instruction, b"use_global_device_ids")
    mode = mode_of(base, channel=channel is not None, flattened=flattened)
    problems: list[tuple[str, str]] = []
    op = base.decode()
    if flattened and base not in HAS_FLAG:
        problems.append(("RM108", f"{op} has no use_global_device_ids: its mode is {mode}"))
    elif flattened and channel is None:
        problems.append(("RM108", f"{op} with use_global_device_ids=true needs a channel_id"))
    elif flattened and everybody:
        problems.append(("RM108", f"{op} in {mode} needs its groups written out"))
    if base == b"all-reduce" and channel is not None and int(channel) <= 0:
        problems.append(("RM108", f"{op} needs a channel_id above 0, has {int(channel)}"))
    stated = instruction.attributes.get(b"mode")
    if stated is not None:
        if stated.decode("utf-8", "replace") not in set(Mode):
            raise InvalidProgram(f"mode={shown(stated)} is none of {', '.join(Mode)}")
        if stated.decode() != mode:
            problems.append(("RM109", f"{op} says mode={stated.decode()}, its attributes {mode}"))
        mode = Mode(stated.decode())
    return mode, tuple(problems)
