"""Muster the ranks of a distributed job: who is missing, and whose program differs.

The public names are imported when they are first used, so that `import rankmuster` costs nothing.
"""

from __future__ import annotations

from rankmuster.version import VERSION

TYPE_CHECKING = False  # without the import of typing
if TYPE_CHECKING:
    from typing import Any

    from rankmuster.api import check as check
    from rankmuster.api import cluster as cluster
    from rankmuster.api import read as read
    from rankmuster.clusters import Cluster as Cluster
    from rankmuster.copies import ProgramCopy as ProgramCopy
    from rankmuster.errors import MusterError as MusterError
    from rankmuster.finding import Finding as Finding
    from rankmuster.program import Program as Program
    from rankmuster.report import Disagreement as Disagreement
    from rankmuster.report import Report as Report
    from rankmuster.session import muster as muster
    from rankmuster.world import World as World

__version__ = VERSION
__all__ = [
    "Cluster",
    "Disagreement",
    "Finding",
    "MusterError",
    "Program",
    "ProgramCopy",
    "Report",
    "World",
    "__version__",
    "check",
    "cluster",
    "muster",
    "read",
]

# Where each public name lives.
HOMES = {
    "Cluster": "clusters",
    "Disagreement": "report",
    "Finding": "finding",
    "MusterError": "errors",
    "Program": "program",
    "ProgramCopy": "copies",
    "Report": "report",
    "World": "world",
    "check": "api",
    "cluster": "api",
    "muster": "session",
    "read": "api",
}


def __getattr__(name: str) -> Any:
    """Import the public *name*."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"rankmuster.{HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, also those that were not used yet."""
    return sorted({*globals(), *HOMES})
