"""Worlds: the global communicators of this process, one per core and context (S0 §1, §6)."""

from __future__ import annotations
