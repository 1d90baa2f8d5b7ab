"""Which physical cores of a Trn2 chip the logical ones are (facts §3.3, the public driver's table).

The order depends on where the chip stands in the grid, and in a pod on which node.
"""

from __future__ import annotations

SIDE = 4
FLIPPED_NODES = frozenset({1, 3})  # the driver's code; a comment of its own says 1 and 2
_BY_PARITY = {
    (0, 0): (4, 5, 6, 7, 2, 3, 0, 1),
    (0, 1): (2, 3, 0, 1, 4, 5, 6, 7),
    (1, 0): (0, 1, 2, 3, 6, 7, 4, 5),
    (1, 1): (6, 7, 4, 5, 0, 1, 2, 3),
}


def physical_core(chip: int, logical: int, *, flipped: bool = False) -> int:
    """The physical core behind the *logical* one of a chip; *flipped* reverses the four pairs."""
    row, column = divmod(chip, SIDE)
    order = _BY_PARITY[row % 2, column % 2]
    return order[logical ^ 6 if flipped else logical]
