"""The reader of HLO text: bytes as XLA prints them in, a `Program` out.

Reads what decides about communication and skips the rest; opens no file. Source of all rules:
XLA's parser and verifier, as run and as read.
"""

from __future__ import annotations

import re

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.reader import Reader
from rankmuster.formats.hlo.scanner import Text, beginning
from rankmuster.program import Program

_MODULE = re.compile(rb"HloModule\s")


def sniff(data: Text) -> bool:
    """Whether *data* begins, after blanks and comments, as an HLO module does."""
    return _MODULE.match(data, beginning(data)) is not None


def read(
    data: Text,
    *,
    where: str = "",
    replicas: int | None = None,
    partitions: int | None = None,
    world: int | None = None,
) -> Program:
    """The collective program that one HLO module describes, on global device ids.

    *replicas* and *partitions* go before the header's counts; what neither states is inferred
    from the ids in use, to fill *world* devices where that is given (RM704). Raises
    InvalidProgram, with line and column, for text that is no whole module; what is wrong with its
    collectives is in `Program.findings`.
    """
    try:
        return Reader(data, replicas, partitions, world).program()
    except InvalidProgram as error:
        raise error.at(where) from error.__cause__
