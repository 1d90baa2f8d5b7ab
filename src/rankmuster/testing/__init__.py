"""Shipped for whoever tests with or against this library."""

from __future__ import annotations

from rankmuster.testing.contract import check_transport as check_transport
from rankmuster.testing.simulate import replay as replay
from rankmuster.testing.simulate import simulate as simulate
from rankmuster.testing.simulation import Deadlock as Deadlock
from rankmuster.testing.simulation import Simulation as Simulation
