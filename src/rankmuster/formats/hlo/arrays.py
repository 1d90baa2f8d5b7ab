"""The byte scan over a large text, with numpy: a comparison per byte, then a look at the hits.

Knows which bytes to look for, not what they mean. Memory holds one chunk and what is found,
however long the text is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rankmuster.formats.hlo.scanner import Text
from rankmuster.formats.hlo.sites import Lines

_MARGIN = 8  # no opcode or line begins before the end of the word HloModule
_CHUNK = 1 << 18  # large against the cost of a call; it stays in a core's cache with its mask
_BEFORE = b" \t\r\n=]})"  # what an opcode may follow


def scan(text: Text, opcodes: Iterable[bytes]) -> tuple[list[int], Lines]:
    """Where "(" stands behind one of *opcodes*, or nearly so, and the lines of column zero."""
    import numpy as np

    view = np.frombuffer(text, np.uint8)
    follows = _Follows(text, [bytes((b,)) + name for name in opcodes for b in _BEFORE])
    brackets: list[int] = []
    starts, ends, lasts = array("q"), array("q"), bytearray()
    opening = 0
    for low, chunk, mask in _chunks(view):
        np.equal(chunk, ord("\n"), out=mask)
        breaks = mask.nonzero()[0]
        last = view[low - 1 :].take(breaks)
        opening += int(np.count_nonzero(last == ord("{")))
        whole = len(breaks) - (low + len(chunk) == len(view) and bool(mask[-1]))
        first = view[low + 1 :].take(breaks[:whole])
        # Neither blank, whatever lies below it being one, nor digit.
        at = ((first > ord(" ")) & ((first < ord("0")) | (first > ord("9")))).nonzero()[0]
        starts.frombytes((breaks[at] + (low + 1)).tobytes())
        inside = at[: np.searchsorted(at, len(breaks) - 1)] + 1
        ends.frombytes((breaks[inside] + low).tobytes())
        lasts += last[inside].tobytes()
        if len(ends) < len(starts):  # the last one goes on in the next chunk
            end = text.find(b"\n", starts[-1])
            ends.append(end if end >= 0 else len(text))
            lasts.append(view[ends[-1] - 1])
        np.equal(chunk, ord("("), out=mask)
        brackets += (follows(mask.nonzero()[0], low) + low).tolist()
    firsts = view[np.frombuffer(starts, np.int64)].tobytes() if starts else b""
    return brackets, Lines(starts, ends, firsts, bytes(lasts), opening)


def behind(text: Text, needles: Sequence[bytes]) -> list[int]:
    """Where each of *needles*, of five bytes or more, ends in *text*, ascending."""
    import numpy as np

    view = np.frombuffer(text, np.uint8)
    follows = _Follows(text, [needle[:-1] for needle in needles])
    found: list[int] = []
    hits = np.empty(_CHUNK, bool)
    for low, chunk, mask in _chunks(view):
        for one, two in sorted({needle[-2:] for needle in needles}):
            hit = np.equal(view[low - 1 :][: len(chunk)], one, out=hits[: len(chunk)])
            hit &= np.equal(chunk, two, out=mask)
            found += (follows(hit.nonzero()[0], low) + (low + 1)).tolist()
    return sorted(found)


def _chunks(view: Any) -> Iterator[tuple[int, Any, Any]]:
    """Where each chunk starts, its bytes, and a mask for it; fresh masks would cost more."""
    import numpy as np

    mask = np.empty(_CHUNK, bool)
    for low in range(_MARGIN, len(view), _CHUNK):
        chunk = view[low : low + _CHUNK]
        yield low, chunk, mask[: len(chunk)]


class _Follows:
    """Which positions stand behind one of some words, of four bytes or more.

    Looks at the two bytes before, then at the two before those, then at all eight.
    """

    def __init__(self, text: Text, words: Iterable[bytes]) -> None:
        import numpy as np

        size = len(text)
        # The same memory read as the two, and the eight, bytes that begin at each position.
        self._twos = np.ndarray((size - 1,), "<u2", buffer=text, strides=(1,))
        self._eights = np.ndarray((size - 7,), "<u8", buffer=text, strides=(1,))
        self._last, self._last_but_two = np.zeros((2, 1 << 16), bool)
        masks: dict[int, set[int]] = {}
        for word in words:
            self._last[int.from_bytes(word[-2:], "little")] = True
            self._last_but_two[int.from_bytes(word[-4:-2], "little")] = True
            last = word[-8:]
            mask = int.from_bytes((b"\xff" * len(last)).rjust(8, b"\0"), "little")
            masks.setdefault(mask, set()).add(int.from_bytes(last.rjust(8, b"\0"), "little"))
        self._wanted = [
            (np.uint64(mask), np.array([*sorted(lasts), (1 << 64) - 1], "<u8"))
            for mask, lasts in masks.items()
        ]

    def __call__(self, places: Any, low: int) -> Any:
        """Those of *places*, counted from *low*, that stand behind a word."""
        import numpy as np

        places = places[self._last[self._twos[low - 2 :][places]]]
        places = places[self._last_but_two[self._twos[low - 4 :][places]]]
        before = self._eights[low - 8 :][places]
        hits = np.zeros(len(before), bool)
        for mask, lasts in self._wanted:
            last = before & mask
            hits |= lasts[np.searchsorted(lasts, last)] == last
        return places[hits]
