"""Reports as people read them. Knows reports and programs, never where they came from."""

from __future__ import annotations
