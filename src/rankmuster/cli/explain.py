"""`rankmuster explain`: what a finding code means, how it comes about and what to do."""

from __future__ import annotations

import textwrap

import click

from rankmuster.cli.output import Output
from rankmuster.errors import did_you_mean
from rankmuster.explanations import EXPLANATIONS, FAMILIES
from rankmuster.rules import RULES

WIDTH = 80
RESERVED = "The code is reserved: nothing in this release reports it."
PAGE_HEAD = """\
# Findings

Every finding has a code that stays the same from release to release. Its first digit is the family.
An *error* makes `check` and `up` end with exit code 1, a *warning* does so with `--strict`, and an
*info* never does; where a severity depends on more, the text says so. `rankmuster explain CODE`
prints the same as this page, which is made from it.
"""


def completed(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The codes that begin with what was typed."""
    return [code for code in RULES if code.startswith(incomplete.upper())]


@click.command()
@click.argument("codes", nargs=-1, metavar="[CODE]...", shell_complete=completed)
def explain(codes: tuple[str, ...]) -> None:
    """Say what each CODE means and what to do about it; without a code, list them all."""
    chosen = [known(code) for code in codes]
    text = "\n\n".join(map(in_full, chosen)) or "\n".join(map(line, RULES))
    Output.current().answer(text, [entry(code) for code in chosen or RULES])


def known(code: str) -> str:
    """The code as the table spells it; an unknown one is answered by the nearest."""
    name = code.upper()
    if name not in RULES:
        raise click.UsageError(f"no finding {code!r}; {did_you_mean(name, RULES)}")
    return name


def entry(code: str) -> dict[str, str | bool]:
    """All that is known of a code, for machines."""
    return {"code": code, **RULES[code]._asdict(), **EXPLANATIONS[code]._asdict()}


def line(code: str) -> str:
    """A code and what to do, in one line."""
    rule = RULES[code]
    return f"{code} {rule.severity:<7}  {rule.title}" + (f": {rule.fix}" if rule.fix else "")


def in_full(code: str) -> str:
    """A code as a few paragraphs for the terminal."""
    rule = RULES[code]
    parts = (f"{name + ':':<9}{text}" for name, text in told(code))
    filled = (textwrap.fill(part, WIDTH, subsequent_indent=" " * 9) for part in parts)
    return "\n".join((f"{code} {rule.severity}: {rule.title}", *filled))


def told(code: str) -> list[tuple[str, str]]:
    """What is said of a code, each under its heading."""
    rule, text = RULES[code], EXPLANATIONS[code]
    meaning = f"{text.meaning} {RESERVED}" if text.is_reserved else text.meaning
    fix = [("fix", rule.fix)] if rule.fix else []
    return [("meaning", meaning), ("cause", text.cause), ("example", text.example), *fix]


def as_markdown() -> str:
    """The page on findings."""
    parts = [PAGE_HEAD]
    for family, title in FAMILIES.items():
        parts.append(f"## {title}\n")
        parts += [section(code) for code in RULES if code.startswith(family)]
    return "\n".join(parts)


def section(code: str) -> str:
    """One code of the page on findings."""
    rule = RULES[code]
    rows = (f"* **{name.capitalize()}**: {text}" for name, text in told(code))
    filled = (textwrap.fill(row, 100, subsequent_indent="  ") for row in rows)
    return "\n".join((f"### {code}: {rule.title} ({rule.severity})\n", *filled, ""))
