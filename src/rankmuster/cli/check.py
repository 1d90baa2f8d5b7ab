"""`rankmuster check`: do the programs of all processes fit together?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from rankmuster.checking import check as run_check
from rankmuster.cli.output import Output
from rankmuster.cli.programs import load_programs, program_options
from rankmuster.cli.progress import Progress
from rankmuster.load import Loaded
from rankmuster.report import Report

UNREAD = 2  # some input was no program: first of all exit codes


@click.command()
@click.argument("programs", nargs=-1, metavar="PROGRAM...")
@program_options
@click.option("--same", is_flag=True, help="Demand equal programs, also where nobody meets.")
@click.option("--strict", is_flag=True, help="Let warnings fail the check as well.")
@click.option("--cluster", metavar="NAME", help="Place the groups: trn2.48xlarge:4, generic:8x8.")
@click.option("--all-signatures", is_flag=True, help="Sign every device of a large world.")
def check(
    programs: tuple[str, ...],
    *,
    same: bool,
    strict: bool,
    cluster: str | None,
    all_signatures: bool,
    **said: Any,
) -> int:
    """Compare the programs of all processes and report what differs.

    PROGRAM is a file, a folder, a pattern with {rank} (the process number) or - for standard
    input; .gz is read. One file is taken to run on every device. A folder of XLA dumps belongs to
    one process, and like-named modules are compared across the folders of several.

    Exit code: 0 agree, 1 an error was found, 3 undecided, 2 wrong use or unreadable input.
    """
    on = on_cluster(cluster)
    start = time.perf_counter()
    modules = load_programs(programs, said)
    read_s = time.perf_counter() - start
    with Progress("comparing programs") as progress:
        reports = []
        for loaded in modules:
            began = time.perf_counter()
            report = run_check(
                loaded.copies,
                loaded.world,
                findings=loaded.findings,
                absent=loaded.absent,
                same=same,
                all_signatures=all_signatures,
                **on,
            )
            compared_s = time.perf_counter() - began
            timings = {"read": read_s, "compare": compared_s, "total": read_s + compared_s}
            reports.append(report.adding(timings=timings))
            progress.update(len(reports), len(modules))
    show(modules, reports)
    return exit_code(modules, reports, strict=strict)


def on_cluster(name: str | None) -> dict[str, Any]:
    """What --cluster says, for `check`: nothing without it, so that no chips are imported."""
    if name is None:
        return {}
    from rankmuster.cli.cluster_name import ClusterName, settings

    cluster = ClusterName().convert(name, None, click.get_current_context())
    return {"cluster": cluster, "settings": settings()}


def show(modules: Sequence[Loaded], reports: Sequence[Report]) -> None:
    """Print the one report, or a line for each module and what is wrong in those that fail."""
    output = Output.current()
    if len(reports) == 1:
        output.report(reports[0])
    elif output.is_json:
        output.json(
            {
                "schema": "rankmuster.reports/1",
                "modules": {
                    loaded.module: report.to_dict()
                    for loaded, report in zip(modules, reports, strict=True)
                },
            }
        )
    else:
        output.module_lines([loaded.module for loaded in modules], reports)


def exit_code(modules: Sequence[Loaded], reports: Sequence[Report], *, strict: bool) -> int:
    """The first that applies over all modules: 2, 1, 3, 0.

    A dump folder holds many a small module without collectives. Beside one that was compared,
    such a module leaves nothing undecided.
    """
    if any(loaded.is_broken for loaded in modules):
        return UNREAD
    codes = [report.exit_code(strict=strict) for report in reports]
    if len(reports) > 1 and any(report.verdict == "agree" for report in reports):
        codes = [
            code
            for code, loaded, report in zip(codes, modules, reports, strict=True)
            if code == 1 or not is_idle(loaded, report)
        ]
    return next((code for code in (1, 3) if code in codes), 0)


def is_idle(loaded: Loaded, report: Report) -> bool:
    """Whether all there is to say of a module is that no collectives are left in it.

    Before partitioning there are none yet, and that says nothing.
    """
    codes = {each.code for each in report.findings} - {"RM704", "RM314"}
    return codes == {"RM312"} and all("after_opt" in copy.path for copy in loaded.copies)
