"""A report as text: the verdict in the first line, then what is wrong, then what was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankmuster.finding import Finding, Severity
from rankmuster.ranks import fold
from rankmuster.render.placement import add_placement
from rankmuster.render.table import Page
from rankmuster.render.words import count, groups, printable, seconds, value
from rankmuster.report import Report, answer
from rankmuster.rules import RULES
from rankmuster.wording import who

STYLES = {
    "agree": "bold green",
    "differ": "bold red",
    "invalid": "bold red",
    "undecided": "bold yellow",
    "error": "red",
    "warning": "yellow",
    "info": "cyan",
}
FINDINGS_SHOWN = 20
ROWS_SHOWN = 24
SIDES_SHOWN = 4
ABSENT = {"op": "nothing", "members": "no such group"}
"""What a side without a value in a field holds."""


def text(
    report: Report, *, color: bool = False, quiet: bool = False, width: int | None = None
) -> str:
    """*report* for people; *quiet* leaves only the verdict and the errors.

    *width* folds tables to a terminal's width; without it no line is folded.
    """
    page = Page(color=color, width=width)
    page.line((report.verdict, STYLES[report.verdict]), ": ", headline(report))
    shown = [each for each in report.findings if not quiet or each.severity is Severity.ERROR]
    add_findings(page, by_weight(shown)[:FINDINGS_SHOWN])
    if len(shown) > FINDINGS_SHOWN:
        page.line(f"… and {count(len(shown) - FINDINGS_SHOWN, 'more finding')} (--format json)")
    if not quiet:
        add_programs(page, report)
        add_groups(page, report)
        add_placement(page, report.placement)
        add_rest(page, report)
    return str(page)


def modules(names: Sequence[str], reports: Sequence[Report], *, color: bool = False) -> str:
    """One line for each module, with the errors of each below its line."""
    page = Page(color=color)
    for name, report in zip(names, reports, strict=True):
        page.line(
            (f"{report.verdict:9}", STYLES[report.verdict]),
            f" {printable(name)}: ",
            headline(report),
        )
        add_findings(page, report.errors[:FINDINGS_SHOWN])
    return str(page)


def headline(report: Report) -> str:
    """What stands behind the verdict, in one line."""
    size = count(report.world.size, "device")
    if report.verdict != "agree":
        cause = next(each for each in report.findings if answer(each) == report.verdict)
        more = len(report.errors) - (cause.severity is Severity.ERROR)
        also = f", and {count(more, 'more error')}" if more > 0 else ""
        return f"{title(cause)} ({cause.code}){whom(cause, report.world.size)}{also}"
    line = agreement(report, size)
    if report.not_recorded:
        line += f", in what is recorded (not recorded: {', '.join(report.not_recorded)})"
    if report.errors:
        line += f"; but {RULES[report.errors[0].code].title} ({report.errors[0].code})"
    return line


def title(cause: Finding) -> str:
    """What a finding is about; of those that may be about several fields, its own."""
    if cause.code == "RM305" and cause.field:
        return f"{cause.field.replace('_', ' ')} differ{'' if cause.field[-1] == 's' else 's'}"
    return RULES[cause.code].title


def whom(cause: Finding, world_size: int) -> str:
    """Whom a finding is about: those out of line, or all sides where none is in the majority."""
    sides = list(dict.fromkeys(each.ranks for each in cause.values if each.ranks))
    if len(sides) > 1 and not cause.majority:
        return f" between {' and '.join(map(who, sides[:SIDES_SHOWN]))} of {world_size}"
    return f" on {who(cause.ranks)} of {world_size}" if cause.ranks else ""


def agreement(report: Report, size: str) -> str:
    """How the programs agree: alike, each in its own way, or by there being only one."""
    digests = {row.digest for row in report.programs}
    if report.basis == "one program":
        return f"one program for {size}: agreement is assumed, not compared"
    if len(report.programs) == 1:
        return f"one program for {size}"
    if len(digests) == 1:
        return f"{count(len(report.programs), 'program')} for {size}, identical in all collectives"
    return f"{len(digests)} different programs for {size} agree wherever they meet"


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first, in the order they were found."""
    order = list(Severity)
    return sorted(findings, key=lambda each: order.index(each.severity))


