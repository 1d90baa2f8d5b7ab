"""The root command and the table of its subcommands, each imported when it is first named."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click

from rankmuster import __version__
from rankmuster.cli.importing import ending_at_once
from rankmuster.cli.output import accept_output_options
from rankmuster.errors import did_you_mean

START = """\
rankmuster check dumps/ --world 8         does every process hold the same program?
rankmuster up -n 8 --program step.hlo     bring its communicators up for real, on this machine
rankmuster explain RM302                  what a finding means, and what to do"""

COMPLETION = """\
Shell completion: put eval "$(_RANKMUSTER_COMPLETE=bash_source rankmuster)" into ~/.bashrc
(zsh_source and fish_source likewise)."""


class Entry(NamedTuple):
    """Where a command lives and the line that --help prints without importing it."""

    module: str
    summary: str


COMMANDS = {
    "check": Entry("check", "Compare the programs of all processes and report what differs."),
    "up": Entry("up", "Bring up the communicators for real, then become the job's command."),
    "simulate": Entry("simulate", "Run a bring-up in virtual time, with the faults you name."),
    "groups": Entry("groups", "List the group sets of a program, or the groups of one device."),
    "sign": Entry("sign", "Print the signatures that one device computes."),
    "diff": Entry("diff", "Name the first difference between two programs."),
    "read": Entry("read", "Read a program and print it in a format that people can edit."),
    "topo": Entry("topo", "Draw chips and links, and where a program's groups land."),
    "chips": Entry("chips", "Print the ops table of the chip generations."),
    "decode": Entry("decode", "Print a memory image of one of the original's structs."),
    "doctor": Entry("doctor", "Say what in this machine's settings will hurt a bring-up."),
    "explain": Entry("explain", "Say what a finding means and what to do about it."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use and take the output options anywhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the table: the most useful first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command that is named; None for an unknown one."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        with ending_at_once():
            module = import_module(f"rankmuster.cli.{entry.module}")
        command: click.Command = getattr(module, entry.module)
        return accept_output_options(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that *args* begin with; an unknown one is answered by the nearest."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without importing what it names."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=COMPLETION,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rankmuster")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Muster the ranks of a distributed job: who is missing, and whose program differs."""
    if ctx.invoked_subcommand is None:
        click.echo(START)


accept_output_options(root)
