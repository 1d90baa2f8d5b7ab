"""Started by an MPI's `mpirun` or `mpiexec`: Open MPI, and MPICH and its kin (Intel MPI, Hydra)."""

from __future__ import annotations

import functools
import os
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rankmuster.address import USELESS, join_address, reach_of
from rankmuster.launch.base import BrokenLaunch, Launcher
from rankmuster.launch.ports import derived_port
from rankmuster.transport.interfaces import interfaces

SAY_ROOT = "say --root host:port with the host of rank 0, or use --engine mpi"
PEER = struct.Struct("3i")  # struct ucred: pid, user, group


class OpenMpi(Launcher):
    """Open MPI's `mpirun`, with ORTE (to 4.x) or PRRTE (from 5.0)."""

    name: ClassVar[str] = "openmpi"
    PROCESS = "OMPI_COMM_WORLD_RANK"
    PROCESSES = "OMPI_COMM_WORLD_SIZE"
    LOCAL_PROCESS = "OMPI_COMM_WORLD_LOCAL_RANK"
    JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri")

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """This host where all run here; else that of mpirun, which has rank 0 if it has any."""
        port = derived_port(" ".join(environ.get(name, "") for name in cls.JOB))
        if environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == environ[cls.PROCESSES]:
            return join_address(("127.0.0.1", port))
        host = mpirun_host(environ)
        if environ[cls.PROCESS] == "0" and host not in {each.address for each in interfaces()}:
            raise BrokenLaunch(f"rank 0 does not run on {host}, where mpirun does", fix=SAY_ROOT)
        return join_address((host, port))


class Mpich(Launcher):
    """Hydra, the `mpiexec` of MPICH, Intel MPI and MVAPICH.

    `srun --mpi=pmi2` sets the PMI variables too; only Hydra counts the ranks of a host.
    """

    name: ClassVar[str] = "mpich"
    PROCESS = "PMI_RANK"
    PROCESSES = "PMI_SIZE"
    LOCAL_PROCESS = "MPI_LOCALRANKID"

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """Whether Hydra started us."""
        return {cls.PROCESS, cls.PROCESSES, cls.LOCAL_PROCESS} <= environ.keys()

    @classmethod
    def job(cls, environ: Mapping[str, str]) -> tuple[str, ...]:
        """This run of mpiexec, as far as a process of it can tell."""
        return (mpiexec_run(environ.get("PMI_FD", "")) or environ.get("PMI_PORT", ""),)

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """This host where all run here; Hydra does not say where rank 0 runs."""
        if environ.get("MPI_LOCALNRANKS") != environ[cls.PROCESSES]:
            raise BrokenLaunch(
                "mpiexec does not say on which host rank 0 runs",
                fix=SAY_ROOT,
            )
        return join_address(("127.0.0.1", derived_port(f"mpich {cls.job(environ)[0]}")))


@functools.cache  # MPI closes the line when it finalises
def mpiexec_run(line: str) -> str:
    """Pid and start of Hydra's proxy on this host, which holds the other end of PMI_FD; "" if none.

    Nothing else differs between two runs at once but what the proxy tells who asks; and it takes
    who asked, and ended without MPI_Finalize, for a failure.
    """
    try:
        with socket.socket(fileno=os.dup(int(line))) as end:
            pid, _, _ = PEER.unpack(
                end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
            )
        # 24924 (hydra_pmi_proxy) S 24923 ...: the 22nd field is when it started (proc(5))
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return f"{pid} {fields.rpartition(')')[2].split()[19]}"
    except (ValueError, OSError, AttributeError, IndexError):  # no line, or no Linux
        return ""


def mpirun_host(environ: Mapping[str, str]) -> str:
    """The host of mpirun, from what ORTE told its processes. Raises `BrokenLaunch`.

    1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
    1314521088.0;tcp6://[fe80::b9b:ac5d,2620:10d:c083::2]:43370
    """
    uri = environ.get("OMPI_MCA_orte_hnp_uri", "")
    listed = re.search(r"tcp6?://\[?([^\]/]+?)\]?:[0-9]+$", uri)
    hosts = listed[1].split(",") if listed else []
    for host in hosts:
        if reach_of(host) not in USELESS:
            return host
    raise BrokenLaunch(
        "mpirun does not say on which host rank 0 runs",
        fix=SAY_ROOT,
    )
