"""How long a process did nothing although it meant to: a stopped one cannot say so, but sees later.

Whoever waits looks at the clock every beat all the same, so looks that lie farther apart than that
mean that it stood still. What it finds then may have come long ago, and what it says about the
silence of others is not to be believed. It knows no clock: whoever looks says what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = float("inf")
LEAST_STILL_S = 0.25  # a busy machine keeps a process from the clock for less
BEATS_AFTER = 4  # for which a standstill counts: then whatever it held up has come


@dataclass(slots=True, kw_only=True)
class Pulse:
    """The looks at one process's clock, of which it takes one every `beat_s`.

    `unseen_since` is since when something may have come that was not taken yet, `NEVER` where the
    process was awake since it took the last.
    """

    looked_at: float = 0.0
    beat_s: float = NEVER
    unseen_since: float = NEVER
    _still_s: float = 0.0
    _woke_at: float = -NEVER
    _awake_s: float = field(init=False)  # at most so far apart are two looks of one that is awake

    def __post_init__(self) -> None:
        self._awake_s = self.beat_s + max(self.beat_s, LEAST_STILL_S)

    def look(self, now: float) -> None:
        """It is *now*; a look that is a whole beat late is a standstill, and not a busy machine."""
        before, self.looked_at = self.looked_at, now
        if now > before + self._awake_s:
            self._still_s = max(self.still_s, now - before - self.beat_s)
            self._woke_at = now
            self.unseen_since = min(self.unseen_since, before)

    @property
    def still_s(self) -> float:
        """How long the process stood still of late, 0 if it did not."""
        return self._still_s if self.looked_at < self._woke_at + BEATS_AFTER * self.beat_s else 0.0

    def took_all(self, unseen_since: float) -> None:
        """What had come was taken, by who began to when `unseen_since` was this."""
        if unseen_since == self.unseen_since:  # else we stood still since we began
            self.unseen_since = NEVER
