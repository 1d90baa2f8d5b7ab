"""The `--cluster` value: a name of the catalogue, a generic cluster, or files of neuron-ls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rankmuster.clusters import Cluster, parse
from rankmuster.deadlock import Settings
from rankmuster.errors import MusterError
from rankmuster.formats.neuron_ls import LIMIT_BYTES


class ClusterName(click.ParamType[Cluster]):
    """A cluster as people write it: "trn2.48xlarge:4", "generic:8x8", "trn2u:8:pod=x2h"."""

    name = "cluster"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Cluster:
        """The cluster; a wrong name is answered with the nearest."""
        if isinstance(value, Cluster):
            return value
        try:
            return parse(value, read_listing)
        except MusterError as error:
            self.fail(str(error), param, ctx)
        except OSError as error:
            self.fail(f"{error.filename}: {error.strerror}", param, ctx)


def read_listing(path: str) -> bytes:
    """What a server's `neuron-ls -j` wrote; a byte more than the limit at most."""
    with Path(path).open("rb") as file:
        return file.read(LIMIT_BYTES + 1)


def settings() -> Settings:
    """The runtime's debug switches in this process's environment."""
    return Settings.of(os.environ)
