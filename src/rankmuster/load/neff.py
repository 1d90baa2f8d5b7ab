"""What lies around a NEFF on disk: its files where it is unpacked, and the ops beside it.

`model.neff.json` beside `model.neff`, or `model.json` beside the unpacked folder `model`, is a
JSON program with the same sets; it supplies the ops, which a NEFF does not record.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from rankmuster.errors import InvalidProgram
from rankmuster.load.files import STDIN, contents, shown, translated
from rankmuster.program import Program

ENTRY, BESIDE = "neff.json", ".json"


def is_unpacked(folder: str) -> bool:
    """Whether *folder* holds a NEFF that somebody has unpacked."""
    return os.path.isfile(os.path.join(folder, ENTRY))  # noqa: PTH113, PTH118 paths as typed


def beside(path: str) -> str:
    """Where the ops of the NEFF *path* would be."""
    return path.rstrip("/").removesuffix(".gz") + BESIDE


def companions(paths: Collection[str]) -> set[str]:
    """Those of *paths* that supply the ops of a NEFF among them."""
    neffs = (path for path in paths if path.endswith((".neff", ".neff.gz")))
    return {beside(path) for path in neffs}.intersection(paths)


def unpacked(folder: str, world: int | None) -> Program:
    """The NEFF in *folder*. Raises `InvalidProgram` and `UnreadableInput`."""
    from rankmuster.formats import neff

    root = os.path.realpath(folder)

    def fetch(name: str) -> bytes | None:
        """One of its files; a link that leads out of the folder is refused."""
        path = os.path.realpath(os.path.join(root, name))  # noqa: PTH118 paths stay as typed
        if os.path.commonpath([root, path]) != root:
            raise InvalidProgram(f"{name!r} is a link out of the folder", where=shown(folder))
        if not os.path.isfile(path):  # noqa: PTH113 paths stay as typed
            return None
        with contents(path) as data:
            if len(data) > neff.JSON_BYTES_MAX:
                what = f"{name!r} has {len(data)} bytes, more than {neff.JSON_BYTES_MAX}"
                raise InvalidProgram(what, where=shown(folder))
            return bytes(data)

    with translated(folder):
        return neff.read_unpacked(fetch, where=shown(folder), world=world)


def supplied(path: str, program: Program) -> Program:
    """*program*, which was read from *path*: a NEFF with the ops beside it, else itself."""
    ops = beside(path)
    if program.format != "neff" or path == STDIN or not os.path.isfile(ops):  # noqa: PTH113 as typed
        return program
    from rankmuster.formats import json_program, neff

    with contents(ops) as data:
        return neff.with_ops(program, json_program.read(data, where=shown(ops)))
