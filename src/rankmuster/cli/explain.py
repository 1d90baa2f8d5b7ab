"""`rankmuster explain`: what a finding code means and what to do."""

from __future__ import annotations

import click

from rankmuster.cli.output import Output
from rankmuster.errors import did_you_mean
from rankmuster.rules import RULES


def completed(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The codes that begin with what was typed."""
    return [code for code in RULES if code.startswith(incomplete.upper())]


@click.command()
@click.argument("codes", nargs=-1, metavar="[CODE]...", shell_complete=completed)
def explain(codes: tuple[str, ...]) -> None:
    """Say what each CODE means and what to do about it; without a code, list them all."""
    chosen = [known(code) for code in codes] or list(RULES)
    entries = [
        {
            "code": code,
            "severity": RULES[code].severity,
            "title": RULES[code].title,
            "fix": RULES[code].fix,
        }
        for code in chosen
    ]
    text = "\n".join(
        f"{entry['code']} {entry['severity']:<7}  {entry['title']}"
        + (f": {entry['fix']}" if entry["fix"] else "")
        for entry in entries
    )
    Output.current().answer(text, entries)


def known(code: str) -> str:
    """The code as the table spells it; an unknown one is answered by the nearest."""
    name = code.upper()
    if name not in RULES:
        raise click.UsageError(f"no finding {code!r}; {did_you_mean(name, RULES)}")
    return name
