"""Words and numbers for people: counts, folded ids and text that cannot drive a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rankmuster.ranks import fold

# Names come from files that anybody may have written. An escape sequence in one must not run, a
# bidirectional mark or a line break must not fake a line, a lone surrogate not break the encoder.
CONTROL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
IDS_SHOWN = 16
FOLDED_MAX = 60
GROUPS_SHOWN = 6


def printable(text: str) -> str:
    """*text* with control characters, bidirectional marks and lone surrogates spelled out."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 op", "2 ops"."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def members(ids: Sequence[int]) -> str:
    """The members of a group in their order, which counts: folded only where they ascend."""
    if len(ids) > 2 and all(here < there for here, there in pairwise(ids)):
        folded = fold(ids)
        if len(folded) <= FOLDED_MAX:
            return folded
    rest = len(ids) - IDS_SHOWN
    return ",".join(map(str, ids[:IDS_SHOWN])) + (f",… ({rest} more)" if rest > 0 else "")


def groups(sets: Sequence[Sequence[int]]) -> str:
    """The sub-groups of a set, the first few of them."""
    rest = len(sets) - GROUPS_SHOWN
    more = [f"… ({rest} more)"] if rest > 0 else []
    return "  ".join([*map(members, sets[:GROUPS_SHOWN]), *more])


def value(anything: Any, absent: str = "not recorded") -> str:
    """A value of a finding: lists of ids as members, *absent* for None, the rest as it prints."""
    if isinstance(anything, list | tuple) and all(isinstance(each, int) for each in anything):
        return f"[{members(anything)}]"
    return absent if anything is None else printable(str(anything))


def seconds(time_s: float) -> str:
    """A duration as people say it: "1.2 ms", "3.4 s"."""
    return f"{time_s * 1000:.1f} ms" if time_s < 1 else f"{time_s:.1f} s"
