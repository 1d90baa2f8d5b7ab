"""The byte scan over a large text, with numpy: a comparison per byte, then a look at the hits.

Knows which bytes to look for, not what they mean. Memory holds one chunk and what is found,
however long the text is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rankmuster.formats.hlo.lines import Lines
from rankmuster.formats.hlo.scanner import Text

_MARGIN = 8  # no opcode or line begins before the end of the word HloModule
_CHUNK = 1 << 18  # large against the cost of a call; it stays in a core's cache with its mask
_MIX = 0x9E3779B1  # spreads four bytes over the upper half of 32 bits
_BEFORE = b" \t\r\n=]})"  # what an opcode may follow


def scan(
    text: Text, opcodes: Iterable[bytes], marks: Sequence[bytes]
) -> tuple[list[int], list[int], Lines]:
    """Where "(" stands behind an opcode, or nearly so; where marks end; lines of column zero."""
    import numpy as np

    view = np.frombuffer(text, np.uint8)
    brackets = _Words(text, [bytes((b,)) + name for name in opcodes for b in _BEFORE])
    marked = _Words(text, [mark[:-1] for mark in marks])
    lines = _LineCollector(text, view)
    for low, chunk, mask, other in _chunks(view):
        lines.add(low, _places(np.equal(chunk, ord("\n"), out=mask)))
        brackets.add(_places(np.equal(chunk, ord("("), out=mask)), low)
        for ending in {mark[-2:] for mark in marks}:
            marked.add(_pairs(view, low, ending, mask, other), low)
    return brackets.found(), [place + 1 for place in marked.found()], lines.found()


def behind(text: Text, needles: Sequence[bytes]) -> list[int]:
    """Where each of *needles*, of five bytes or more, ends in *text*, or nearly so, ascending."""
    import numpy as np

    view = np.frombuffer(text, np.uint8)
    words = _Words(text, [needle[:-1] for needle in needles])
    for low, _, mask, other in _chunks(view):
        for ending in {needle[-2:] for needle in needles}:
            words.add(_pairs(view, low, ending, mask, other), low)
    return [place + 1 for place in words.found()]


def _chunks(view: Any) -> Iterator[tuple[int, Any, Any, Any]]:
    """Where each chunk starts, its bytes, and two masks for it; fresh masks would cost more."""
    import numpy as np

    masks = np.empty((2, _CHUNK), bool)
    for low in range(_MARGIN, len(view), _CHUNK):
        chunk = view[low : low + _CHUNK]
        yield low, chunk, *masks[:, : len(chunk)]


def _pairs(view: Any, low: int, pair: bytes, mask: Any, other: Any) -> Any:
    """Where the second byte of *pair* stands behind the first, counted from *low*."""
    import numpy as np

    np.equal(view[low - 1 :][: len(mask)], pair[0], out=other)
    np.logical_and(other, np.equal(view[low:][: len(mask)], pair[1], out=mask), out=mask)
    return _places(mask)


def _places(mask: Any) -> Any:
    """Where *mask* is true. Few places are, so eight are looked at as one number first."""
    import numpy as np

    if len(mask) % 8:
        return mask.nonzero()[0]
    eights = mask.view(np.uint64)
    words = (eights != 0).nonzero()[0]
    at = eights[words].view(bool).nonzero()[0]
    return (words[at >> 3] << 3) + (at & 7)


class _LineCollector:
    """Collects the lines that begin with neither blank nor digit, line break by line break."""

    def __init__(self, text: Text, view: Any) -> None:
        self._text, self._view = text, view
        self._starts, self._ends, self._lasts = array("q"), array("q"), bytearray()
        self._opening = 0

    def add(self, low: int, breaks: Any) -> None:
        """Take in all *breaks*, counted from *low*, of one chunk."""
        import numpy as np

        view = self._view
        last = view[low - 1 :].take(breaks)
        self._opening += int(np.count_nonzero(last == ord("{")))
        whole = breaks[:-1] if len(breaks) and low + breaks[-1] + 1 == len(view) else breaks
        first = view[low + 1 :].take(whole)
        # Neither blank, whatever lies below it being one, nor digit.
        at = ((first > ord(" ")) & ((first < ord("0")) | (first > ord("9")))).nonzero()[0]
        self._starts.frombytes((breaks[at] + (low + 1)).tobytes())
        inside = at[: np.searchsorted(at, len(breaks) - 1)] + 1
        self._ends.frombytes((breaks[inside] + low).tobytes())
        self._lasts += last[inside].tobytes()
        if len(self._ends) < len(self._starts):  # the last one goes on in the next chunk
            end = self._text.find(b"\n", self._starts[-1])
            self._ends.append(end if end >= 0 else len(view))
            self._lasts.append(view[self._ends[-1] - 1])

    def found(self) -> Lines:
        """All of them."""
        import numpy as np

        firsts = self._view[np.array(self._starts, np.int64)].tobytes()
        return Lines(self._starts, self._ends, firsts, bytes(self._lasts), self._opening)


class _Words:
    """Collects the positions behind one of some words, of four bytes or more.

    Looks at the four bytes before by a small table, and in the end at eight of the ten before;
    who asks looks at the whole word.
    """

    def __init__(self, text: Text, words: Iterable[bytes]) -> None:
        import numpy as np

        size = len(text)
        # The same memory read as the four, and the eight, bytes that begin at each position.
        self._fours = np.ndarray((size - 3,), "<u4", buffer=text, strides=(1,))
        self._eights = np.ndarray((size - 7,), "<u8", buffer=text, strides=(1,))
        self._table = np.zeros(1 << 16, bool)
        self._places = array("q")
        masks: dict[int, set[int]] = {}
        for word in words:
            four = int.from_bytes(word[-4:], "little")
            self._table[(four * _MIX & 0xFFFFFFFF) >> 16] = True
            last = word[-10:-2]
            mask = int.from_bytes((b"\xff" * len(last)).rjust(8, b"\0"), "little")
            masks.setdefault(mask, set()).add(int.from_bytes(last.rjust(8, b"\0"), "little"))
        self._wanted = [
            (np.uint64(mask), np.array([*sorted(lasts), (1 << 64) - 1], "<u8"))
            for mask, lasts in masks.items()
        ]

    def add(self, places: Any, low: int) -> None:
        """Take in those of *places*, counted from *low*, that may stand behind a word."""
        import numpy as np

        fours = self._fours[low - 4 :][places]
        fours *= np.uint32(_MIX)
        fours >>= np.uint32(16)
        self._places.frombytes((places[self._table[fours]] + low).tobytes())

    def found(self) -> list[int]:
        """Those that do."""
        import numpy as np

        places = np.array(self._places, np.int64)
        before = self._eights[places - 10]
        hits = np.zeros(len(before), bool)
        for mask, lasts in self._wanted:
            last = before & mask
            hits |= lasts[np.searchsorted(lasts, last)] == last
        return sorted(places[hits].tolist())
