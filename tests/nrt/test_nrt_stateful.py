"""Calls in any order against a small model: statuses as documented, nothing leaks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from nrt_worlds import Agreeable, node

from rankmuster.nrt import Model, Out, Runtime
from rankmuster.testing.build import all_reduce, program
from rankmuster.worlds.global_comm import GlobalComm

CORES, CONTEXTS, SIZES = st.integers(0, 1), st.sampled_from([0, 1]), st.sampled_from([2, 3])
PROGRAMS = {
    size: program(
        all_reduce(7), groups=[[list(range(size))], [[0], list(range(1, size))]], world_size=size,
        world_source="file",
    )
    for size in (2, 3)
}  # fmt: skip


class Calls(RuleBasedStateMachine):
    """Every device of a world but ours agrees; ours is the last, whatever the world's size."""

    @initialize()
    def begin(self) -> None:
        self.nccom = Agreeable()
        self.runtime = Runtime(environ={}, nccom=self.nccom, node=node(), deadline_s=5.0)
        self.ready: int = 13  # what a call says before anything else; 0 once initialised
        self.worlds: dict[tuple[int, int], int] = {}  # (core, context) -> size
        self.models: list[tuple[Model, int]] = []
        self.seen: list[GlobalComm] = []

    @rule()
    def init(self) -> None:
        expected = 14 if self.ready == 14 else 0
        assert self.runtime.nrt_init(0, "", "") == expected
        self.ready = expected or 0

    @rule(core=CORES, context=CONTEXTS, size=SIZES)
    def build(self, core: int, context: int, size: int) -> None:
        call = (self.runtime.nrt_build_global_comm, self.runtime.nrt_cc_global_comm_init)[context]
        same = self.worlds.get((core, context), size) == size
        assert call(core, size - 1, size) == (self.ready or (0 if same else 2))
        if not self.ready and same:
            self.worlds[core, context] = size

    @rule(core=CORES, size=SIZES)
    def load(self, core: int, size: int) -> None:
        out: Out[Model] = Out()
        status = self.runtime.nrt_load_collectives(PROGRAMS[size], 0, core, -1, size - 1, size, out)
        # A smaller program fits a bootstrapped world, but does not name the world's last device.
        fits = self.worlds.get((core, 0), size) == size
        assert status == (self.ready or (0 if fits else 2))
        if status == 0:
            self.worlds[core, 0] = size
            assert out.value is not None
            self.models.append((out.value, core))

    @rule(data=st.data())
    def unload(self, data: st.DataObject) -> None:
        if not self.models:
            assert self.runtime.nrt_unload(Any) == (self.ready or 3)
            return
        model, _ = self.models.pop(data.draw(st.integers(0, len(self.models) - 1)))
        assert [self.runtime.nrt_unload(model) for _ in range(2)] == [0, 3]

    @rule()
    def close(self) -> None:
        assert self.runtime.nrt_close() == self.ready
        if self.ready == 0:
            self.ready, self.worlds, self.models = 14, {}, []

    @invariant()
    def nothing_leaks(self) -> None:
        """Worlds, memory maps, nodes and references are exactly those that somebody holds."""
        if not hasattr(self, "runtime") or self.runtime.state.value == 13:
            return
        worlds = list(self.runtime.registry)
        held = {(w.identity.nec_dev_id, w.identity.ctx_id): w.identity.g_device_cnt for w in worlds}
        assert held == self.worlds
        self.seen += [world for world in worlds if world not in self.seen]
        assert [w for w in self.seen if not w.inc_recv_sem_values_buffer.closed] == [
            w for w in self.seen if w in worlds
        ]
        shares = Counter(
            id(comm.nccl_comm_node) for model, _ in self.models for comm in model.comms.values()
        )
        pooled = [pooled for world in worlds for pooled in world.pool]
        assert {id(each): each.refcnt for each in pooled} == dict(shares)
        assert len(self.nccom.open) == len(worlds) + len(pooled)

    def teardown(self) -> None:
        if hasattr(self, "runtime"):
            self.runtime.nrt_close()
            assert self.nccom.open == []


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
