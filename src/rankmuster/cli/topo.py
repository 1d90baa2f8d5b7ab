"""`rankmuster topo`: chips, links and where the groups of a program land on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from rankmuster.arch.instances import ALIASES, INSTANCES
from rankmuster.cli.cluster_name import ClusterName, settings
from rankmuster.cli.output import Output, use_color
from rankmuster.cli.programs import Chosen, load_one, program_options
from rankmuster.clusters import Cluster
from rankmuster.finding import Severity
from rankmuster.placement import survey
from rankmuster.placement.judge import check_claims
from rankmuster.render import topo as drawing
from rankmuster.render.placement import add_placement
from rankmuster.render.report import add_findings
from rankmuster.render.table import Page
from rankmuster.render.topo_svg import svg
from rankmuster.render.words import count
from rankmuster.resolve import GroupSet, Resolved
from rankmuster.screen import Survey

SCHEMA = "rankmuster.topo/1"


@click.command()
@click.argument("cluster", type=ClusterName(), required=False)
@click.option("--groups", "program", metavar="PROGRAM", help="Show where its groups land.")
@click.option("--set", "number", type=click.IntRange(0), default=0, help="Which of its sets.")
@click.option("--node", type=click.IntRange(0), default=0, help="Which node (default: 0).")
@click.option("--svg", "path", metavar="FILE", help="Write a picture; - for standard output.")
@program_options
def topo(
    cluster: Cluster | None,
    *,
    program: str | None,
    number: int,
    node: int,
    path: str | None,
    **said: Any,
) -> int:
    """Draw the chips and links of CLUSTER; without one, list the clusters that are known.

    CLUSTER is a name with a number of nodes, such as trn2.48xlarge:4, trn2-ultraserver:2 or
    trn1:2, with :lnc=1, :pod=x2h or :runtime=2.34.10 after it; generic:8x8 for 8 hosts of 8; or a
    file that `neuron-ls -j` wrote.

    Exit code: 1 where the program cannot run there.
    """
    output = Output.current()
    if cluster is None:
        if program is not None or path is not None:
            raise click.UsageError("say which CLUSTER: 'rankmuster topo' alone lists them")
        output.answer(catalogue_text(), catalogue())
        return 0
    if node >= cluster.nodes:
        raise click.UsageError(f"node {node} is not one of the {cluster.nodes} of {cluster.name}")
    if number and program is None:
        raise click.UsageError("--set chooses from the sets of --groups PROGRAM")
    chosen = load_one(program, said) if program is not None else None
    each = set_of(chosen, number)
    if path is not None:
        write(svg(cluster, each), path)
        return 0
    found = survey_of(chosen, cluster, said["world"])
    output.answer(text(cluster, node, each, found), as_json(cluster, found))
    return int(any(told.severity is Severity.ERROR for told in found.findings))


def set_of(chosen: Chosen | None, number: int) -> GroupSet | None:
    """The set that is asked for. Raises `click.UsageError` for one that is not there."""
    if chosen is None:
        return None
    sets = chosen.resolved.sets
    if number >= len(sets):
        raise click.UsageError(f"the program has {len(sets)} group sets, and no set {number}")
    return sets[number]


def survey_of(chosen: Chosen | None, cluster: Cluster, world: int | None) -> Survey:
    """Where the program's groups land; without one, whether the world fits, and the listings."""
    if chosen is None and world is not None:
        return survey([], cluster, world, settings=settings())
    if chosen is None:
        return Survey(findings=tuple(check_claims(cluster)))
    resolved: Resolved = chosen.resolved
    return survey([resolved], cluster, chosen.world_size, settings=settings())


def write(picture: str, path: str) -> None:
    """Put the picture where it belongs."""
    if path == "-":
        click.echo(picture, nl=False)
    else:
        Path(path).write_text(picture, encoding="utf-8")
        Output.current().log(f"wrote {path}")


def text(cluster: Cluster, node: int, each: GroupSet | None, found: Survey) -> str:
    """The drawing, its legend, and what is worth knowing about the groups."""
    page = Page(color=use_color(sys.stdout))
    page.line(drawing.headline(cluster))
    page.line()
    for line in drawing.draw(cluster, node, drawing.members_of(each)):
        page.line(*line)
    page.line()
    for words in drawing.legend(cluster, node):
        page.line(words)
    if each is not None:
        page.line(f"letters: the {count(len(each.members), 'group')} of set {each.id}, . for none")
    add_placement(page, found.placement)
    if found.findings:
        page.line()
        add_findings(page, found.findings)
    return str(page)


def as_json(cluster: Cluster, found: Survey) -> dict[str, Any]:
    """The wiring of a node, and the placement of a program's groups."""
    fabric = cluster.instance.fabric
    grid = drawing.grid_of(fabric)
    return {
        "schema": SCHEMA,
        "cluster": cluster.to_dict(),
        "chips": [
            {
                "chip": chip,
                "routing_id": fabric.rids[chip],
                "row": grid.at[chip][0],
                "column": grid.at[chip][1],
                "ports": list(fabric.ports[chip]),
                "hops": list(fabric.distances[chip]),
            }
            for chip in range(fabric.chips)
        ],
        "placement": dict(found.placement),
        "screen": found.screen.to_dict(),
        "findings": [each.to_dict() for each in found.findings],
    }


def catalogue() -> list[dict[str, Any]]:
    """Every cluster that has a name."""
    return [
        {
            "name": each.name,
            "aliases": sorted(alias for alias, name in ALIASES.items() if name == each.name),
            "servers": each.servers,
            "chips": each.chips,
            "cores_per_chip": each.cores_per_chip,
            "lnc": list(each.core_sizes),
            "topology": each.fabric.name,
            "network_gbps": each.network_gbps,
            "link": each.link,
            "memory_gib": each.memory_gib,
            "pod": each.pod_type.name.lower(),
            "pod_modes": [mode.name.lower() for mode in each.pod_modes],
            "note": each.note,
        }
        for each in INSTANCES.values()
    ]


def catalogue_text() -> str:
    """The same as a table."""
    page = Page(color=use_color(sys.stdout))
    header = ("name", "servers", "chips", "cores", "lnc", "Gbps", "topology", "pod", "also")
    page.table(
        header,
        [
            (
                row["name"],
                *(str(row[key]) for key in ("servers", "chips", "cores_per_chip")),
                ",".join(map(str, row["lnc"])),
                str(row["network_gbps"]),
                row["topology"],
                row["pod"],
                ", ".join(row["aliases"]),
            )
            for row in catalogue()
        ],
    )
    page.line("generic:8x8 stands for 8 hosts of 8 devices of any other kind")
    return str(page)
