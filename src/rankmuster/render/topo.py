"""Chips and links in a terminal: a grid as `neuron-ls -t` users expect it, with groups as letters.

Draws what a cluster's fabric says. `topo_svg` draws the same grid as a picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankmuster.arch.fabric import Fabric
from rankmuster.clusters import Cluster
from rankmuster.render.words import count
from rankmuster.resolve import GroupSet

Position = tuple[int, int]  # row, column
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
MANY, NONE = "#", "."
WRAP_LEGEND = "*- is a wrap-around link to the chip at the other end of the row or column"
COLORS = (
    *("red", "green", "yellow", "blue", "magenta", "cyan"),
    *("bright_red", "bright_green", "bright_yellow", "bright_blue", "bright_magenta"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Where each chip of a node stands on paper."""

    fabric: Fabric
    at: tuple[Position, ...]

    @property
    def rows(self) -> int:
        """How many rows the grid has."""
        return 1 + max(row for row, _ in self.at)

    @property
    def columns(self) -> int:
        """How many columns the grid has."""
        return 1 + max(column for _, column in self.at)

    def linked(self, chip: int, row_step: int, column_step: int) -> bool:
        """Whether a link leads from *chip* to the one that stands a step further."""
        row, column = self.at[chip]
        place = (row + row_step, column + column_step)
        return place in self.at and self.at.index(place) in self.fabric.neighbours[chip]

    def wraps(self, chip: int, row_step: int, column_step: int) -> int | None:
        """The chip that a link off the edge of the grid leads to; None without one."""
        row, column = self.at[chip]
        far = (row + row_step * (1 - self.rows), column + column_step * (1 - self.columns))
        at_edge = (row + row_step, column + column_step) not in self.at
        if not at_edge or far == (row, column) or far not in self.at or self._adjacent(chip, far):
            return None
        other = self.at.index(far)
        return other if other in self.fabric.neighbours[chip] else None

    def _adjacent(self, chip: int, place: Position) -> bool:
        row, column = self.at[chip]
        return abs(row - place[0]) + abs(column - place[1]) == 1


def grid_of(fabric: Fabric) -> Grid:
    """Lay the chips of a fabric out: a torus in fours, a ring there and back, the rest in rows."""
    if fabric.shape == "ring":
        half = fabric.chips // 2
        there = [(0, column) for column in range(half)]
        return Grid(fabric=fabric, at=(*there, *((1, column) for _, column in reversed(there))))
    if fabric.shape == "chain":
        return Grid(fabric=fabric, at=tuple((0, chip) for chip in range(fabric.chips)))
    wide = 4 if fabric.chips <= 16 else 8
    return Grid(fabric=fabric, at=tuple(divmod(chip, wide) for chip in range(fabric.chips)))


def members_of(each: GroupSet | None) -> dict[int, int]:
    """Device -> the number of its sub-group in a set."""
    groups = each.members if each is not None else ()
    return {device: number for number, members in enumerate(groups) for device in members}


def letter(number: int | None) -> str:
    """The letter of a sub-group; "#" where letters run out, "." for a device in none."""
    if number is None:
        return NONE
    return LETTERS[number] if number < len(LETTERS) else MANY


Span = tuple[str, str]  # text and style


def draw(cluster: Cluster, node: int, owner: Mapping[int, int]) -> list[list[Span]]:
    """The lines of one node: chips with a letter for each device's sub-group, and their links."""
    grid = grid_of(cluster.instance.fabric)
    lines: list[list[Span]] = []
    for row in range(grid.rows):
        chips = [(grid.at[chip][1], chip) for chip in range(cluster.instance.chips)
                 if grid.at[chip][0] == row]  # fmt: skip
        ordered = [chip for _, chip in sorted(chips)]
        cells = [_cell(cluster, node, chip, owner) for chip in ordered]
        width = max(len(text) for cell in cells for text in ["".join(part for part, _ in cell)])
        if row == 0:
            lines += _vertical(grid, ordered, width, up=True)
        lines.append(_row(grid, ordered, cells))
        lines += _vertical(grid, ordered, width, up=False)
    return lines


