"""The lines of a text that stand in its first column: in text as XLA prints it, its frame."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines that begin with neither blank nor digit: where each starts, and its line break.

    `firsts` and `lasts` are their first and last bytes, `opening` is how many lines of the whole
    text end in "{".
    """

    starts: array[int]
    ends: array[int]
    firsts: bytes
    lasts: bytes
    opening: int
