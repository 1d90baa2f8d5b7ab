"""One collective of the text: its groups or pairs as written, and the mode it selects."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.groups import GroupList, parse_groups, parse_pairs
from rankmuster.formats.hlo.instruction import METADATA, instruction_at
from rankmuster.formats.hlo.modes import HAS_FLAG, Mode, Pairs, mode_of
from rankmuster.formats.hlo.printed import Cutter
from rankmuster.formats.hlo.scanner import Text, attributes, malformed, shown
from rankmuster.formats.hlo.shapes import Shape, parse_shape
from rankmuster.program import ON_PAIRS, POINT_TO_POINT, OpKind

KINDS = {
    b"all-reduce": OpKind.ALL_REDUCE,
    b"all-gather": OpKind.ALL_GATHER,
    b"reduce-scatter": OpKind.REDUCE_SCATTER,
    b"all-to-all": OpKind.ALL_TO_ALL,
    b"ragged-all-to-all": OpKind.ALL_TO_ALL_V,
    b"collective-broadcast": OpKind.BROADCAST,
    b"collective-permute": OpKind.PERMUTE,
    b"send": OpKind.SEND,
    b"recv": OpKind.RECV,
}
# frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}",...}; quotes are newer
_FRONTEND_PAIRS = re.compile(
    rb'_xla_send_recv_source_target_pairs=\s*"?\s*(\{(?:[\d\s,-]|\{[\d\s,-]*+\})*+\})'
)
_CHANNEL_ID = re.compile(rb", channel_id=[1-9]\d{0,17}+(?!\d)")
_TO_APPLY = b", to_apply="
_METADATA_STARTS = b", metadata={"
_METADATA = re.compile(rb", metadata=(" + METADATA + rb")")
_CHANNEL = re.compile(rb"-?\d{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Form:
    """What a collective says apart from the names in it and its metadata.

    Programs repeat few forms many times, so each is read once. `groups` or `pairs` is set; both
    are None for a send or receive whose text names no pairs, and then `mode` is None as well:
    the counts decide the mode of sends and receives. `key` is the text of the groups or pairs.
    """

    kind: OpKind
    base: bytes
    opcode: bytes
    shape_text: bytes
    attributes: dict[bytes, bytes]
    operand_count: int
    key: bytes
    groups: GroupList | None = None
    pairs: Pairs | None = None
    mode: Mode | None = None
    problems: tuple[tuple[str, str], ...] = ()
    has_dynamic_root: bool = False

    @property
    def shape(self) -> Shape | None:
        """The result's shape, None where the text leaves it out."""
        return parse_shape(self.shape_text) if self.shape_text else None

    @property
    def is_in_place(self) -> bool:
        """Whether a permute writes slices into given buffers; then each end may stand twice."""
        return b"slice_sizes" in self.attributes or (
            self.base == b"collective-permute" and self.operand_count == 4
        )


