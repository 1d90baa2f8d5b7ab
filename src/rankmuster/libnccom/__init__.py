"""The libnrt-libnccom boundary (S0): what the control plane asks of a collectives library."""

from __future__ import annotations
