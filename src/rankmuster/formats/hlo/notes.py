"""Collects what reading establishes, one note per cause, and turns the notes into findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rankmuster.finding import Finding, OpRef, Severity, finding

MAX_PER_CODE = 32


class Notes:
    """Findings of one program in the making; the same words twice are one finding.

    *at* is any key by which `findings` learns the op that a note concerns.
    """

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], tuple[int | None, Severity | None, str | None]] = {}
        self._times: Counter[tuple[str, str]] = Counter()
        self._per_code: Counter[str] = Counter()

    def add(
        self,
        code: str,
        message: str,
        *,
        at: int | None = None,
        severity: Severity | None = None,
        fix: str | None = None,
    ) -> None:
        """Note *message*; beyond `MAX_PER_CODE` of one code only the number grows."""
        key = code, message
        self._times[key] += 1
        if key not in self._notes:
            self._per_code[code] += 1
            if self._per_code[code] <= MAX_PER_CODE:
                self._notes[key] = at, severity, fix

    def findings(
        self, places: Callable[[], Callable[[int], tuple[OpRef, int] | None]]
    ) -> tuple[Finding, ...]:
        """All notes as findings, in the order of their first appearance.

        *places* numbers all ops, so it is called only where some note needs that.
        """
        anywhere = any(at is not None for at, _, _ in self._notes.values())
        place = places() if anywhere else lambda _: None
        found = []
        for key, (at, severity, fix) in self._notes.items():
            code, message = key
            if self._times[key] > 1:
                message = f"{message} (and at {self._times[key] - 1} more places)"
            op, group = (place(at) if at is not None else None) or (None, None)
            found.append(finding(code, message, severity=severity, op=op, group=group, fix=fix))
        for code, count in self._per_code.items():
            if count > MAX_PER_CODE:
                found.append(finding(code, f"{count - MAX_PER_CODE} more findings of this kind"))
        return tuple(found)
