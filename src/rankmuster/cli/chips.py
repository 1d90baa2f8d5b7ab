"""`rankmuster chips`: the ops table of each chip generation, slot by slot, and who says so."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from rankmuster.arch.chip import Generation, silicon
from rankmuster.arch.inventory import generation_named, rows
from rankmuster.arch.slots import SLOTS, TABLE_BYTES
from rankmuster.cli.output import Output, use_color
from rankmuster.errors import UnknownGeneration
from rankmuster.render.table import Page

SCHEMA = "rankmuster.chips/1"


class GenerationName(click.ParamType[Generation]):
    """A generation by its name or number."""

    name = "generation"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Generation:
        """The generation; a wrong name is answered with the nearest."""
        if isinstance(value, Generation):
            return value
        try:
            return generation_named(value)
        except UnknownGeneration as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("generation", type=GenerationName(), required=False)
def chips(generation: Generation | None) -> None:
    """Print what each chip GENERATION answers: sunda (2), cayman (3), mariana (4).

    Shapes: A goes straight to the slot, B refuses the network pseudo-device first, C guards a slot
    that may be NULL. Evidence: seed for the documents this is built from, wiki for public reverse
    engineering alone, choice where an offset is ours.
    """
    shown = (generation,) if generation is not None else tuple(Generation)
    Output.current().answer(text(shown), as_json(shown))


def as_json(shown: tuple[Generation, ...]) -> dict[str, Any]:
    """Both tables of the generations."""
    names = [each.name.lower() for each in shown]
    return {
        "schema": SCHEMA,
        "table_bytes": TABLE_BYTES,
        "slots": SLOTS,
        "known": [
            row.to_dict() | {"answers": {name: row.answers[name] for name in names}}
            for row in rows()
        ],
        "driver": {each.name.lower(): asdict(silicon(each).driver) for each in shown},
    }


def text(shown: tuple[Generation, ...]) -> str:
    """The fabric's table, then the driver's."""
    page = Page(color=use_color(sys.stdout))
    names = [each.name.lower() for each in shown]
    known = rows()
    page.line(f"fabric: {len(known)} of {SLOTS} slots ({TABLE_BYTES} bytes) have a public name")
    page.table(
        ("offset", "slot", "shape", *names, "evidence", "note"),
        [
            (
                *(str(row.offset), row.slot, row.shape),
                *(row.answers[name] for name in names),
                *(row.evidence, row.note),
            )
            for row in known
        ],
    )
    page.line()
    page.line("driver: a different table, of 61 slots (488 bytes)")
    drivers = [asdict(silicon(each).driver) for each in shown]
    page.table(
        ("count", *names),
        [(count, *(str(driver[count]) for driver in drivers)) for count in drivers[0]],
    )
    return str(page)
