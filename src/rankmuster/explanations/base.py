"""What an explanation says. Knows no code of its own."""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """The long answer to a finding: what it means, how it comes about, and a small example.

    `is_reserved` marks a code that keeps its number while nothing in this release reports it.
    """

    meaning: str
    cause: str
    example: str
    is_reserved: bool = False
