"""Finding out where this process stands: the launchers that can say so, in order."""

from __future__ import annotations

from collections.abc import Mapping

from rankmuster.launch.base import Place
from rankmuster.launch.local import LocalLauncher, attach


def place(environ: Mapping[str, str]) -> Place | None:
    """This process's place by whatever launched it, None where nothing did."""
    return attach(environ) if LocalLauncher.is_present(environ) else None
