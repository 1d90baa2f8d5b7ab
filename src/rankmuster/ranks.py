"""Sets of device ids as people read them: "0-7,16"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

PART = re.compile(r"\s*([0-9]{1,18})(?:-([0-9]{1,18}))?\s*")
FOLDED = re.compile(f"{PART.pattern}(?:,{PART.pattern})*")
LONG = re.compile("[0-9]{19,}")


def ranges(devices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The inclusive runs of consecutive ids in *devices*, ascending."""
    ids = sorted(set(devices))
    if not ids:
        return
    first = ids[0]
    for here, following in pairwise(ids):
        if following != here + 1:
            yield first, here
            first = following
    yield first, ids[-1]


def fold(devices: Iterable[int]) -> str:
    """Fold ids into ranges, ascending: {7, 0, 1, 2} -> "0-2,7"; "" for none."""
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in ranges(devices))


def unfold(text: str, *, limit: int = 1 << 24) -> tuple[int, ...]:
    """Read what `fold` writes. Raises ValueError, quoting the part, for anything else.

    *limit* bounds how many ids a text may name, so that "0-999999999999" is an error and not an
    allocation.
    """
    if text.strip() and not FOLDED.fullmatch(text):
        raise ValueError(_odd_part(text))
    devices: set[int] = set()
    for low, high in PART.findall(text):
        first, last = int(low), int(high or low)
        if last < first:
            raise ValueError(f"'{low}-{high}' runs backwards")
        if last - first >= limit - len(devices):
            raise ValueError(f"{text!r} names more than {limit} ids")
        devices.update(range(first, last + 1))
    return tuple(sorted(devices))


def _odd_part(text: str) -> str:
    part = next(each.strip() for each in text.split(",") if not PART.fullmatch(each))
    if PART.fullmatch(LONG.sub("0", part)):
        return f"{part!r} is too large"
    return f"{part!r} is not an id or a range like '0-7'"
