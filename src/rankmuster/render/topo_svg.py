"""Chips, links and groups as one SVG picture that stands by itself.

Each node is a panel, each chip a box, each device a cell in the colour of its sub-group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from rankmuster.clusters import Cluster
from rankmuster.ranks import fold
from rankmuster.render.topo import Grid, grid_of, headline, legend, members_of
from rankmuster.render.words import count
from rankmuster.resolve import GroupSet

NODES_SHOWN = 16
GROUPS_NAMED = 24
LINE = 18
LEGEND_WIDE = 360
CELL, CELL_HIGH = 34, 26
HEAD = 20  # the chip's own line
GAP = 34  # between chips: room for links and for the stubs of those that wrap around
MARGIN = 24
TITLE = 64
PER_ROW = 4  # cells side by side in a chip
STYLE = """\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#1c2733}
.title{font-size:17px;font-weight:600}.node{font-size:13px;font-weight:600}
.small{font-size:10px;fill:#5b6b7b}.device{font-size:10px;text-anchor:middle}
.chip{fill:#fff;stroke:#5b6b7b;stroke-width:1.2}.panel{fill:#f4f6f8;stroke:#d4dae0}
.link{stroke:#5b6b7b;stroke-width:2.4}.wrap{stroke:#5b6b7b;stroke-width:1.6;stroke-dasharray:4 3}
.end{font-size:9px;fill:#5b6b7b;text-anchor:middle}.free{fill:#e4e8ec}.cell{stroke:#fff}"""


def svg(cluster: Cluster, each: GroupSet | None = None) -> str:
    """The picture of *cluster*, with the sub-groups of a set in colours where one is given.

    Of more than 16 nodes the first 16 are drawn, and the picture says so.
    """
    return _Picture(cluster, each).render()


def color(number: int) -> str:
    """A colour for the n-th sub-group, far from those before it: steps of the golden angle."""
    hue = number * 137.508 % 360
    light = (74, 62, 83)[number // 3 % 3]
    return f"hsl({hue:.0f} 68% {light}%)"


class _Picture:
    def __init__(self, cluster: Cluster, each: GroupSet | None) -> None:
        self.cluster, self.set = cluster, each
        self.grid: Grid = grid_of(cluster.instance.fabric)
        self.owner: Mapping[int, int] = members_of(each)
        self.nodes = min(cluster.nodes, NODES_SHOWN)
        self.across = 1 if self.nodes == 1 else 2 if self.nodes <= 8 else 4
        lines = -(-cluster.workers_per_chip // PER_ROW)
        self.chip_wide = CELL * min(cluster.workers_per_chip, PER_ROW) + 12
        self.chip_wide = max(self.chip_wide, 64)
        self.chip_high = HEAD + CELL_HIGH * lines + 6
        self.panel_wide = self.grid.columns * (self.chip_wide + GAP) + GAP
        self.panel_high = self.grid.rows * (self.chip_high + GAP) + GAP + HEAD

    def render(self) -> str:
        down = -(-self.nodes // self.across)
        wide = 2 * MARGIN + self.across * (self.panel_wide + MARGIN) - MARGIN
        wide = max(wide, 760)
        body = [*self._title(), *self._panels()]
        top = TITLE + MARGIN + down * (self.panel_high + MARGIN)
        below, end = self._below(top, wide)
        high = end + MARGIN // 2
        what = escape(headline(self.cluster))
        size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{what}</title>",
                f"<style>{STYLE}</style>",
                f'<rect width="{wide}" height="{high}" fill="#fff"/>',
                *body,
                *below,
                "</svg>",
                "",
            )
        )

    def _title(self) -> Iterator[str]:
        yield _text(MARGIN, 32, self.cluster.name, "title")
        yield _text(MARGIN, 52, headline(self.cluster).partition(": ")[2], "small")

    def _panels(self) -> Iterator[str]:
        for node in range(self.nodes):
            row, column = divmod(node, self.across)
            x = MARGIN + column * (self.panel_wide + MARGIN)
            y = TITLE + MARGIN + row * (self.panel_high + MARGIN)
            yield f'<g transform="translate({x} {y})">'
            size = f'width="{self.panel_wide}" height="{self.panel_high}"'
            yield f'<rect class="panel" {size} rx="8"/>'
            yield _text(12, 20, self._node_name(node), "node")
            yield from self._links()
            for chip in range(self.cluster.instance.chips):
                yield from self._chip(node, chip)
            yield "</g>"

    def _node_name(self, node: int) -> str:
        seat = self.cluster.seats[node]
        pod = f" · node {seat.node} of pod {seat.serial}" if seat.size > 1 else ""
        return f"node {node}{pod}"

    def _corner(self, chip: int) -> tuple[int, int]:
        row, column = self.grid.at[chip]
        x = GAP + column * (self.chip_wide + GAP)
        return x, HEAD + GAP + row * (self.chip_high + GAP)

    def _links(self) -> Iterator[str]:
        for chip in range(self.cluster.instance.chips):
            x, y = self._corner(chip)
            middle_x, middle_y = x + self.chip_wide // 2, y + self.chip_high // 2
            if self.grid.linked(chip, 0, 1):
                right = x + self.chip_wide
                yield _line("link", right, middle_y, right + GAP, middle_y)
            if self.grid.linked(chip, 1, 0):
                bottom = y + self.chip_high
                yield _line("link", middle_x, bottom, middle_x, bottom + GAP)
            for row_step, column_step in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                other = self.grid.wraps(chip, row_step, column_step)
                if other is not None:
                    start_x = middle_x + column_step * self.chip_wide // 2
                    start_y = middle_y + row_step * self.chip_high // 2
                    end_x, end_y = start_x + 16 * column_step, start_y + 16 * row_step
                    yield _line("wrap", start_x, start_y, end_x, end_y)
                    label_y = end_y + 3 + 7 * row_step
                    yield _text(end_x + 9 * column_step, label_y, str(other), "end")

    def _chip(self, node: int, chip: int) -> Iterator[str]:
        x, y = self._corner(chip)
        size = f'width="{self.chip_wide}" height="{self.chip_high}"'
        yield f'<rect class="chip" x="{x}" y="{y}" {size} rx="5"/>'
        yield _text(x + 7, y + 14, f"chip {chip}", "small")
        first = node * self.cluster.local_rank_n + chip * self.cluster.workers_per_chip
        x += (self.chip_wide - CELL * min(self.cluster.workers_per_chip, PER_ROW)) // 2
        for worker in range(self.cluster.workers_per_chip):
            line, place = divmod(worker, PER_ROW)
            at = x + place * CELL, y + HEAD + line * CELL_HIGH
            yield from self._device(first + worker, *at)

    def _device(self, device: int, x: int, y: int) -> Iterator[str]:
        number = self.owner.get(device)
        paint = 'class="cell free"' if number is None else f'class="cell" fill="{color(number)}"'
        said = "in no group" if number is None else f"group {number}"
        yield (
            f'<rect {paint} x="{x}" y="{y}" width="{CELL}" height="{CELL_HIGH}" rx="3">'
            f"<title>device {device}: {said}</title></rect>"
        )
        yield _text(x + CELL // 2, y + CELL_HIGH // 2 + 4, str(device), "device")

    def _notes(self) -> list[str]:
        lines = legend(self.cluster, 0)[1:]
        if self.cluster.instance.fabric.shape == "torus":
            lines[0] = "a dashed end names the chip that the link wraps around to"
        if self.cluster.nodes > self.nodes:
            lines.append(f"nodes {self.nodes} to {self.cluster.nodes - 1} are not drawn")
        return lines

    def _below(self, top: int, wide: int) -> tuple[list[str], int]:
        """What stands below the panels, and where it ends."""
        notes = self._notes()
        drawn = [_text(MARGIN, top + LINE * at, line, "small") for at, line in enumerate(notes)]
        top += LINE * len(notes)
        if self.set is None:
            return drawn, top
        groups = self.set.members
        what = "pairs" if self.set.pairs is not None else "replica groups"
        drawn.append(
            _text(
                MARGIN,
                top + 6,
                f"set {self.set.id} ({what}): {count(len(groups), 'group')}",
                "node",
            )
        )
        across = max(1, (wide - 2 * MARGIN) // LEGEND_WIDE)
        named = groups[:GROUPS_NAMED]
        for number, members in enumerate(named):
            row, column = divmod(number, across)
            x, y = MARGIN + column * LEGEND_WIDE, top + LINE * (row + 1)
            drawn.append(
                f'<g transform="translate({x} {y})">'
                f'<rect width="14" height="14" rx="3" fill="{color(number)}"/>'
                + _text(22, 11, f"group {number}: {_short(fold(members))}", "small")
                + "</g>"
            )
        top += LINE * (2 + -(-len(named) // across))
        if len(groups) > len(named):
            drawn.append(_text(MARGIN, top, f"and {len(groups) - len(named)} more", "small"))
            top += LINE
        return drawn, top


def _short(text: str, limit: int = 58) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _line(kind: str, x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
