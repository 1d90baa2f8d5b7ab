"""Measure ours against its peers in one run: `make bench`, or `python benchmarks/run.py --help`.

Figures are medians with their spread; ratios are ours over the peer's, so smaller is better. A
missing peer is a line that says why. Inputs are made in a temporary folder and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import Case, Goal, Result, Score, Unit, run
from rows import ROWS

FEWEST_ROUNDS = 5


def main() -> int:
    """Run the chosen rows and print them; 1 where one of our own answers was wrong."""
    options = arguments()
    results = []
    with TemporaryDirectory(prefix="rankmuster-bench-") as folder:
        for result in measured(Path(folder), options):
            results.append(result)
            if options.format == "text":
                print(text_of(result), flush=True)
    if options.format == "json":
        print(json.dumps(report(results), indent=1))
    return int(any("wrong answer" in result.ours.missing for result in results))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="TEXT",
        help=f"only cases whose title, 'row: case', contains a TEXT; rows: {', '.join(ROWS)}",
    )
    parser.add_argument("--quick", action="store_true", help="small inputs only")
    parser.add_argument(
        "--rounds", type=int, default=FEWEST_ROUNDS, help="figures of each contestant"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds {options.rounds}: a median wants {FEWEST_ROUNDS} figures or more")
    return options


def measured(folder: Path, options: argparse.Namespace) -> Iterator[Result]:
    """The results of the chosen cases, one by one."""
    for row, cases in ROWS.items():
        for case in cases(folder, options.quick):
            title = f"{row}: {case.name}"
            if not options.rows or any(part in title for part in options.rows):
                print(f"... {title}", file=sys.stderr, flush=True)
                yield run(row, case, options.rounds)


def text_of(result: Result) -> str:
    """One case: a line for ours, and one for each peer with the ratio and the goal."""
    lines = [f"{result.row}: {result.case.name}"]
    for score in result.scores:
        line = f"  {score.name:16} {spread(score, result.case.unit):42}"
        if score is not result.ours:
            line += comparison(result, score)
        lines.append(line.rstrip())
    return "\n".join(lines)


def spread(score: Score, unit: Unit) -> str:
    """`12.3 ms (11.9 - 14.0)`, or why there is nothing."""
    if score.missing:
        return f"missing: {score.missing}"
    factor, name = scale(score.median, unit)
    low, middle, high = (x * factor for x in (min(score.figures), score.median, max(score.figures)))
    return f"{middle:9.2f} {name:2}  ({low:.2f} - {high:.2f})"


def scale(figure: float, unit: Unit) -> tuple[float, str]:
    """A factor and a unit that people read easily."""
    if unit == "B":
        return 1e-6, "MB"
    steps = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"))
    return next(((by, name) for least, by, name in steps if figure >= least), (1e6, "us"))


def comparison(result: Result, peer: Score) -> str:
    """The ratio to one peer, and the goal where it is this peer's."""
    ratio = result.ratio(peer)
    text = "" if ratio is None else f"ratio {ratio:.4f}"
    goal = result.case.goal
    if goal is not None and goal.peer == peer.name:
        text += f"  {aim(goal, result.case)}: {result.verdict()}"
    return text


def aim(goal: Goal, case: Case) -> str:
    """The goal in words."""
    if goal.ratio is not None:
        return f"goal <= {goal.ratio:.4f}"
    factor, name = scale(goal.more or 0.0, case.unit)
    return f"goal +{(goal.more or 0.0) * factor:.0f} {name}"


def report(results: Sequence[Result]) -> dict[str, Any]:
    """Everything, for machines."""
    machine = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": versions({score.name for result in results for score in result.scores}),
    }
    return {"schema": "rankmuster.bench/1", "machine": machine, "cases": [*map(as_dict, results)]}


def versions(names: set[str]) -> dict[str, str]:
    """The versions of those contestants that are installed packages."""
    installed = {package.name: package.version for package in distributions()}
    return {name: installed[name] for name in sorted(names) if name in installed}


def as_dict(result: Result) -> dict[str, Any]:
    """One case."""
    goal = result.case.goal
    return {
        "row": result.row,
        "case": result.case.name,
        "unit": result.case.unit,
        "contestants": [
            {
                "name": score.name,
                "median": score.median if score.figures else None,
                "figures": score.figures,
                "missing": score.missing,
                "ratio": None if score is result.ours else result.ratio(score),
            }
            for score in result.scores
        ],
        "goal": goal and {"peer": goal.peer, "ratio": goal.ratio, "more": goal.more},
        "verdict": result.verdict(),
    }


if __name__ == "__main__":
    sys.exit(main())