class Collective(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One instruction that communicates: its form and what is its own; *place* is its computation.

    `operands` is the text between the brackets, `metadata` that of the attribute, braces and all,
    and `to_apply` the name of the reduction, b"" where there is none.
    """

    start: int
    end: int
    place: int
    name: bytes
    operands: bytes
    metadata: bytes
    to_apply: bytes
    form: Form

    @property
    def label(self) -> str:
        """The name for people."""
        return self.name.decode("utf-8", "replace")


# Opcode, shape, number of operands, whether it has a channel, attributes around the metadata.
_Words = tuple[bytes, bytes, int, bool, bytes, bytes]


class CollectiveReader:
    """Reads collectives of one text."""

    def __init__(self, text: Text, cut: Cutter) -> None:
        self._text, self._cut = text, cut
        self._metadata: dict[bytes, tuple[bytes, bytes]] = {}
        self._usual_forms: dict[_Words, tuple[Form | None, bytes]] = {}
        self._forms: dict[_Words, Form | None] = {}
        self._groups: dict[bytes, GroupList] = {}
        self._pairs: dict[bytes, Pairs] = {}

    def read(
        self, site: int, opcode: bytes, place: int, low: int, high: int
    ) -> tuple[Collective | None, int]:
        """The collective whose opcode stands at *site* in text[low:high], and where to go on.

        None where the site stands inside another instruction or a comment, and for a transfer to
        the host. *low* and where to go on are those of `instruction_at`. Raises InvalidProgram
        for attributes that are missing or cannot be read.
        """
        usual = self._usual(site, opcode, place, low, high)
        return (usual, usual.end) if usual else self._general(site, place, low, high)

    def _usual(
        self, site: int, opcode: bytes, place: int, low: int, high: int
    ) -> Collective | None:
        found = self._cut(site, opcode, low, high)
        if found is None:
            return None
        start, end, name, shape, operands, tail = found
        channel = _CHANNEL_ID.match(tail)
        from_here = channel.end() if channel else 0
        stop = tail.find(_METADATA_STARTS, from_here) if tail.endswith(b"}") else -1
        stop = len(tail) if stop < 0 else stop
        metadata = tail[stop:]
        own = self._metadata.get(metadata)
        if own is None:
            own = self._metadata[metadata] = _own(metadata)
        before = tail[from_here:stop]
        count = operands.count(b",") + 1 if operands else 0
        words = (opcode, shape, count, channel is not None, before, own[1])
        known = self._usual_forms.get(words)
        if known is None:
            known = self._usual_form(words, channel[0] if channel else b"")
            self._usual_forms[words] = known
        form, to_apply = known
        if form is None:
            return None
        return Collective(
            start=start,
            end=end,
            place=place,
            name=name,
            operands=operands,
            metadata=own[0],
            to_apply=to_apply,
            form=form,
        )

    def _usual_form(self, words: _Words, channel: bytes) -> tuple[Form | None, bytes]:
        """The form that *words* make and the name of its reduction; None: the general way."""
        opcode, shape, count, has_channel, before, rest = words
        if b"//" in before + rest or b"metadata=" in before + rest:
            return None, b""
        # JAX gives each op a reduction of its own, so that its name is no part of the form.
        before, to_apply = _without_reduction(before)
        key = (opcode, shape, count, has_channel, before, rest)
        if key not in self._forms:
            text = channel + before + rest
            try:
                found, stop = attributes(text, 0, len(text))
                whole = stop == len(text.rstrip())
                self._forms[key] = self._form(opcode, shape, found, count) if whole else None
            except InvalidProgram:
                self._forms[key] = None  # the general way says where
        form = self._forms[key]
        given = form.attributes.get(b"to_apply", b"").lstrip(b"%") if form else b""
        return form, to_apply or given

    def _general(self, site: int, place: int, low: int, high: int) -> tuple[Collective | None, int]:
        found, after = instruction_at(self._text, site, low, high)
        if found is None or found.site != site:
            return None, after
        own = found.attributes
        metadata = own.pop(b"metadata", b"")
        try:
            form = self._form(found.opcode, found.shape_text, own, len(found.operands()))
        except InvalidProgram as error:
            if error.line is not None:
                raise
            raise malformed(
                self._text, found.start, f"{found.label}: {error.reason}", fix=error.fix
            ) from error
        if form is None:
            return None, after
        collective = Collective(
            start=found.start,
            end=found.end,
            place=place,
            name=found.name,
            operands=found.operands_text,
            metadata=metadata,
            to_apply=own.get(b"to_apply", b"").lstrip(b"%"),
            form=form,
        )
        return collective, after

    def _form(
        self, opcode: bytes, shape: bytes, found: dict[bytes, bytes], count: int
    ) -> Form | None:
        base = opcode.removesuffix(b"-start")
        kind = KINDS[base]
        groups, pairs, mode = None, None, None
        problems: tuple[tuple[str, str], ...] = ()
        if kind in POINT_TO_POINT:
            if found.get(b"is_host_transfer") == b"true":
                return None
            match = _FRONTEND_PAIRS.search(found.get(b"frontend_attributes", b""))
            key = match[1] if match else b""
            pairs = self._read_pairs(key) if match else None
        elif kind in ON_PAIRS:
            if b"source_target_pairs" not in found:
                raise InvalidProgram("source_target_pairs= is missing")
            key = found[b"source_target_pairs"]
            pairs = self._read_pairs(key)
            mode, problems = _mode(found, base, everybody=False)
        else:
            key = found.get(b"replica_groups", b"{}")
            groups = self._read_groups(key)
            mode, problems = _mode(found, base, everybody=groups.everybody)
        return Form(
            kind=kind,
            base=base,
            opcode=opcode,
            shape_text=shape,
            attributes=found,
            operand_count=count,
            key=key,
            groups=groups,
            pairs=pairs,
            mode=mode,
            problems=problems,
            has_dynamic_root=_flag(found, b"has_dynamic_root"),
        )

    def _read_groups(self, key: bytes) -> GroupList:
        if key not in self._groups:
            self._groups[key] = parse_groups(key)
        return self._groups[key]

    def _read_pairs(self, key: bytes) -> Pairs:
        if key not in self._pairs:
            self._pairs[key] = parse_pairs(key)
        return self._pairs[key]


def _own(tail: bytes) -> tuple[bytes, bytes]:
    """The metadata that begins *tail*, and the attributes behind it."""
    span = _METADATA.match(tail)
    return (span[1], tail[span.end() :]) if span else (b"", tail)


def _without_reduction(rest: bytes) -> tuple[bytes, bytes]:
    """The attributes without to_apply=, and the name that it gives."""
    start = rest.find(_TO_APPLY)
    if start < 0 or b'"' in rest:
        return rest, b""
    stop = rest.find(b",", start + 1)
    stop = len(rest) if stop < 0 else stop
    return rest[:start] + rest[stop:], rest[start + len(_TO_APPLY) : stop].strip().lstrip(b"%")


def _flag(found: dict[bytes, bytes], name: bytes) -> bool:
    value = found.get(name, b"false")
    if value not in (b"true", b"false"):
        raise InvalidProgram(f"{name.decode()}={shown(value)} is neither true nor false")
    return value == b"true"


def _mode(
    found: dict[bytes, bytes], base: bytes, *, everybody: bool
) -> tuple[Mode, tuple[tuple[str, str], ...]]:
    """The mode, and what the attributes that select it get wrong (RM108, RM109)."""
    channel = found.get(b"channel_id")
    if channel is not None and not _CHANNEL.fullmatch(channel):
        raise InvalidProgram(f"channel_id={shown(channel)} is not a number")
    flattened = _flag(found, b"use_global_device_ids")
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
    stated = found.get(b"mode")
    if stated is not None:
        if stated.decode("utf-8", "replace") not in set(Mode):
            raise InvalidProgram(f"mode={shown(stated)} is none of {', '.join(Mode)}")
        if stated.decode() != mode:
            problems.append(("RM109", f"{op} says mode={stated.decode()}, its attributes {mode}"))
        mode = Mode(stated.decode())
    return mode, tuple(problems)
