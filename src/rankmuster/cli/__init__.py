"""The command line: arguments in, a report and an exit code out.

Imports nothing heavy: `rankmuster --help` is asked for more often than anything else, so commands
are loaded when they are named (`root`). And nothing at all before it is ready for Ctrl-C, which
people press when they see that they mistyped something: imports stand inside functions.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # without the import of typing
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankmuster.errors import MusterError

INTERRUPTED = 130  # 128 + SIGINT, as shells count it
UNREAD = 141  # 128 + SIGPIPE, likewise: whoever read our output has gone


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code (`design` of the project, §2.1).

    *arguments* default to those of the process. Whatever a user or a peer can cause ends in one
    line on standard error, never in a traceback.
    """
    try:
        from rankmuster.streams import open_closed

        open_closed()
        code = run(arguments)
    except KeyboardInterrupt:  # before `run` was there to see it
        code = INTERRUPTED
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        return invoke(arguments)
    except KeyboardInterrupt:  # while something is still imported
        return INTERRUPTED
    except SystemExit:  # what click makes of EPIPE
        return UNREAD


def invoke(arguments: Sequence[str] | None) -> int:
    """Run the command; every error that is somebody's to mend becomes a line and a code."""
    from rankmuster.cli.importing import ending_at_once

    with ending_at_once():
        import click

        from rankmuster.cli.root import root
        from rankmuster.errors import MusterError
        from rankmuster.streams import tell

    try:
        code = root.main(args=arguments, prog_name="rankmuster", standalone_mode=False)
    except click.ClickException as error:
        tell(error.show)
        return 2
    except click.Abort:  # what click makes of Ctrl-C
        return INTERRUPTED
    except MusterError as error:
        return complain(str(error), code_of(error))
    except OSError as error:
        return complain(f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
    except MemoryError:
        return complain("out of memory", 2)
    return int(code or 0)


def complain(what: str, code: int) -> int:
    """Say *what* is wrong, in one line on standard error; return *code*."""
    from rankmuster.render.words import printable
    from rankmuster.streams import tell

    line = f"rankmuster: {printable(what)}"
    tell(lambda: print(line, file=sys.stderr))  # noqa: T201 the last resort
    return code


def code_of(error: MusterError) -> int:
    """2 for what the caller gave us, 1 for what the world turned out to be."""
    from rankmuster.status import Status

    return 2 if error.status in {Status.INVALID, Status.UNSUPPORTED_NEFF_VERSION} else 1
