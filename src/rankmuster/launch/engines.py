"""Which library carries a bring-up that we did not launch: MPI, a torch store, or our own TCP.

An argument beats RANKMUSTER_ENGINE, which beats what can be seen of the launcher. Libraries are
imported when they are chosen, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from rankmuster.errors import did_you_mean
from rankmuster.launch.base import NO_OPTIONS, BrokenLaunch, LaunchOptions, Place
from rankmuster.launch.names import DEVICES, LAUNCHER, WORLD_SIZE
from rankmuster.ranks import fold
from rankmuster.transport.base import Deadline, Transport

AUTO, TCP, MPI, TORCH = "auto", "tcp", "mpi", "torch"
ENGINES = (AUTO, TCP, MPI, TORCH)
ENGINE = "RANKMUSTER_ENGINE"

# What mpiexec of MPICH (and srun --mpi=pmi2), of Open MPI, and srun --mpi=pmix say: this process's
# number in its job. srun without --mpi says nothing of MPI, and is told by --engine mpi.
MPI_RANKS = frozenset({"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
HYDRA = "MPI_LOCALRANKID"  # set by MPICH's own mpiexec
LOCAL_RANKS = (HYDRA, "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")


def choose(
    name: str,
    environ: Mapping[str, str],
    options: LaunchOptions = NO_OPTIONS,
    *,
    followed: bool = False,
) -> str:
    """The engine that *name*, or else the environment, asks for, and never AUTO.

    Who says where the root is, or how to prove oneself there, means TCP. *followed* says that a
    command comes after the muster, which may use the library too. Raises `BrokenLaunch` for an
    unknown name.
    """
    if name == AUTO and (options.root or options.launcher or options.secret_file):
        return TCP
    if name == AUTO:
        name = environ.get(ENGINE, AUTO)
    if name not in ENGINES:
        raise BrokenLaunch(f"there is no engine {name!r}", fix=did_you_mean(name, ENGINES))
    return _detect(environ, followed=followed) if name == AUTO else name


def _detect(environ: Mapping[str, str], *, followed: bool) -> str:
    """The innermost launcher knows best: a muster before us, torchrun, mpiexec."""
    from rankmuster.transport import mpi, torch_store

    if LAUNCHER in environ:
        return TCP
    if torch_store.has_agent_store(environ) and find_spec("torch"):
        return TORCH
    if mpi.is_initialised():
        return MPI
    seen = not MPI_RANKS.isdisjoint(environ) and find_spec("mpi4py")
    # After a process that used MPI, Open MPI 5 does not let the next program leave; MPICH does.
    return MPI if seen and (HYDRA in environ or not followed) else TCP


def connect(engine: str, environ: Mapping[str, str], deadline: Deadline) -> Transport:
    """Our part in what *engine* (MPI or TORCH) carries.

    Raises `MissingPackage` where its library is not installed, `NoStore` where torchrun did not
    start us. MPI may wait for all processes of the job, until *deadline*.
    """
    if engine == MPI:
        from rankmuster.transport.mpi import MpiTransport

        return MpiTransport(deadline=deadline)
    from rankmuster.transport.torch_store import StoreTransport

    return StoreTransport.of_torchrun(environ, deadline)


def hand_on(engine: str, place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for a command that follows this process, so that it may muster in its turn."""
    ours = {
        ENGINE: engine,
        DEVICES: fold(place.devices),
        WORLD_SIZE: str(place.world_size),
    }
    usual = {
        "RANK": str(place.process),
        "LOCAL_RANK": next((environ[name] for name in LOCAL_RANKS if name in environ), ""),
        "WORLD_SIZE": str(place.processes),
        "LOCAL_WORLD_SIZE": next((environ[name] for name in LOCAL_SIZES if name in environ), ""),
    }
    return {name: value for name, value in usual.items() if value} | dict(environ) | ours
