"""Started by an MPI's `mpirun` or `mpiexec`: Open MPI, and MPICH and its kin (Intel MPI, Hydra)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from rankmuster.address import USELESS, join_address, reach_of
from rankmuster.launch.base import BrokenLaunch, Launcher
from rankmuster.launch.ports import derived_port


class OpenMpi(Launcher):
    """Open MPI's `mpirun`, with ORTE (to 4.x) or PRRTE (from 5.0)."""

    name: ClassVar[str] = "openmpi"
    PROCESS = "OMPI_COMM_WORLD_RANK"
    PROCESSES = "OMPI_COMM_WORLD_SIZE"
    LOCAL_PROCESS = "OMPI_COMM_WORLD_LOCAL_RANK"
    JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri")

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """This host where all run here; else the host of mpirun, which runs rank 0 by default."""
        port = derived_port(" ".join(environ.get(name, "") for name in cls.JOB))
        if environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == environ[cls.PROCESSES]:
            return join_address(("127.0.0.1", port))
        return join_address((mpirun_host(environ), port))


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
    def root(cls, environ: Mapping[str, str]) -> str:
        """This host where all run here; Hydra does not say where rank 0 runs."""
        if environ.get("MPI_LOCALNRANKS") != environ[cls.PROCESSES]:
            raise BrokenLaunch(
                "mpiexec does not say on which host rank 0 runs",
                fix="say --root host:port with the host of rank 0, or use --engine mpi",
            )
        # One mpiexec after the other on a host may reuse a port; two at once need --root.
        return join_address(("127.0.0.1", derived_port(f"mpich {environ.get('PMI_PORT', '')}")))


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
        fix="say --root host:port with the host of rank 0, or use --engine mpi",
    )