def _cell(cluster: Cluster, node: int, chip: int, owner: Mapping[int, int]) -> list[Span]:
    digits = len(str(cluster.instance.chips - 1))
    spans: list[Span] = [(f"[{chip:>{digits}}", "bold")]
    if owner:
        spans.append((" ", ""))
        first = node * cluster.local_rank_n + chip * cluster.workers_per_chip
        for device in range(first, first + cluster.workers_per_chip):
            number = owner.get(device)
            style = "dim" if number is None else COLORS[number % len(COLORS)]
            spans.append((letter(number), style))
    spans.append(("]", "bold"))
    return spans


def _row(grid: Grid, chips: Sequence[int], cells: Sequence[list[Span]]) -> list[Span]:
    left = grid.wraps(chips[0], 0, -1) is not None
    line: list[Span] = [("*--" if left else "   ", "dim")]
    for chip, cell in zip(chips, cells, strict=True):
        line += cell
        if chip != chips[-1]:
            line.append(("--" if grid.linked(chip, 0, 1) else "  ", "dim"))
    line.append(("--*" if grid.wraps(chips[-1], 0, 1) is not None else "", "dim"))
    return line


def _vertical(grid: Grid, chips: Sequence[int], width: int, *, up: bool) -> list[list[Span]]:
    """The links above the first row, or below any row; nothing where there are none."""
    step = -1 if up else 1
    linked = [grid.linked(chip, step, 0) for chip in chips]
    wrapped = [grid.wraps(chip, step, 0) is not None for chip in chips]
    if not any(linked) and not any(wrapped):
        return []
    bars = _marks([a or b for a, b in zip(linked, wrapped, strict=True)], "|", width)
    ends = _marks(wrapped, "*", width)
    lines = [bars] if not any(wrapped) else [ends, bars] if up else [bars, ends]
    return [[(line, "dim")] for line in lines]


def _marks(where: Sequence[bool], mark: str, width: int) -> str:
    cells = ((mark if here else " ").center(width) for here in where)
    return ("   " + "  ".join(cells)).rstrip()


def headline(cluster: Cluster) -> str:
    """A cluster in one line."""
    instance = cluster.instance
    parts = [
        count(cluster.nodes, "node"),
        f"{count(instance.chips, 'chip')} each ({instance.fabric.name})",
        f"{count(cluster.workers_per_chip, 'device')} a chip"
        + (f" at LNC {cluster.core_size}" if cluster.is_neuron else ""),
        f"{count(cluster.size, 'device')} in all",
    ]
    if instance.network_gbps:
        share = f"{cluster.network_gbps_per_device:g} a device"
        parts.append(f"{instance.network_gbps} Gbps a node ({share})")
    if cluster.has_pods:
        sizes = sorted({seat.size for seat in cluster.seats if seat.size > 1})
        parts.append(f"{instance.pod_type.name} pods of {' and '.join(map(str, sizes))}")
    return f"{cluster.name}: {', '.join(parts)}"


def legend(cluster: Cluster, node: int) -> list[str]:
    """What the drawing leaves to words."""
    first = node * cluster.local_rank_n
    lines = [f"node {node}: devices {first} to {first + cluster.local_rank_n - 1}, in chip order"]
    fabric = cluster.instance.fabric
    if fabric.shape == "torus":
        lines.append(WRAP_LEGEND)
    elif fabric.shape == "switch":
        lines.append("every chip reaches every other through the switch")
    elif fabric.shape == "open":
        lines.append("nothing is claimed about the links of this host")
    if cluster.has_pods and cluster.instance.pod_type.name == "P2P":
        lines.append("chips in the same place of the nodes of a pod form a ring")
    return lines
