"""Two projections of a program: `libnrt`, the seeds' MD5, and `canonical`, which decides."""

from __future__ import annotations

from rankmuster.signature.digest import Digest as Digest
from rankmuster.signature.libnrt import LibnrtSignatures as LibnrtSignatures
from rankmuster.signature.libnrt import sign as sign
