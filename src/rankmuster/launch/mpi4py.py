"""Started by any MPI, asked through mpi4py: only for who asks for it, for it initialises MPI."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

from rankmuster.errors import DeadlineExceeded, MissingPackage
from rankmuster.launch.base import Launcher
from rankmuster.transport.base import Deadline

ADDRESS_BYTES = 300


class Mpi4py(Launcher):
    """`--launcher mpi4py`: COMM_WORLD itself says who we are, and tells where the root listens."""

    name: ClassVar[str] = "mpi4py"
    PROCESS, PROCESSES = "MPI.COMM_WORLD.rank", "MPI.COMM_WORLD.size"

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """Never by itself: importing mpi4py would initialise MPI behind the job's back."""
        del environ
        return False

    @classmethod
    def process(cls, environ: Mapping[str, str]) -> int:
        """Our rank."""
        del environ
        return int(_mpi().COMM_WORLD.Get_rank())

    @classmethod
    def processes(cls, environ: Mapping[str, str]) -> int:
        """The size of COMM_WORLD."""
        del environ
        return int(_mpi().COMM_WORLD.Get_size())

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """`share` tells."""
        del environ
        return ""

    @classmethod
    def share(cls, environ: Mapping[str, str], root: str | None, deadline: Deadline) -> str:
        """Broadcast the address from rank 0. Raises `DeadlineExceeded`."""
        del environ
        mpi = _mpi()
        text = bytearray((root or "").encode().ljust(ADDRESS_BYTES))
        request = mpi.COMM_WORLD.Ibcast([text, mpi.BYTE], root=0)
        while not request.Test():
            if deadline.passed:
                raise DeadlineExceeded("MPI did not tell where the root listens")
            time.sleep(0.001)
        return text.decode().strip()


def _mpi() -> Any:
    try:
        return import_module("mpi4py.MPI")
    except ImportError as error:
        raise MissingPackage(
            "the mpi4py launcher needs mpi4py and an MPI", fix="pip install 'rankmuster[mpi]'"
        ) from error
