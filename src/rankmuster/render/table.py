"""Lines, tables and colours. The only module that imports rich, and only when it draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Cell = tuple[str, str]
"""Text and the style it is printed in ("" for plain)."""

WIDE = 100_000  # no terminal: lines are for programs and editors, which wrap by themselves


@dataclass(slots=True)
class Page:
    """Text under construction: lines of styled cells, and tables."""

    color: bool = False
    width: int | None = None
    _parts: list[str] = field(default_factory=list)

    def line(self, *cells: Cell | str, indent: int = 0) -> None:
        """Add one line."""
        styled = [cell if isinstance(cell, tuple) else (cell, "") for cell in cells]
        if self.color:
            self._parts.append(" " * indent + paint(styled))
        else:
            self._parts.append(" " * indent + "".join(text for text, _ in styled))

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table; numbers stand right, the last column may fold."""
        from rich.table import Table
        from rich.text import Text

        rows = list(rows)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for at, title in enumerate(header):
            right = all(row[at].isdecimal() for row in rows)
            last = at == len(header) - 1
            table.add_column(
                title, justify="right" if right else "left", no_wrap=not last, overflow="fold"
            )
        for row in rows:
            table.add_row(*map(Text, row))  # Text: never read as markup
        self._parts += rendered(table, color=self.color, width=self.width)

    def __str__(self) -> str:
        return "\n".join(self._parts)


def paint(cells: Iterable[Cell]) -> str:
    """One line with terminal colours."""
    from rich.text import Text

    return "\n".join(rendered(Text.assemble(*cells), color=True, width=None))


def rendered(drawing: object, *, color: bool, width: int | None) -> list[str]:
    """The lines of a rich object, without the blanks that fill them up."""
    import io

    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width or WIDE,
        color_system="standard" if color else None,
        force_terminal=color,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(drawing, soft_wrap=width is None, highlight=False)
    return [line.rstrip() for line in capture.get().rstrip("\n").split("\n")]
