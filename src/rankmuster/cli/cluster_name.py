"""The `--cluster` value: a name of the catalogue, a generic cluster, or files of neuron-ls."""

from __future__ import annotations

import os
from typing import Any

import click

from rankmuster.clusters import Cluster, parse
from rankmuster.deadlock import Settings
from rankmuster.errors import MusterError
from rankmuster.load.listing import read_listing


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


def settings() -> Settings:
    """The runtime's debug switches in this process's environment."""
    return Settings.of(os.environ)
