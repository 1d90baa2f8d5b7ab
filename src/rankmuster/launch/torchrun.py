"""Started by `torchrun`, whose store tells everybody where our root listens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar

from rankmuster.address import join_address, split_address
from rankmuster.errors import DeadlineExceeded, MissingPackage
from rankmuster.launch.base import BrokenLaunch
from rankmuster.launch.ports import beside
from rankmuster.launch.variables import TorchVariables, store_address
from rankmuster.transport.base import Deadline

KEY = "rankmuster/root"


class Torchrun(TorchVariables):
    """torchrun, also inside a job of another launcher: it started us, so its numbers are ours."""

    name: ClassVar[str] = "torchrun"
    ATTEMPT = "TORCHELASTIC_RESTART_COUNT"

    @classmethod
    def is_present(cls, environ: Mapping[str, str]) -> bool:
        """Whether its agent left its mark."""
        return "TORCHELASTIC_RUN_ID" in environ and super().is_present(environ)

    @classmethod
    def job(cls, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The run's id, which is "none" unless it was said, and the port of its store."""
        return (environ.get("TORCHELASTIC_RUN_ID", ""), *super().job(environ))

    @classmethod
    def port(cls, environ: Mapping[str, str]) -> int:
        """Beside the store's."""
        return split_address(beside(store_address(environ)))[1]

    @classmethod
    def root(cls, environ: Mapping[str, str]) -> str:
        """On one host a port beside the store's; else where the store says."""
        if environ.get("LOCAL_WORLD_SIZE") == environ[cls.PROCESSES]:
            return join_address(("127.0.0.1", cls.port(environ)))
        # The agent's store runs before we do; any other would be opened by the job itself.
        return (
            "" if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else super().root(environ)
        )

    @classmethod
    def share(cls, environ: Mapping[str, str], root: str | None, deadline: Deadline) -> str:
        """Put the root's address into the agent's store, or wait for it there."""
        key = f"{KEY}/{environ.get(cls.ATTEMPT, '0')}"
        store = _store(store_address(environ), deadline)
        try:
            if root is not None:
                store.set(key, root)
                return root
            return bytes(store.get(key)).decode()
        except RuntimeError as error:  # torch's own errors of time and connection are of this kind
            raise DeadlineExceeded(
                f"torchrun's store at {store_address(environ)} did not say where the root listens: "
                f"{str(error).splitlines()[0]}"
            ) from error


def _store(address: str, deadline: Deadline) -> Any:
    try:
        distributed = import_module("torch.distributed")
    except ImportError as error:
        raise MissingPackage(
            "torchrun's store needs torch", fix="pip install torch, or say --root host:port"
        ) from error
    host, port = split_address(address)
    try:
        return distributed.TCPStore(
            host, port, is_master=False, timeout=timedelta(seconds=max(deadline.remaining(), 0.1))
        )
    except RuntimeError as error:
        raise BrokenLaunch(
            f"torchrun's store at {address} does not answer: {str(error).splitlines()[0]}",
            fix="say --root host:port",
        ) from error
