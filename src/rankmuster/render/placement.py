"""Where groups land, as a table: the `placement` of a report for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rankmuster.render.table import Page
from rankmuster.render.words import printable

ROWS_SHOWN = 24
HEADER = (
    *("set", "groups", "size", "chips", "nodes", "on chip", "links", "far", "network", "max hops"),
    "algorithm",
)


def add_placement(page: Page, placement: Mapping[str, Any]) -> None:
    """Add the table of a report's placement, if there is one."""
    rows = list(_rows(placement))
    if not rows:
        return
    page.line()
    page.line(f"on {printable(placement['cluster']['name'])}, steps of each ring or permute:")
    page.table(HEADER, rows[:ROWS_SHOWN])
    if len(rows) > ROWS_SHOWN:
        page.line(f"… and {len(rows) - ROWS_SHOWN} more rows (--format json)")


def _rows(placement: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for group in placement.get("groups", ()):
        for shape in group["shapes"]:
            steps = shape["steps"]
            counts = (shape[key] for key in ("groups", "size", "chips", "nodes"))
            walked = (
                steps[key] for key in ("same_chip", "linked", "unlinked", "network", "max_hops")
            )
            algorithm = (shape["algorithm"] or {"algorithm": "-"})["algorithm"]
            yield (str(group["id"]), *map(str, counts), *map(str, walked), algorithm)
