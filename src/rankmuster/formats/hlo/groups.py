"""The three spellings of replica groups, and source-target pairs, as written: ids, not devices.

{{0,1},{2,3}}                                     explicit; {} is everybody
[4,2]<=[2,4]T(1,0)                                iota: arange(8).reshape(2,4).T.reshape(4,2)
mesh['a'=2,'b'=4], device_ids=(...) {'b':(1)2}    axes and sub-axes of a mesh
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Annotated

import msgspec

from rankmuster.errors import InvalidProgram, did_you_mean
from rankmuster.formats.hlo.scanner import shown

Groups = tuple[tuple[int, ...], ...]
MAX_IDS = 1 << 20  # a million ids in one set: beyond any machine, within memory

_INTS = rb"\d{1,18}(?:\s*,\s*\d{1,18})*+"
_IOTA = re.compile(
    rb"\[\s*(" + _INTS + rb")\s*\]\s*<=\s*\[\s*(" + _INTS + rb")\s*\]"
    rb"(?:\s*T\s*\(\s*(" + _INTS + rb")\s*\))?"
)
_MESH = re.compile(
    rb"mesh\s*\[(?P<axes>[^\]]*)\]\s*"
    rb"(?:,\s*device_ids\s*=\s*\(\s*(?:(?P<ids>" + _INTS + rb")"
    rb"|\[\s*(?P<dims>"
    + _INTS
    + rb")\s*\]\s*(?:T\s*\(\s*(?P<perm>"
    + _INTS
    + rb")\s*\))?)\s*\)\s*)?"
    rb"\{(?P<refs>[^}]*)\}"
)
_AXIS = re.compile(rb"\s*'([^']*)'\s*=\s*(\d{1,18})\s*")
_REF = re.compile(rb"\s*'([^']*)'\s*(?::\s*\(\s*(\d{1,18})\s*\)\s*(\d{1,18}))?\s*")
_TO_JSON = bytes.maketrans(b"{}", b"[]")
_EXPLICIT = msgspec.json.Decoder(tuple[tuple[int, ...], ...])
_Two = Annotated[tuple[int, ...], msgspec.Meta(min_length=2, max_length=2)]
_PAIRS = msgspec.json.Decoder(tuple[_Two, ...])


@dataclass(frozen=True, slots=True)
class GroupList:
    """What one attribute says: its groups, or everybody, or why its size is wrong (RM107)."""

    groups: Groups = ()
    everybody: bool = False
    misfit: str = ""


def parse_groups(text: bytes) -> GroupList:
    """Read a `replica_groups` value in any spelling.

    Raises InvalidProgram, without a position, for text that is none of them, for an unknown axis
    and for lists of more than `MAX_IDS` ids; a product that does not fit is told in `misfit`.
    """
    text = text.strip()
    if text.startswith(b"{"):
        groups = _decode(_EXPLICIT, text, "replica groups")
        return GroupList(groups=groups, everybody=not groups)
    if text.startswith(b"mesh"):
        return _mesh(text)
    return _iota(text)


def parse_pairs(text: bytes) -> tuple[tuple[int, int], ...]:
    """Read `{{0,1},{1,2}}` as pairs. Raises InvalidProgram, without a position, for others."""
    return tuple((source, target) for source, target in _decode(_PAIRS, text, "pairs"))


def parse_slices(text: bytes) -> tuple[int, ...]:
    """Read `slice_sizes={{64,32},{1,8}}`: how many elements each slice has."""
    return tuple(prod(dims) for dims in _decode(_EXPLICIT, text, "slice sizes"))


def _decode(decoder: msgspec.json.Decoder[Groups], text: bytes, what: str) -> Groups:
    try:
        return decoder.decode(text.translate(_TO_JSON))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidProgram(f"{shown(text)!r} are not {what}") from error


def _ints(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, text.split(b",")))


def _iota(text: bytes) -> GroupList:
    match = _IOTA.fullmatch(text)
    if match is None:
        raise InvalidProgram(f"{shown(text)!r} are not replica groups")
    shape, dims = _ints(match[1]), _ints(match[2])
    order = _ints(match[3]) if match[3] else tuple(range(len(dims)))
    if len(shape) != 2:
        raise InvalidProgram(
            f"{shown(text)!r} gives {len(shape)} sizes",
            fix="an iota list has two: groups and members",
        )
    if sorted(order) != list(range(len(dims))):
        raise InvalidProgram(f"T({','.join(map(str, order))}) does not permute {len(dims)} axes")
    if prod(shape) != prod(dims):
        return GroupList(misfit=f"{prod(shape)} places described, {prod(dims)} ids generated")
    return GroupList(groups=cut(transposed(bounded(dims), order), shape[1]))


def bounded(dims: Sequence[int]) -> Sequence[int]:
    """*dims* again; InvalidProgram where they multiply to more than `MAX_IDS`."""
    if prod(dims) > MAX_IDS:
        raise InvalidProgram(
            f"replica groups name {prod(dims)} ids", fix=f"this reader takes up to {MAX_IDS}"
        )
    return dims


def transposed(dims: Sequence[int], order: Sequence[int]) -> list[int]:
    """arange(prod(dims)).reshape(dims).transpose(order).ravel(), without arrays."""
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    ids = [0]
    for axis in order:
        steps = range(0, dims[axis] * strides[axis], strides[axis] or 1)
        ids = [base + step for base in ids for step in steps]
    return ids


def cut(ids: Sequence[int], size: int) -> Groups:
    """*ids* in consecutive groups of *size*."""
    return tuple(tuple(ids[i : i + size]) for i in range(0, len(ids), size)) if size else ()


def _mesh(text: bytes) -> GroupList:
    match = _MESH.fullmatch(text)
    axes = match and _list(_AXIS, match["axes"])
    refs = match and _list(_REF, match["refs"])
    if match is None or axes is None or refs is None:
        raise InvalidProgram(f"{shown(text)!r} are not replica groups over a mesh")
    sizes = {name: int(size) for name, size in axes}
    if len(sizes) != len(axes):
        raise InvalidProgram(f"{shown(text)!r} names an axis twice")
    bounded(tuple(sizes.values()))
    pieces, wanted, misfit = _pieces(sizes, refs)
    if misfit:
        return GroupList(misfit=misfit)
    order = [i for i in range(len(pieces)) if i not in wanted] + wanted
    places = transposed(pieces, order)
    ids, misfit = _device_ids(match, len(places))
    if misfit:
        return GroupList(misfit=misfit)
    return GroupList(groups=cut([ids[i] for i in places], prod(pieces[i] for i in wanted)))


def _list(item: re.Pattern[bytes], text: bytes) -> list[tuple[bytes, ...]] | None:
    if not text.strip():
        return []
    found = [item.fullmatch(part) for part in text.split(b",")]
    return [match.groups() for match in found if match] if all(found) else None


def _pieces(
    sizes: dict[bytes, int], refs: list[tuple[bytes, ...]]
) -> tuple[list[int], list[int], str]:
    # Each axis of size N is cut at the borders of its sub-axes: "(pre)size" skips a major factor
    # pre and spans size. Returns all pieces in mesh order, and the wanted ones in written order.
    cuts = {name: {1, size} for name, size in sizes.items()}
    spans: list[tuple[bytes, int, int]] = []
    for name, pre, size in refs:
        if name not in sizes:
            known = [axis.decode("utf-8", "replace") for axis in sizes]
            raise InvalidProgram(
                f"{shown(name)!r} is not an axis of the mesh",
                fix=did_you_mean(name.decode("utf-8", "replace"), known),
            )
        before = int(pre) if pre else 1
        span = (before, before * int(size)) if pre else (1, sizes[name])
        cuts[name].update(span)
        spans.append((name, *span))
    pieces: list[int] = []
    index: dict[tuple[bytes, int], int] = {}
    for name, borders in cuts.items():
        edges = sorted(borders)
        for low, high in pairwise(edges):
            if low < 1 or high % low or high > sizes[name]:
                return [], [], f"axis {shown(name)!r} of size {sizes[name]} does not cut at {edges}"
            index[name, low] = len(pieces)
            pieces.append(high // low)
    wanted = [
        place
        for name, low, high in spans
        for (axis, edge), place in index.items()
        if axis == name and low <= edge < high
    ]
    if len(set(wanted)) != len(wanted):
        raise InvalidProgram("an axis of the mesh stands twice in one list")
    return pieces, wanted, ""


def _device_ids(match: re.Match[bytes], count: int) -> tuple[Sequence[int], str]:
    if match["ids"]:
        ids: Sequence[int] = _ints(match["ids"])
    elif match["dims"]:
        dims = _ints(match["dims"])
        order = _ints(match["perm"]) if match["perm"] else tuple(range(len(dims)))
        if sorted(order) != list(range(len(dims))):
            raise InvalidProgram("device_ids= does not permute its own axes")
        ids = transposed(bounded(dims), order)
    else:
        ids = range(count)
    if len(ids) != count:
        return (), f"the mesh has {count} places, device_ids= names {len(ids)}"
    return ids, ""
