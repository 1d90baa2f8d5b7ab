"""The command line: arguments in, a report and an exit code out."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
