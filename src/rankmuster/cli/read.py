"""`rankmuster read`: any program in the format that people can edit."""

from __future__ import annotations

from typing import Any

import click

from rankmuster.cli.output import Named, Output
from rankmuster.cli.programs import load_one, program_options
from rankmuster.finding import Severity
from rankmuster.formats import json_program


@click.command()
@click.argument("program")
@click.option(
    "--as", "form", type=Named(["program"]), default="program", help="rankmuster.program/1 JSON."
)
@click.option("--device", type=click.IntRange(0), metavar="D", help="The program that D runs.")
@program_options
def read(program: str, form: str, device: int | None, **said: Any) -> None:
    """Read PROGRAM in any known format and print it as rankmuster.program/1.

    What reading alone found is told on standard error.
    """
    del form  # there is one so far
    chosen = load_one(program, said, device).resolved.program
    for found in chosen.findings:
        is_error = found.severity is Severity.ERROR
        Output.current().log(f"{found.severity} {found.code}: {found.message}", is_error=is_error)
    try:
        text = json_program.write(chosen)
    except ValueError as error:  # nested deeper than the format allows
        raise click.ClickException(str(error)) from error
    click.echo(text.decode())
