"""Finding out where this process stands: the launchers that can say so, in order."""

from __future__ import annotations

from collections.abc import Mapping

from rankmuster.errors import did_you_mean
from rankmuster.launch import names
from rankmuster.launch.base import NO_OPTIONS, BrokenLaunch, Launcher, LaunchOptions, Place
from rankmuster.launch.local import LocalLauncher, attach, listener_for_command
from rankmuster.launch.mpi import Mpich, OpenMpi
from rankmuster.launch.mpi4py import Mpi4py
from rankmuster.launch.place import launched, with_environment
from rankmuster.launch.secret import pipe_of
from rankmuster.launch.slurm import Slurm
from rankmuster.launch.torchrun import Torchrun
from rankmuster.launch.variables import Jax, NeuronPjrt, TorchVariables
from rankmuster.ranks import fold
from rankmuster.transport.base import Deadline

LAUNCHERS: tuple[type[Launcher], ...] = (
    *(LocalLauncher, Torchrun, OpenMpi, Mpich, Slurm),
    *(NeuronPjrt, Jax, TorchVariables),
    Mpi4py,
)
"""Every launcher we know: who started us comes before who started them, variables come last."""
OURS_ALONE = frozenset({names.SECRET, names.LIFELINE_FD, names.DEATHS_FD, names.LISTENER_FD})


def detect(environ: Mapping[str, str]) -> type[Launcher] | None:
    """The launcher that started this process, None where nothing did."""
    return next((each for each in LAUNCHERS if each.is_present(environ)), None)


def named(name: str) -> type[Launcher]:
    """The launcher of that name; a wrong one is answered by the nearest (`BrokenLaunch`)."""
    known = {each.name: each for each in LAUNCHERS}
    if name not in known:
        raise BrokenLaunch(f"no launcher {name!r}", fix=did_you_mean(name, known))
    return known[name]


def place(
    environ: Mapping[str, str],
    options: LaunchOptions = NO_OPTIONS,
    deadline: Deadline | None = None,
) -> Place | None:
    """This process's place for its next muster, None where nothing launched it.

    Raises `BrokenLaunch` for answers that are missing or cannot be, `BadSecret` where the secret
    is missing or known to others, and what a launcher's `share` raises.
    """
    options = with_environment(environ, options)
    if options.launcher == LocalLauncher.name:
        return attach(environ)  # which inherited more than anybody could say
    launcher = named(options.launcher) if options.launcher else detect(environ)
    if launcher is None and options.process is None:
        return None
    return launched(launcher, environ, options, deadline or Deadline.after(60.0))


def hand_on(environ: Mapping[str, str], place: Place) -> dict[str, str]:
    """The variables for a command that this process becomes at *place*, so that it may muster too.

    It gets a new secret, derived from ours, in a new pipe; the variables that programs look for
    are set where the launcher has not.
    """
    handed = {name: environ[name] for name in environ if name not in OURS_ALONE}
    ours = {
        names.LAUNCHER: place.launcher,
        names.ROOT: place.root,
        names.PROCESS: str(place.process),
        names.PROCESSES: str(place.processes),
        names.WORLD_SIZE: str(place.world_size),
        names.DEVICES: fold(place.devices),
        names.JOB: place.job.hex(),
        names.EPOCH: str(place.epoch + 1),
        names.SECRET_FD: str(pipe_of(place.secret)),
    }
    usual = {"RANK": str(place.process), "WORLD_SIZE": str(place.processes)}
    if place.launcher == LocalLauncher.name:  # it started us: its numbers are the ones
        ours |= listener_for_command(environ)
        local = {"LOCAL_RANK": usual["RANK"], "LOCAL_WORLD_SIZE": usual["WORLD_SIZE"]}
        return handed | {name: value for name, value in ours.items() if value} | usual | local
    local_process = named(place.launcher).local_process(environ) if place.launcher else None
    if local_process is not None:
        usual["LOCAL_RANK"] = str(local_process)
    return usual | handed | {name: value for name, value in ours.items() if value}