def findings_text(
    findings: Iterable[Finding], *, labels: Sequence[str] = (), color: bool = False
) -> str:
    """*findings* for people; *labels* name the sides of their values instead of device ids."""
    page = Page(color=color)
    add_findings(page, by_weight(findings), labels)
    return str(page)


def add_findings(page: Page, findings: Iterable[Finding], labels: Sequence[str] = ()) -> None:
    """Findings one by one; the ops around only of the first, and each advice only once."""
    told: set[str] = set()
    around = True
    for found in findings:
        add_finding(page, found, labels)
        for line in found.context if around else ():
            page.line((printable(line), "dim"), indent=4)
        around = around and not found.context
        if found.fix and found.severity is not Severity.INFO and found.fix not in told:
            page.line(("fix: ", "bold"), printable(found.fix), indent=4)
            told.add(found.fix)


def add_finding(page: Page, found: Finding, labels: Sequence[str]) -> None:
    """One finding: what, and the values side by side."""
    severity = str(found.severity)
    page.line((f"{severity} {found.code}", STYLES[severity]), ": ", printable(found.message))
    if len(found.values) > 1:
        sides = labels or [who(each.ranks) for each in found.values]
        wide = max(map(len, sides))
        absent = "not recorded" if found.code == "RM706" else ABSENT.get(found.field or "", "none")
        for side, each in zip(sides, found.values, strict=True):
            expected = found.majority and each.ranks == found.others
            mark = "  (the majority)" if expected else ""
            page.line(f"{printable(side):{wide}}  {value(each.value, absent)}{mark}", indent=4)


def add_programs(page: Page, report: Report) -> None:
    """Who runs what: one row for each digest of the collectives, with the first of its files.

    Programs that differ in messages alone share one digest: sends and receives are no part of it.
    """
    if not report.programs:
        return
    rows = []
    for digest in dict.fromkeys(row.digest for row in report.programs):
        alike = [row for row in report.programs if row.digest == digest]
        paths = list(dict.fromkeys(row.path or "-" for row in alike))
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        held = {device for row in alike for device in row.devices}
        rows.append(
            (
                fold(held),
                alike[0].format,
                str(alike[0].ops),
                digest.hex(),
                printable(paths[0]) + more,
            )
        )
    page.line()
    page.table(("devices", "format", "ops", "collectives", "program"), rows[:ROWS_SHOWN])
    add_more(page, len(rows))


def add_groups(page: Page, report: Report) -> None:
    """The group sets, the first of their sub-groups in each."""
    if not report.groups:
        return
    rows = [
        (
            str(row.id),
            "pairs" if row.pairs is not None else "groups",
            str(row.ops),
            str(row.communicators),
            groups(row.members),
        )
        for row in report.groups
    ]
    page.line()
    page.table(("set", "kind", "ops", "communicators", "members"), rows[:ROWS_SHOWN])
    add_more(page, len(rows))


def add_more(page: Page, rows: int) -> None:
    """Say that a table was cut."""
    if rows > ROWS_SHOWN:
        page.line(f"… and {count(rows - ROWS_SHOWN, 'more row')} (--format json)")


def add_rest(page: Page, report: Report) -> None:
    """What the screens force, and how long each phase took, where there is anything to say."""
    screen = report.screen
    forced = [
        name.replace("_", " ")
        for name in ("use_2dev_proxy", "disable_rmv_dst_routing")
        if getattr(screen, name)
    ]
    if forced:
        page.line()
        page.line(f"screen: {', '.join(forced)} ({'; '.join(map(printable, screen.because))})")
    if report.timings:
        page.line()
        parts = (f"{phase} {seconds(time_s)}" for phase, time_s in report.timings.items())
        page.line((", ".join(parts), "dim"))
