"""One simulated world of which one rank lies: seconds that it takes, or ready, go and done.

python simulated.py RANKS s|B
"""

from __future__ import annotations

import sys
from time import perf_counter

from rankmuster.testing.one_group import rehearse_group
from rankmuster.testing.scenario import Scenario


def main(ranks: int, unit: str) -> None:
    """Print the seconds, or wait for a line before the work and keep its result after it."""
    if unit == "B":
        print("ready", flush=True)
        sys.stdin.readline()
    start = perf_counter()
    ended = rehearse_group(Scenario(processes=ranks, liars=(5,)))
    took = perf_counter() - start
    if ended.verdict != "no" or ended.named != {5}:
        sys.exit(f"wrong answer: {ended.verdict}, named {set(ended.named)}")
    print(took if unit == "s" else "done", flush=True)
    if unit == "B":
        sys.stdin.readline()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
