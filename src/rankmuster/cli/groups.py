"""`rankmuster groups`: who talks to whom in a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rankmuster.cli.output import Output
from rankmuster.cli.programs import load_one, program_options
from rankmuster.render import words
from rankmuster.render.table import Page
from rankmuster.report import group_rows
from rankmuster.resolve import Resolved

SETS = ("id", "kind", "ops", "communicators", "members")
OWN = ("id", "kind", "rank", "size", "members")


@click.command()
@click.argument("program")
@click.option("--device", type=click.IntRange(0), metavar="D", help="Only the groups of device D.")
@program_options
def groups(program: str, device: int | None, **said: Any) -> None:
    """List the group sets of PROGRAM, or the groups of one device as it sees them.

    Ids are global device ids. Replica-group sets are numbered first and then the sets of pairs,
    whose groups are the components of the pairs.
    """
    resolved = load_one(program, said, device).resolved
    if device is None:
        rows = [row.to_dict() for row in group_rows(resolved)]
        shown = table(SETS, rows, [words.groups(row["members"]) for row in rows])
    else:
        rows = own_groups(resolved, device)
        shown = table(OWN, rows, [words.members(row["members"]) for row in rows])
    Output.current().answer(shown, rows)


def own_groups(resolved: Resolved, device: int) -> list[dict[str, Any]]:
    """The groups that *device* is in, and its place in each."""
    return [
        {
            "id": group.id,
            "kind": group.kind,
            "members": list(group.members),
            "rank": group.rank,
            "size": group.size,
        }
        for group in resolved.groups_of(device)
    ]


def table(columns: Sequence[str], rows: list[dict[str, Any]], members: Sequence[str]) -> str:
    """The rows as a table, with *members* in words in the last column."""
    if not rows:
        return "no groups"
    cells = [[str(row[name]) for name in columns[:-1]] for row in rows]
    page = Page()
    page.table(columns, [[*row, last] for row, last in zip(cells, members, strict=True)])
    return str(page)
