"""`rankmuster.read` takes what JAX returns, before and after compiling."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.engines

# In a process of its own: JAX starts threads, and other tests fork this one.
STEP = """
import json, jax, rankmuster as rm

mesh = jax.sharding.Mesh(jax.devices()[:1], ("x",))
spec, whole = jax.sharding.PartitionSpec("x"), jax.sharding.PartitionSpec()
step = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=spec, out_specs=whole)
lowered = jax.jit(step).lower(jax.numpy.ones(8))
(op,) = rm.read(lowered).walk()
print(json.dumps([op.kind, op.elements, op.dtype, op.reduce, rm.read(lowered.compile()).format]))
"""


def test_lowered_and_compiled() -> None:
    """A Lowered, which prints StableHLO, is read by its HLO; a Compiled as it prints itself."""
    command = [sys.executable, "-c", STEP]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == ["all_reduce", [8], ["f32"], "add", "hlo"]
