"""Started by `srun`, as a task of a Slurm job step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from rankmuster.address import join_address
from rankmuster.launch.base import BrokenLaunch, Launcher
from rankmuster.launch.ports import derived_port


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
        """Task 0 runs on the first node of the step, whatever the distribution of the others."""
        # Steps of one job may run side by side on a node.
        port = derived_port(f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}")
        if environ.get("SLURM_STEP_NUM_NODES") == "1":
            return join_address(("127.0.0.1", port))
        nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
        return join_address((first_host(nodes), port))

    @classmethod
    def job_name(cls, environ: Mapping[str, str]) -> str:
        """One attempt of one step, as a file's name: slurm-trn-4711-0-1."""
        parts = ["slurm", *(environ.get(name, "0") for name in (*cls.JOB, cls.ATTEMPT))]
        return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", part) for part in parts)


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
