"""Where a command's answer goes: text or JSON to standard output, the rest to standard error."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from rankmuster.errors import did_you_mean

if TYPE_CHECKING:
    from rankmuster.report import Report

FORMATS = ("text", "json")
CommandT = TypeVar("CommandT", bound=click.Command)


@dataclass(slots=True)
class Output:
    """How this invocation prints: made by the root command, set by --format and --quiet.

    Commands get theirs with `Output.current()`.
    """

    format: str = "text"
    quiet: bool = False

    @classmethod
    def current(cls) -> Output:
        """The output of the running command."""
        return click.get_current_context().find_root().ensure_object(cls)

    @property
    def is_json(self) -> bool:
        """Whether the answer goes out as JSON."""
        return self.format == "json"

    def answer(self, text: str, value: Any) -> None:
        """Print the answer: *value* as JSON or *text*, as asked for."""
        if self.is_json:
            self.json(value)
        elif text:
            click.echo(text)

    def json(self, value: Any) -> None:
        """Print *value* as JSON: one line for a machine, indented for a terminal."""
        import msgspec

        data = msgspec.json.encode(value)
        if sys.stdout.isatty():
            data = msgspec.json.format(data, indent=2)
        click.echo(data.decode())

    def report(self, report: Report) -> None:
        """Print a report, as JSON or as text for the terminal at hand."""
        if self.is_json:
            self.json(report.to_dict())
            return
        from rankmuster.render import text

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        color = use_color(sys.stdout)
        click.echo(text(report, color=color, quiet=self.quiet, width=width), color=color)

    def module_lines(self, names: Sequence[str], reports: Sequence[Report]) -> None:
        """Print one line for each module, and the errors of those that have any."""
        from rankmuster.render import modules

        color = use_color(sys.stdout)
        click.echo(modules(names, reports, color=color), color=color)

    def log(self, text: str, *, is_error: bool = False) -> None:
        """Say something on standard error: with --quiet only what is wrong."""
        if is_error or not self.quiet:
            click.echo(text, err=True)


def use_color(stream: TextIO) -> bool:
    """Whether *stream* is a terminal whose user did not ask for no colour (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Named(click.Choice[str]):
    """A choice among names that answers a wrong one with the nearest."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return *value* if it is one of the names."""
        if value not in self.choices:
            self.fail(
                f"{value!r} is not known; {did_you_mean(str(value), names(self))}", param, ctx
            )
        return super().convert(value, param, ctx)


def names(choice: click.Choice[str]) -> Iterable[str]:
    """The names that *choice* allows."""
    return [str(name) for name in choice.choices]


def accept_output_options(command: CommandT) -> CommandT:
    """Let *command* take --format and --quiet, so that they work before and after its name."""
    known = {name for param in command.params for name in param.opts}
    for option in output_options():
        if not known.intersection(option.opts):
            command.params.append(option)
    return command


def output_options() -> list[click.Option]:
    """Fresh options that set the current `Output` instead of a parameter."""
    return [
        click.Option(
            ["--format"],
            type=Named(FORMATS),
            metavar="text|json",
            expose_value=False,
            callback=set_format,
            help="How to print the answer (default: text).",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=set_quiet,
            help="Print the answer, and errors, and nothing else.",
        ),
    ]


def set_format(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    """Take --format, wherever it stands; the last one wins."""
    if value is not None:
        ctx.find_root().ensure_object(Output).format = value


def set_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 click calls it
    """Take --quiet, wherever it stands."""
    if value:
        ctx.find_root().ensure_object(Output).quiet = True
