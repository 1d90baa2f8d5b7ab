"""libnrt digests of ops that come as columns, against MD5 over the same bytes laid out already."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import OURS, Case, Contestant, Figure, Goal, timed

RAW = "hashlib.md5"
MEMBERS = tuple(range(0, 64, 2))
THROUGHPUT = 0.75  # of the raw hash


def cases(folder: Path, quick: bool) -> Iterator[Case]:  # noqa: ARG001, FBT001 - every row's form
    """Longer and longer op lists of one group."""
    for ops in (10**4, 10**5) if quick else (10**4, 10**5, 10**6):
        yield Case(
            name=f"{ops:,} ops",
            contestants=(
                Contestant(name=OURS, prepare=partial(ours, ops)),
                Contestant(name=RAW, prepare=partial(raw, ops)),
            ),
            goal=Goal(peer=RAW, ratio=1 / THROUGHPUT) if ops >= 10**5 else None,
        )


def columns(ops: int) -> tuple[Any, ...]:
    """Op, element, dtype and reduce words of *ops* made-up collectives."""
    import numpy as np

    rng = np.random.default_rng(ops)
    words = [rng.integers(0, 12, ops, dtype=np.int64) for _ in range(3)]
    return words[0], rng.integers(1, 1 << 40, ops, dtype=np.int64), *words[1:]


def laid_out(ops: int) -> bytes:
    """The members, then the 20-byte records `<IQII`: what the digest is over."""
    import numpy as np

    names = ("op", "size", "dtype", "reduce")
    records = np.empty(ops, [(n, "<u8" if n == "size" else "<u4") for n in names])
    for name, column in zip(names, columns(ops), strict=True):
        records[name] = column
    return np.array(MEMBERS, "<u4").tobytes() + records.tobytes()


def raw(ops: int) -> Figure:
    """The hash alone."""
    text = laid_out(ops)
    return timed(lambda: hashlib.md5(text, usedforsecurity=False).digest())


def ours(ops: int) -> Figure:
    """The digest from columns, which must be that of the bytes."""
    from rankmuster.signature.libnrt import digest_columns

    words = columns(ops)
    right = hashlib.md5(laid_out(ops), usedforsecurity=False).digest()
    return timed(lambda: digest_columns(MEMBERS, *words), lambda digest: bytes(digest) == right)
