"""`rankmuster.read` takes what JAX returns, before and after compiling."""

from __future__ import annotations

import pytest

import rankmuster as rm

pytestmark = pytest.mark.engines


def test_lowered_and_compiled() -> None:
    """A Lowered, which prints StableHLO, is read by its HLO; a Compiled as it prints itself."""
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("x",))
    spec = jax.sharding.PartitionSpec("x")
    step = jax.shard_map(
        lambda x: jax.lax.psum(x, "x"),
        mesh=mesh,
        in_specs=spec,
        out_specs=jax.sharding.PartitionSpec(),
    )
    lowered = jax.jit(step).lower(jax.numpy.ones(8))
    (op,) = rm.read(lowered).walk()
    assert (op.kind, op.elements, op.dtype, op.reduce) == ("all_reduce", (8,), ("f32",), "add")
    assert rm.read(lowered.compile()).format == "hlo"
