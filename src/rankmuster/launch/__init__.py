"""Finding out where this process stands: the launchers that can say so, in order."""

from __future__ import annotations

from collections.abc import Mapping

from rankmuster.launch.base import Launcher, Place
from rankmuster.launch.local import LocalLauncher, attach

LAUNCHERS: tuple[type[Launcher], ...] = (LocalLauncher,)
"""Every launcher we know, the surest first."""


def detect(environ: Mapping[str, str]) -> type[Launcher] | None:
    """The launcher that started this process, None where nothing did."""
    return next((each for each in LAUNCHERS if each.is_present(environ)), None)


def place(environ: Mapping[str, str]) -> Place | None:
    """This process's place for its next muster, None where nothing launched it."""
    return attach(environ) if detect(environ) is LocalLauncher else None
