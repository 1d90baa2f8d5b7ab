"""Started by hand or by an orchestrator that only sets variables: Neuron PJRT, JAX, torch's env://.

What a user's script exports is also how mistakes are made, so these variables are compared with
what the launcher itself says (`declared`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from rankmuster.address import BadAddress, split_address
from rankmuster.launch.base import BrokenLaunch, Launcher
from rankmuster.launch.ports import beside

NEURON_DEVICES = "NEURON_PJRT_PROCESSES_NUM_DEVICES"  # 64,64,64,64


class Beside(Launcher):
    """Where the job's own root is said, and ours is beside it: another port of that host."""

    @classmethod
    def own_root(cls, environ: Mapping[str, str]) -> str:
        """The address of the job's own root. Raises `BrokenLaunch`."""
        raise NotImplementedError

    @classmethod
    def job(cls, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The port of the job's own root: its host may be called "localhost" there."""
        try:
            _, port = split_address(cls.own_root(environ))
        except (BrokenLaunch, BadAddress):  # `root` says so, if it is asked
            return ()
        return (str(port),)

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """Beside the job's own."""
        return beside(cls.own_root(environ))


class NeuronPjrt(Beside):
    """The variables of Neuron's PJRT plug-in (facts §6.1)."""

    name: ClassVar[str] = "neuron"
    PROCESS = "NEURON_PJRT_PROCESS_INDEX"
    PROCESSES = NEURON_DEVICES

    @classmethod
    def processes(cls, environ: Mapping[str, str]) -> int:
        """One entry for each process."""
        return len(devices_listed(environ))

    @classmethod
    def own_root(cls, environ: Mapping[str, str]) -> str:
        """The runtime's, 10.0.0.1:46820 or [fd00::1]:46820."""
        return _needed(environ, "NEURON_RT_ROOT_COMM_ID")


class Jax(Beside):
    """What `jax.distributed.initialize` reads."""

    name: ClassVar[str] = "jax"
    PROCESS = "JAX_PROCESS_ID"
    PROCESSES = "JAX_NUM_PROCESSES"

    @classmethod
    def own_root(cls, environ: Mapping[str, str]) -> str:
        """The coordinator's, 10.0.0.1:1234."""
        return _needed(environ, "JAX_COORDINATOR_ADDRESS")


class TorchVariables(Beside):
    """torch's env:// without torchrun, as Kubernetes operators and scripts set it."""

    name: ClassVar[str] = "env"
    PROCESS = "RANK"
    PROCESSES = "WORLD_SIZE"
    LOCAL_PROCESS = "LOCAL_RANK"

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """RANK alone is said by many; with an address it is meant."""
        return {cls.PROCESS, cls.PROCESSES, "MASTER_ADDR"} <= environ.keys()

    @classmethod
    def own_root(cls, environ: Mapping[str, str]) -> str:
        """That of the store which rank 0 will open on MASTER_PORT."""
        return store_address(environ)


class Said(NamedTuple):
    """What one source says: "SLURM_PROCID", 3."""

    source: str
    value: int


def declared(environ: Mapping[str, str]) -> dict[str, list[Said]]:
    """Every process number, and every count of processes, that these variables hold."""
    kinds = (NeuronPjrt, Jax, TorchVariables)
    return {
        "process number": list(_said(environ, [kind.PROCESS for kind in kinds])),
        "number of processes": [
            *_said(environ, [Jax.PROCESSES, TorchVariables.PROCESSES]),
            *(
                [Said(NEURON_DEVICES, NeuronPjrt.processes(environ))]
                if NEURON_DEVICES in environ
                else []
            ),
        ],
    }


def devices_listed(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The devices of each process in Neuron's list. Raises `BrokenLaunch`."""
    text = environ[NEURON_DEVICES]
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part[:9]) > 0 for part in parts):
        raise BrokenLaunch(f"{NEURON_DEVICES}={text!r} is no list of counts", fix="write 2,2,4")
    return tuple(map(int, parts))


def store_address(environ: Mapping[str, str]) -> str:
    """Where torch's store is: MASTER_ADDR=10.0.0.1 or fd00::1, MASTER_PORT=29500."""
    host, port = _needed(environ, "MASTER_ADDR"), environ.get("MASTER_PORT", "29500")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _needed(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise BrokenLaunch(f"{name} is not set", fix="set it, or say --root host:port")
    return environ[name]


def _said(environ: Mapping[str, str], names: list[str]) -> Iterator[Said]:
    for name in names:
        if environ.get(name, "").isascii() and environ.get(name, "").isdigit():
            yield Said(name, int(environ[name]))
