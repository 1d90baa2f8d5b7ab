"""The computations of one module by their names.

A program has thousands of computations and few names matter. In a large module only those names
are read that begin as one that is asked for, so there is no table of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rankmuster.formats.hlo.scanner import Text, malformed, shown

# ENTRY %main.0_spmd (param.1: f32[4,8]) -> f32[4,8] {        or just:  add {
HEADER = re.compile(rb'(ENTRY\s++)?+%?([^\s%=(){}\[\],"]++)\s*+')
_MANY = 1 << 10  # computations, before arrays are worth it
_WORD = 8


class Names:
    """Looks up places by name; raises InvalidProgram where one that it reads stands twice."""

    def __init__(self, text: Text, headers: Sequence[int], *, arrays: bool) -> None:
        self._text, self._headers = text, headers
        self._places: dict[bytes, int] = {}
        self._beginnings: set[bytes] = set()
        self._by_beginning = arrays and len(headers) >= _MANY
        if not self._by_beginning:
            self._keep(range(len(headers)))

    def of(self, place: int) -> bytes:
        """The name of the computation at *place*."""
        match = HEADER.match(self._text, self._headers[place])
        if match is None:
            raise malformed(self._text, self._headers[place], "a computation has no name")
        return match[2]

    def place(self, name: bytes) -> int | None:
        """The place of the computation *name*, None where there is none."""
        if name not in self._places:
            self.learn((name,))
        return self._places.get(name)

    def learn(self, names: Iterable[bytes]) -> None:
        """Read all names that begin as one of *names*: asked for at once, they are found faster."""
        if self._by_beginning:
            fresh = {name[:_WORD] for name in names if name} - self._beginnings
            if fresh:
                self._beginnings |= fresh
                self._keep(self._that_begin(fresh))

    def _that_begin(self, beginnings: Iterable[bytes]) -> list[int]:
        """The places of all computations whose names begin as *beginnings*, and of some others."""
        import numpy as np

        starts = np.array(self._headers, np.int64)
        first = np.frombuffer(self._text, np.uint8)[starts]
        starts += first == ord("%")
        hits = first == ord("E")  # "ENTRY ", or so it may be
        # The same memory read as the eight bytes that begin at each position.
        last = len(self._text) - _WORD
        eights = np.ndarray((last + 1,), "<u8", buffer=self._text, strides=(1,))
        words = eights[np.minimum(starts, last)]
        hits |= starts > last
        by_length: dict[int, list[int]] = {}
        for each in beginnings:
            by_length.setdefault(len(each), []).append(int.from_bytes(each, "little"))
        for length, values in by_length.items():
            mask = np.uint64((1 << 8 * length) - 1)
            hits |= np.isin(words & mask, np.array(values, np.uint64))
        found: list[int] = np.flatnonzero(hits).tolist()
        return found

    def _keep(self, places: Iterable[int]) -> None:
        for place in places:
            name = self.of(place)
            if self._places.setdefault(name, place) != place:
                raise malformed(
                    self._text,
                    self._headers[place],
                    f"computation {shown(name)!r} is defined twice",
                )
