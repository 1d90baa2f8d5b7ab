"""What a cluster adds to a report: the two deadlock screens (S4 §4), and where groups land.

Values only, so that a report can hold them without knowing chips.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankmuster.finding import Finding, finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Both latches of the `enc_context`; `because` says first of the proxy, then of routing, why.

    By default nothing was screened and nothing is forced.
    """

    use_2dev_proxy: bool = False
    disable_rmv_dst_routing: bool = False
    because: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The screen as the JSON report holds it."""
        return {
            "use_2dev_proxy": self.use_2dev_proxy,
            "disable_rmv_dst_routing": self.disable_rmv_dst_routing,
            "because": list(self.because),
        }

    def findings(self) -> tuple[Finding, ...]:
        """RM501 and RM502, one for each latch that is set."""
        proxy, routing = self.because or ("", "")
        codes = ("RM501",) * self.use_2dev_proxy + ("RM502",) * self.disable_rmv_dst_routing
        return tuple(finding(code, proxy if code == "RM501" else routing) for code in codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All that a cluster adds to a report; nothing where no cluster is said.

    `judged` are the codes that it answers better than the program alone can.
    """

    judged: frozenset[str] = frozenset()
    placement: Mapping[str, Any] = field(default_factory=dict)
    screen: Screen = field(default_factory=Screen)
    findings: tuple[Finding, ...] = ()
