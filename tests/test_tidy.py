"""The walls of the architecture: imports point down, and the pure layers touch no I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "rankmuster"

# Lowest first: a module may import from the rows above its own in this list, and from its own
# package. Everything up to PURE_ROWS is pure: no clock, no socket, no file, no environment.
ROWS = [
    {"status", "ranks", "rules", "version", "messages"},
    {"errors", "explanations"},
    {"finding", "group", "world", "environment", "hosts", "address"},
    {"program"},
    {"partition", "protocol", "arch", "formats"},
    {"resolve", "clusters", "abi"},
    {"signature", "screen"},
    {"copies", "deadlock", "algorithm", "wording"},
    {"pairing", "verify", "placement", "node"},
    {"compare"},
    {"report"},
    {"checking"},  # not "check": that is the function `rankmuster.check`, which a module would hide
    {"pulse", "seating"},
    {"census"},
    {"root"},
    {"streams"},
    {"background"},
    {"transport"},
    {"launch", "load", "peers"},
    {"doorway"},
    {"switchboard"},
    {"bringup", "api", "local_barrier"},
    {"communicator"},
    {"libnccom"},
    {"pool"},
    {"worlds"},
    {"session", "nrt"},
    {"testing", "render", "integrations"},
    {"doctor"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
PURE_ROWS = 15
LEVEL = {name: level for level, names in enumerate(ROWS) for name in names}
PURE = {name for names in ROWS[:PURE_ROWS] for name in names}
IO_MODULES = {
    *("asyncio", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select"),
    *("selectors", "socket", "subprocess", "threading", "time"),
}


def part_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports out in full"
            assert node.module is not None
            if node.module == "rankmuster":
                yield from (f"rankmuster.{alias.name}" for alias in node.names)
            else:
                yield node.module


def may_import(here: str, module: str) -> bool:
    there = module.split(".")[1] if "." in module else "__init__"
    there = there if there in LEVEL else "__init__"  # a name re-exported by the package itself
    return here == there or LEVEL[there] < LEVEL[here]


def test_every_module_has_a_row() -> None:
    """A new module is given its place in the architecture on purpose."""
    assert {part_of(path) for path in SRC.rglob("*.py")} <= set(LEVEL)


def test_imports_point_down() -> None:
    """No module imports a row below its own, and the pure ones touch no I/O."""
    wrong = []
    for path in sorted(SRC.rglob("*.py")):
        here = part_of(path)
        for module in imported(ast.parse(path.read_text())):
            top = module.partition(".")[0]
            if top == "rankmuster" and not may_import(here, module):
                wrong.append(f"{path.relative_to(SRC)}: {here} must not import {module}")
            if here in PURE and top in IO_MODULES:
                wrong.append(
                    f"{path.relative_to(SRC)}: {here} is pure and must not import {module}"
                )
    assert not wrong, "\n".join(wrong)
