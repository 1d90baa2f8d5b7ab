"""`rankmuster decode`: a memory image of a struct of the original, member by member."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from rankmuster.abi import STRUCTS, Layout, struct_named
from rankmuster.abi.decode import Row, rows
from rankmuster.cli.output import Output, use_color
from rankmuster.load.files import contents, shown
from rankmuster.render.table import Page
from rankmuster.render.words import count, printable

IMAGE_SCHEMA, STRUCTS_SCHEMA = "rankmuster.image/1", "rankmuster.structs/1"
LISTED = 12  # numbers of an array that a table shows
VALUE_COLUMNS = 34  # longer values push their own notes to the right


@click.command()
@click.argument("struct", required=False)
@click.argument("file", required=False)
@click.option("--at", type=click.IntRange(0), default=0, metavar="BYTE", help="Where it begins.")
@click.option("--all", "whole", is_flag=True, help="Print also what is all zero, row by row.")
def decode(struct: str | None, file: str | None, *, at: int, whole: bool) -> int:
    """Print what FILE holds as a memory image of STRUCT, as release 2.31.24 lays it out.

    Without arguments, list the structs; with STRUCT alone, its members. FILE may be - for standard
    input. Pointers are shown, never followed: what lies behind them is not in the image.

    Exit code: 1 where the image ends before the struct does.
    """
    if struct is None:
        Output.current().answer(structs_text(), structs_json())
        return 0
    layout = struct_named(struct)
    if file is None:
        Output.current().answer(layout_text(layout), layout_json(layout))
        return 0
    with contents(file, lambda _: at + layout.size) as image:
        found = list(rows(layout, image[at : at + layout.size], whole=whole))
        held = max(len(image) - at, 0)
    note = fit(layout, held)
    Output.current().answer(
        image_text(layout, shown(file), found, note),
        {
            "schema": IMAGE_SCHEMA,
            "struct": layout.name,
            "size": layout.size,
            "at": at,
            "bytes": held,
            "note": note,
            "fields": [row.to_dict() for row in found],
        },
    )
    return int(held < layout.size)


def fit(layout: Layout, held: int) -> str:
    """How the size of the image goes with that of the struct."""
    if held < layout.size:
        return f"the image ends early: {held} of {layout.size} bytes"
    if held > layout.size:
        return f"{count(held - layout.size, 'byte')} after the struct are not read"
    return ""


def image_text(layout: Layout, name: str, found: Sequence[Row], note: str) -> str:
    """One line on the struct, then a table of its members."""
    head = [f"{layout.name}, {layout.size} bytes: {layout.about}"]
    if note:
        head.append(f"{printable(name)}: {note}")
    cells = [("field", "offset", "size", "value", "note")]
    cells += [
        (row.field, str(row.offset), str(row.size), value(row.value), printable(row.note))
        for row in found
    ]
    # Padded here: an image may have 400,000 rows, and a drawn table takes half a ms for each.
    field, offset, size, shown_value = (
        max(map(len, each)) for each in list(zip(*cells, strict=True))[:4]
    )
    shown_value = min(shown_value, VALUE_COLUMNS)
    lines = (
        f"{a:{field}}  {b:>{offset}}  {c:>{size}}  {d:{shown_value}}  {e}".rstrip()
        for a, b, c, d, e in cells
    )
    return "\n".join((*head, *lines))


def value(held: Any) -> str:
    """A value as a table shows it."""
    if held is None:
        return "-"
    if isinstance(held, bool):
        return str(held).lower()
    if isinstance(held, list):
        more = f" ... {len(held) - LISTED} more" if len(held) > LISTED else ""
        return f"[{' '.join(map(value, held[:LISTED]))}{more}]"
    return printable(str(held)).replace("\n", "\\n")


def structs_text() -> str:
    """Every struct, its size and what it is."""
    page = Page(color=use_color(sys.stdout))
    table = [(each.name, str(each.size), each.about) for each in STRUCTS.values()]
    page.table(("struct", "size", "what it is"), table)
    return str(page)


def structs_json() -> dict[str, Any]:
    """The same for machines."""
    listed = [{"struct": s.name, "size": s.size, "about": s.about} for s in STRUCTS.values()]
    return {"schema": STRUCTS_SCHEMA, "structs": listed}


def layout_text(layout: Layout) -> str:
    """The members of one struct, without an image."""
    page = Page(color=use_color(sys.stdout))
    page.line(f"{layout.name}, {layout.size} bytes: {layout.about}")
    table = [(m.name, str(m.offset), str(m.size), str(m), m.note) for m in layout.members]
    page.table(("field", "offset", "size", "type", "note"), table)
    return str(page)


def layout_json(layout: Layout) -> dict[str, Any]:
    """The same for machines."""
    members = [
        {"field": m.name, "offset": m.offset, "size": m.size, "type": str(m), "note": m.note}
        for m in layout.members
    ]
    head = {"schema": STRUCTS_SCHEMA, "struct": layout.name, "size": layout.size}
    return head | {"about": layout.about, "fields": members}
