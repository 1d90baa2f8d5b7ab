"""Host names as people read many of them: "trn[07-09],head"."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rankmuster.ranks import ranges


def fold_hosts(names: Iterable[str]) -> str:
    """Fold names that differ in their last number: {trn07, trn08, head} -> "head,trn[07-08]"."""
    alone: list[str] = []
    numbered: dict[tuple[str, str, int], list[int]] = {}
    for name in sorted(set(names)):
        parts = re.fullmatch(r"(.*?)([0-9]{1,12})([^0-9]*)", name, flags=re.DOTALL)
        if parts is None:
            alone.append(name)
            continue
        before, digits, after = parts.groups()
        # trn7 and trn07 are two hosts: the width of a number belongs to the name.
        numbered.setdefault((before, after, len(digits)), []).append(int(digits))
    folded = [
        _folded(before, after, width, numbers)
        for (before, after, width), numbers in numbered.items()
    ]
    return ",".join(sorted([*alone, *folded]))


def _folded(before: str, after: str, width: int, numbers: list[int]) -> str:
    runs = [
        f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
        for first, last in ranges(numbers)
    ]
    inside = ",".join(runs)
    return f"{before}{inside}{after}" if len(numbers) == 1 else f"{before}[{inside}]{after}"
