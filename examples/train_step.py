"""One training step that is data, sequence/tensor and pipeline parallel on eight devices.

It is small, and it is real: run it (`python examples/train_step.py`) and the loss falls. It knows
nothing of rankmuster; `dump.py` beside it writes down what XLA makes of it.

    mesh               data=2, pipe=2, tensor=2
    between stages     permute, in a scan over the ticks of the pipeline
    mixing positions   two all-to-alls: from shards of the sequence to shards of the model, and back
    two-layer network  all-gather of the sequence before it, reduce-scatter after it
    optimiser          reduce-scatter of gradients, all-reduce of their norm, all-gather of the sum
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

AXES = {"data": 2, "pipe": 2, "tensor": 2}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the model and of a batch; the last two are what the variants change."""

    rows: int = 4  # of one microbatch on one data shard
    microbatches: int = 4
    sequence: int = 8
    model: int = 16
    hidden: int = 32
    layers: int = 3  # in one stage
    rate: float = 0.05
    norm: Literal["l2", "max"] = "l2"  # what gradients are clipped by: another reduce op
    clip: Literal["shares", "bucket"] = "shares"  # before or after gathering: another order


class Weights(NamedTuple):
    """One stage's layers, each leaf stacked as (stage, layer, ...)."""

    mix: jax.Array
    up: jax.Array
    down: jax.Array


SPECS = Weights(
    mix=P("pipe", None, "tensor"),
    up=P("pipe", None, None, "tensor"),
    down=P("pipe", None, "tensor"),
)
ACTIVATIONS = P(None, "data", "tensor")  # (microbatch, row, position, feature)


def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
    """Mix positions, then features; x is this device's shard of the sequence."""
    wide = lax.all_to_all(x, "tensor", split_axis=2, concat_axis=1, tiled=True)
    mixed = jnp.einsum("st,btm->bsm", jnp.tril(weights.mix[0]), wide)
    x = x + lax.all_to_all(mixed, "tensor", split_axis=1, concat_axis=2, tiled=True)
    whole = lax.all_gather(x, "tensor", axis=1, tiled=True)
    partial_sums = jnp.tanh(whole @ weights.up) @ weights.down
    return x + lax.psum_scatter(partial_sums, "tensor", scatter_dimension=1, tiled=True), None


def forward(weights: Weights, inputs: jax.Array) -> jax.Array:
    """Push microbatches through the stages; the last stage's outputs come out in order."""
    stages = AXES["pipe"]
    stage = lax.axis_index("pipe")

    def tick(arrived: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, _ = lax.scan(layer, jnp.where(stage == 0, fresh, arrived), weights)
        return lax.ppermute(y, "pipe", [(s, s + 1) for s in range(stages - 1)]), y

    idle = jnp.zeros((stages - 1, *inputs.shape[1:]), inputs.dtype)
    ticks = jnp.concatenate([inputs, idle])
    nothing = lax.pcast(jnp.zeros_like(inputs[0]), "pipe", to="varying")
    _, outputs = lax.scan(tick, nothing, ticks)
    return outputs[stages - 1 :]


def local_loss(weights: Weights, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """This device's part of the mean squared error; only the last stage has one."""
    squared = jnp.mean((forward(weights, inputs) - targets) ** 2)
    last = lax.axis_index("pipe") == AXES["pipe"] - 1
    return jnp.where(last, squared, 0.0) / (AXES["data"] * AXES["tensor"])


def clipped(config: Config, gradient: jax.Array) -> jax.Array:
    """Sum one bucket of gradients over the data shards and bring it down to a length of one.

    Each data shard works on its share of the bucket, as ZeRO does.
    """
    share = lax.psum_scatter(gradient, "data", tiled=True)
    gather = partial(lax.all_gather, axis_name="data", tiled=True, to="invarying")
    if config.clip == "shares":
        return gather(share / length(config, share))
    bucket = gather(share)
    return bucket / length(config, share)


def length(config: Config, share: jax.Array) -> jax.Array:
    """How long a whole bucket is, at least one, from the shares of it."""
    if config.norm == "l2":
        size = jnp.sqrt(lax.psum(jnp.sum(share**2), "data"))
    else:
        size = lax.pmax(jnp.max(jnp.abs(share)), "data")
    return jnp.maximum(size, 1.0)


def step(
    config: Config, weights: Weights, inputs: jax.Array, targets: jax.Array
) -> tuple[Weights, jax.Array]:
    """One step on one device."""
    stage = jax.tree.map(lambda leaf: leaf[0], weights)
    per_shard = lax.pcast(stage, "data", to="varying")  # sum gradients below, not in the backward
    loss, gradients = jax.value_and_grad(local_loss)(per_shard, inputs, targets)
    bucket, unravel = ravel_pytree(gradients)
    change = unravel(clipped(config, bucket))
    updated = jax.tree.map(lambda w, g: (w - config.rate * g)[None], stage, change)
    return updated, lax.psum(loss, tuple(AXES))


def train_step(config: Config) -> Callable[..., tuple[Weights, jax.Array]]:
    """The jitted step over a mesh of eight devices."""
    automatic = (AxisType.Auto,) * len(AXES)  # jit places the arguments, as in_specs say
    mesh = jax.make_mesh(tuple(AXES.values()), tuple(AXES), axis_types=automatic)
    in_specs = (SPECS, ACTIVATIONS, ACTIVATIONS)
    return jax.jit(
        jax.shard_map(partial(step, config), mesh=mesh, in_specs=in_specs, out_specs=(SPECS, P()))
    )


def example_arguments(config: Config) -> tuple[Weights, jax.Array, jax.Array]:
    """Weights and one batch to learn, drawn from a fixed seed."""
    stages, rows = AXES["pipe"], config.rows * AXES["data"]
    shapes = Weights(
        mix=(stages, config.layers, AXES["tensor"], config.sequence, config.sequence),
        up=(stages, config.layers, config.model, config.hidden),
        down=(stages, config.layers, config.hidden, config.model),
    )
    keys = jax.random.split(jax.random.key(0), 5)
    weights = [0.1 * jax.random.normal(k, s) for k, s in zip(keys[:3], shapes, strict=True)]
    batch = (config.microbatches, rows, config.sequence, config.model)
    inputs, targets = (jax.random.normal(key, batch) for key in keys[3:])
    return Weights(*weights), inputs, targets


def main() -> None:
    """Train for a while and print the loss."""
    config = Config()
    run = train_step(config)
    weights, inputs, targets = example_arguments(config)
    for number in range(30):
        weights, loss = run(weights, inputs, targets)
        if number % 5 == 0:
            print(f"step {number:2}  loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
