"""The version that processes of one job must share."""

from __future__ import annotations

VERSION = "0.1.0"
