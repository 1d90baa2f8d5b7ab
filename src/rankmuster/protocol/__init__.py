"""The bring-up protocols, without I/O: what each rank sends and waits for, and nothing else."""

from __future__ import annotations
