"""The long answers to the findings of `rules`, for `rankmuster explain` and the page on findings.

Texts and nothing else: they are imported only where somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rankmuster.explanations.agreement import AGREEMENT
from rankmuster.explanations.base import Explanation
from rankmuster.explanations.bringup import BRING_UP
from rankmuster.explanations.groups import GROUPS
from rankmuster.explanations.world import WORLD
from rankmuster.rules import RULES

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "RM0": "World",
        "RM1": "Groups",
        "RM2": "Pairs and messages",
        "RM3": "Agreement",
        "RM4": "Placement",
        "RM5": "Deadlock",
        "RM6": "Bring-up",
        "RM7": "Input",
    }
)
"""What the first digit of a code says."""

_ALL = {**WORLD, **GROUPS, **AGREEMENT, **BRING_UP}
EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType({code: _ALL[code] for code in RULES})
"""One for each rule, in the order of the rules."""
