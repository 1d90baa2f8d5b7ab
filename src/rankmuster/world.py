"""The world that a program runs in: how many devices, and who said so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WorldSource = Literal["header", "file", "option", "launcher", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`size` devices with global ids 0 to size - 1 (`g_device_cnt`, S0 §1)."""

    size: int
    source: WorldSource

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a world holds at least one device, not {self.size}")
