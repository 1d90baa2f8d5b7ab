"""Words and numbers for people: counts, folded ids and text that cannot drive a terminal."""

from __future__ import annotations

import re

# Names come from files that anybody may have written; an escape sequence in one must not run.
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """*text* with control characters, bidirectional marks and lone surrogates spelled out."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 op", "2 ops"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
