"""`rankmuster groups`: who talks to whom in a program."""

from __future__ import annotations

from typing import Any

import click

from rankmuster.cli.output import Output
from rankmuster.cli.programs import load_one, program_options
from rankmuster.render import words
from rankmuster.render.table import Page
from rankmuster.report import group_rows


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
    page = Page()
    if device is None:
        rows = [row.to_dict() for row in group_rows(resolved)]
        page.table(
            ("set", "kind", "ops", "communicators", "members"),
            [
                (
                    str(row["id"]),
                    row["kind"],
                    str(row["ops"]),
                    str(row["communicators"]),
                    words.groups(row["members"]),
                )
                for row in rows
            ],
        )
    else:
        rows = [
            {
                "id": group.id,
                "kind": group.kind,
                "members": list(group.members),
                "rank": group.rank,
                "size": group.size,
            }
            for group in resolved.groups_of(device)
        ]
        page.table(
            ("set", "kind", "rank", "size", "members"),
            [
                (
                    str(row["id"]),
                    row["kind"],
                    str(row["rank"]),
                    str(row["size"]),
                    words.members(row["members"]),
                )
                for row in rows
            ],
        )
    Output.current().answer(str(page) if rows else "no groups", rows)
