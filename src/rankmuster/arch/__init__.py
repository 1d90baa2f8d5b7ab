"""Silicon: ops tables, virtual layout, device maps, fabrics, instances and pods (S4).

Knows nothing of programs. Nothing above this package names a chip generation.
"""

from __future__ import annotations

from rankmuster.arch.chip import Chip as Chip
from rankmuster.arch.chip import Generation as Generation
from rankmuster.arch.chip import chip_for as chip_for
