"""Clusters: so many servers of one kind, by name, by listing, and where each device lies.

Pure: names, numbers and listings in, places out. (The package is called `clusters` so that
`rankmuster.cluster` can be the function.)
"""

from __future__ import annotations

from rankmuster.clusters.naming import cluster as cluster
from rankmuster.clusters.naming import parse as parse
from rankmuster.clusters.nodes import Cluster as Cluster
from rankmuster.clusters.nodes import Place as Place
