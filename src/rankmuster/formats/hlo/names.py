"""The computations of one module by their names.

A program has thousands of computations, and few names matter. A large module therefore keeps 8
bytes for each instead of a table of names: part of a hash of the name, and the place. What is
found so is compared with the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rankmuster.formats.hlo.scanner import Text, malformed, shown

# ENTRY %main.0_spmd (param.1: f32[4,8]) -> f32[4,8] {        or just:  add {
HEADER = re.compile(rb'(ENTRY\s++)?+%?([^\s%=(){}\[\],"]++)\s*+')
_MANY = 1 << 10  # computations, before arrays are worth it
_PLACE_BITS = 24
_WIDTH = 64  # longer names are rare and kept as they are
_BLOCK = 1 << 10
_ENDS_A_NAME = b' \t\r\n\v\f%=(){}[],"'
_MULTIPLIER = 0x9E3779B97F4A7C15


class Names:
    """Looks up places by name; raises InvalidProgram at once where a name stands twice."""

    def __init__(self, text: Text, headers: Sequence[int], *, arrays: bool) -> None:
        self._text, self._headers = text, headers
        self._known: dict[bytes, int | None] = {}
        self._keys: Any = None
        if arrays and _MANY <= len(headers) < 1 << _PLACE_BITS:
            self._keys = self._sorted_keys()
        else:
            self._keep(range(len(headers)))

    def of(self, place: int) -> bytes:
        """The name of the computation at *place*."""
        match = HEADER.match(self._text, self._headers[place])
        if match is None:
            raise malformed(self._text, self._headers[place], "a computation has no name")
        return match[2]

    def place(self, name: bytes) -> int | None:
        """The place of the computation *name*, None where there is none."""
        if name not in self._known:
            self.learn((name,))
        return self._known[name]

    def learn(self, names: Iterable[bytes]) -> None:
        """Find the places of many *names* at once, for `place` to know."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._known]
        self._known.update(dict.fromkeys(fresh))
        if self._keys is None or not fresh:
            return
        import numpy as np

        joined = b" ".join([*fresh, bytes(_WIDTH)])
        lengths = np.fromiter(map(len, fresh), np.int64, len(fresh))
        hashes, _ = _hashes(joined, np.cumsum(lengths + 1) - lengths - 1)
        at = np.searchsorted(self._keys, hashes << np.uint64(_PLACE_BITS))
        keys = self._keys.take(at, mode="clip")
        places = (keys & np.uint64((1 << _PLACE_BITS) - 1)).tolist()
        for name, place in zip(fresh, places, strict=True):
            if self.of(place) == name:
                self._known[name] = place

    def _sorted_keys(self) -> Any:
        import numpy as np

        starts = np.array(self._headers, np.int64)
        # In the last bytes of the text, and behind "ENTRY ", names are read one by one.
        first = np.frombuffer(self._text, np.uint8)[starts]
        odd = (starts > len(self._text) - 2 * _WIDTH) | (first == ord("E"))
        starts += first == ord("%")
        hashes, is_whole = _hashes(self._text, np.where(odd, 0, starts))
        keys = (hashes << np.uint64(_PLACE_BITS)) | np.arange(len(starts), dtype=np.uint64)
        odd |= ~is_whole
        order = np.argsort(keys)
        hashes = hashes[order]
        equal = np.flatnonzero(hashes[1:] == hashes[:-1])
        odd[order[equal]] = odd[order[equal + 1]] = True
        self._keep(np.flatnonzero(odd).tolist())
        return keys[order]

    def _keep(self, places: Iterable[int]) -> None:
        for place in places:
            name = self.of(place)
            if name in self._known:
                raise malformed(
                    self._text,
                    self._headers[place],
                    f"computation {shown(name)!r} is defined twice",
                )
            self._known[name] = place


def _hashes(text: Text, starts: Any) -> tuple[Any, Any]:
    """A hash of 40 bits for the name at each of *starts*, and whether it ends within reach."""
    import numpy as np

    view = np.frombuffer(text, np.uint8)
    is_end = np.zeros(256, bool)
    is_end[list(_ENDS_A_NAME)] = True
    factors = np.array([pow(_MULTIPLIER, n + 1, 1 << 64) for n in range(_WIDTH // 8)], np.uint64)
    hashes = np.empty(len(starts), np.uint64)
    is_whole = np.empty(len(starts), bool)
    reach = np.arange(_WIDTH)
    for low in range(0, len(starts), _BLOCK):
        letters = view[starts[low : low + _BLOCK, None] + reach]
        ends = is_end[letters]
        letters *= reach < ends.argmax(axis=1)[:, None]
        words = letters.view(np.uint64)
        words ^= words >> np.uint64(29)  # or the last letters would only reach the highest bits
        hashes[low : low + _BLOCK] = (words * factors).sum(axis=1, dtype=np.uint64)
        is_whole[low : low + _BLOCK] = ends.any(axis=1)
    return hashes >> np.uint64(_PLACE_BITS), is_whole
