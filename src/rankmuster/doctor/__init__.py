"""What in this machine will hurt a bring-up, before it does: checks that change nothing."""

from __future__ import annotations
