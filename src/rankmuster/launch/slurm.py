"""Started by `srun`, as a task of a Slurm job step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from rankmuster.address import join_address
from rankmuster.launch.base import BrokenLaunch, Launcher
from rankmuster.launch.ports import derived_port

SAY_ROOT = "say --root host:port with the host of task 0"
COMPONENT = re.compile(r"SLURM_JOB_NODELIST_(HET|PACK)_GROUP_[0-9]+")  # srun itself says PACK


class Slurm(Launcher):
    """`srun`. The script of `sbatch` itself is no task: there SLURM_STEP_ID is not set."""

    name: ClassVar[str] = "slurm"
    PROCESS = "SLURM_PROCID"
    PROCESSES = "SLURM_STEP_NUM_TASKS"
    LOCAL_PROCESS = "SLURM_LOCALID"
    JOB = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID")
    ATTEMPT = "SLURM_RESTART_COUNT"

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """Whether this is a task of a step."""
        return {"SLURM_JOB_ID", "SLURM_STEP_ID", cls.PROCESS, cls.PROCESSES} <= environ.keys()

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """On the node of task 0, or on the loopback of the only node."""
        # Steps of one job may run side by side on a node.
        port = derived_port(f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}")
        if environ.get("SLURM_STEP_NUM_NODES") == "1":
            return join_address(("127.0.0.1", port))
        host = node_of_task_0(environ)
        if environ[cls.PROCESS] == "0" and environ.get("SLURMD_NODENAME", host) != host:
            message = f"task 0 runs on {environ['SLURMD_NODENAME']}, not on {host}, the first node"
            raise BrokenLaunch(message, fix=SAY_ROOT)
        return join_address((host, port))

    @classmethod
    def job_name(cls, environ: Mapping[str, str]) -> str:
        """One attempt of one step, as a file's name: slurm-trn-4711-0-1."""
        parts = ["slurm", *(environ.get(name, "0") for name in (*cls.JOB, cls.ATTEMPT))]
        return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", part) for part in parts)


def node_of_task_0(environ: Mapping[str, str]) -> str:
    """The node that is served first. Raises `BrokenLaunch` where Slurm does not say which that is.

    It is the first of the step, whatever the distribution of the other tasks; of a step over
    several components of a heterogeneous job, the first of the first component:

    SLURM_STEP_NODELIST=trn[1-3] SLURM_JOB_NODELIST_HET_GROUP_0=trn3 ..._HET_GROUP_1=trn[1-2]
    """
    if environ.get("SLURM_DISTRIBUTION") == "arbitrary":
        raise BrokenLaunch("srun -m arbitrary does not say on which node task 0 runs", fix=SAY_ROOT)
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    components = [environ[name] for name in sorted(environ) if COMPONENT.fullmatch(name)]
    return first_host(nodes if nodes in components else next(iter(components), nodes))


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list. Raises `BrokenLaunch`.

    trn-7                        -> trn-7
    trn-[0012-0016,0020]         -> trn-0012
    trn[3,5-9],gpu[1-2]          -> trn3
    rack[0-1]node[08-15]-ib      -> rack0node08-ib
    """
    first = re.match(r"(?:[^,\[\]]|\[[0-9,-]+\])+", nodes)
    if first is None:
        raise BrokenLaunch(
            f"SLURM_STEP_NODELIST={nodes!r} names no host", fix="say --root host:port"
        )
    return re.sub(r"\[([0-9]+)[^\]]*\]", r"\1", first[0])
