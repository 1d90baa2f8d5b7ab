"""Our reader against XLA's own parser: the same groups and pairs, over the corpus and generated.

jaxlib has no accessor for groups, so its serialised proto is decoded here, field by field. The
expansion to devices is written out independently of the reader's.
"""

from __future__ import annotations

import faulthandler
import os
import random
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo import read

pytestmark = pytest.mark.engines

COLLECTIVES = {
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-broadcast", "all-reduce-start", "all-gather-start"),
}
PERMUTES = {"collective-permute", "collective-permute-start"}
FLAGGED = {"all-reduce", "all-gather", "reduce-scatter"}


# A protobuf message as (field, value) pairs: ints for varints, bytes for the rest.
def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        if tag & 7 == 0:
            value, at = varint(message, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            length, at = varint(message, at)
            yield tag >> 3, message[at : at + length]
            at += length
        else:
            at += {1: 8, 5: 4}[tag & 7]


def varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value - (1 << 64) * (value >> 63), at


def every(message: bytes, number: int) -> list[Any]:
    return [value for field, value in fields(message) if field == number]


def ints(message: bytes, number: int) -> list[int]:
    found: list[int] = []
    for value in every(message, number):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = varint(value, at)
            found.append(one)
    return found


def iota(message: bytes) -> list[list[int]]:
    import numpy as np

    (groups,), (size,) = ints(message, 1), ints(message, 2)
    dims = ints(message, 3)
    order = ints(message, 4) or list(range(len(dims)))
    ids = np.arange(int(np.prod(dims))).reshape(dims).transpose(order)
    return ids.reshape(groups, size).tolist()


def mesh(message: bytes) -> list[list[int]]:
    import numpy as np

    (shape,) = every(message, 1)
    sizes = [(ints(axis, 2) or [1])[0] for axis in every(shape, 1)]
    ids = np.arange(int(np.prod(sizes)))
    if listed := ints(shape, 2):
        ids = np.array(listed)
    elif lists := every(shape, 3):
        dims = ints(lists[0], 1)
        ids = ids.reshape(dims).transpose(ints(lists[0], 2) or list(range(len(dims)))).ravel()
    refs = []
    cuts = [{1, n} for n in sizes]
    for ref in every(message, 2):
        axis = (ints(ref, 1) or [0])[0]
        sub = every(ref, 2)
        low = (ints(sub[0], 1) or [1])[0] if sub else 1
        high = low * (ints(sub[0], 2) or [1])[0] if sub else sizes[axis]
        cuts[axis] |= {low, high}
        refs.append((axis, low, high))
    pieces = []
    for axis, borders in enumerate(cuts):
        edges = sorted(borders)
        pieces += [(axis, a, b // a) for a, b in pairwise(edges)]
    wanted = [
        i
        for axis, low, high in refs
        for i, (of, edge, _) in enumerate(pieces)
        if of == axis and low <= edge < high
    ]
    rest = [i for i in range(len(pieces)) if i not in wanted]
    grid = ids.reshape([size for _, _, size in pieces]).transpose(rest + wanted)
    members = int(np.prod([pieces[i][2] for i in wanted]))
    return grid.reshape(-1, members).tolist()


def written_groups(instruction: bytes) -> list[list[int]]:
    if found := every(instruction, 93):
        return mesh(found[0])
    if found := every(instruction, 92):
        return iota(found[0])
    if found := every(instruction, 87):
        if listed := every(found[0], 1):
            return [ints(group, 1) for group in listed]
        return [group for inner in every(found[0], 2) for group in iota(inner)]
    return [ints(group, 1) for group in every(instruction, 49)]


def expanded(instruction: bytes, opcode: str, n_r: int, n_p: int) -> frozenset[tuple[int, ...]]:
    base = opcode.removesuffix("-start")
    channel = bool((ints(instruction, 26) or [0])[0])
    flat = bool((ints(instruction, 71) or [0])[0])
    groups = [group for group in written_groups(instruction) if group]
    if base in FLAGGED and flat:
        return frozenset(map(tuple, groups or [range(n_r * n_p)]))
    if base not in FLAGGED and channel:
        return frozenset(
            tuple(r * n_p + p for p in group)
            for group in groups or [range(n_p)]
            for r in range(n_r)
        )
    groups = groups or [list(range(n_r))]
    if channel:
        return frozenset(tuple(r * n_p + p for r in group for p in range(n_p)) for group in groups)
    return frozenset(tuple(r * n_p + p for r in group) for group in groups for p in range(n_p))


def pairs(instruction: bytes, n_r: int, n_p: int) -> tuple[tuple[int, int], ...]:
    channel = bool((ints(instruction, 26) or [0])[0])
    found = []
    for pair in every(instruction, 52):
        source, target = (ints(pair, 1) or [0])[0], (ints(pair, 2) or [0])[0]
        if channel:
            found += [(r * n_p + source, r * n_p + target) for r in range(n_r)]
        else:
            found += [(source * n_p + p, target * n_p + p) for p in range(n_p)]
    return tuple(sorted(found))


def parsed(text: str) -> bytes | None:
    """The proto that jaxlib makes of *text*, None where it refuses.

    In a child process, for its parser aborts on some of these.
    """
    assert "jax" not in sys.modules, "JAX warns at every fork after its import"
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # an abort prints pages of stack
        try:
            from jaxlib import _hlo

            proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
            with os.fdopen(send, "wb") as pipe:
                pipe.write(b"y" + proto)
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer[1:] if answer else None


def compare(text: str) -> bool:
    """Whether jaxlib accepts *text*; if so, our sets must be its sets."""
    proto = parsed(text)
    if proto is None:
        return False
    ours = read(text.encode())
    header = dict(re.findall(r"(replica_count|num_partitions)=(\d+)", text.partition("\n\n")[0]))
    n_p = int(header.get("num_partitions", 1))
    n_r = int(header.get("replica_count", 1))
    if ours.world_source == "inferred":
        # Without counts both sides must read the ids; ours are then in a world of its own size.
        ours = read(text.encode(), replicas=64, partitions=1)
        n_r, n_p = 64, 1
    groups, edges = set(), set()
    for computation in every(proto, 3):
        for instruction in every(computation, 2):
            opcode = every(instruction, 2)[0].decode()
            if opcode in COLLECTIVES:
                groups.add(expanded(instruction, opcode, n_r, n_p))
            elif opcode in PERMUTES:
                edges.add(pairs(instruction, n_r, n_p))
    assert {frozenset(s.members) for s in ours.replica_groups} == groups
    assert edges <= {s.sorted_pairs for s in ours.src_target_pairs}
    return True


def test_the_corpus_has_the_groups_that_jaxlib_reads(corpus: Path) -> None:
    """Every HLO file that jaxlib accepts reads without an error and with the same sets."""
    paths = sorted([*corpus.rglob("*.hlo"), *corpus.glob("jax/**/*optimizations.txt")])
    accepted = [path for path in paths if path.stat().st_size < 10**6 and compare(path.read_text())]
    assert len(accepted) > 150


def test_what_jaxlib_refuses_is_refused_or_newer(corpus: Path) -> None:
    """Files that jaxlib refuses are errors of ours too, but for dynamic roots."""
    paths = [*corpus.glob("xla_parser_cases/*"), *corpus.glob("xla_e2e_cases/*")]
    for path in paths:
        text = path.read_text()
        if parsed(text) is None and "has_dynamic_root" not in text:
            with pytest.raises(InvalidProgram):
                read(text.encode())


def generated(rng: random.Random) -> str:
    """A module of random collectives over sixteen devices, in every spelling."""
    n_r, n_p = rng.choice([(1, 16), (16, 1), (2, 8), (4, 4)])
    lines = []
    for i in range(12):
        base = rng.choice(
            ["all-reduce", "all-gather", "collective-broadcast", "collective-permute"]
        )
        channel = rng.random() < 0.6
        flat = channel and base in FLAGGED and rng.random() < 0.5
        limit = 16 if flat else n_p if channel and base not in FLAGGED else n_r
        rest = ", channel_id=1" * channel + ", use_global_device_ids=true" * flat
        if base == "collective-permute":
            ids = rng.sample(range(limit), limit)
            edges = ",".join(f"{{{a},{b}}}" for a, b in zip(range(limit), ids, strict=True))
            lines.append(f"c{i} = f32[8] {base}(p){rest}, source_target_pairs={{{edges}}}")
            continue
        rest += f", replica_groups={spelling(rng, limit)}"
        shape = "f32[8]"
        if base == "all-gather":
            rest, shape = rest + ", dimensions={0}", "f32[128]"
        if base == "reduce-scatter":
            rest += ", dimensions={0}"
        if base in ("all-reduce", "reduce-scatter"):
            rest += ", to_apply=add"
        lines.append(f"c{i} = {shape} {base}(p){rest}")
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule m, replica_count={n_r}, num_partitions={n_p}\n\nadd {{\n"
        "  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n\n"
        f"ENTRY e {{\n  p = f32[8] parameter(0)\n{body}\n  ROOT r = f32[8] negate(p)\n}}\n"
    )


def spelling(rng: random.Random, limit: int) -> str:
    size = rng.choice([n for n in (1, 2, 4, 8, 16) if n <= limit])
    dims = {1: [1], 2: [2], 4: [2, 2], 8: [2, 2, 2], 16: [4, 2, 2]}[limit]
    # XLA aborts on a mesh of one device with device_ids=.
    kind = rng.choice(["explicit", "iota", "mesh"][: 2 + (limit > 1)])
    if kind == "explicit":
        ids = rng.sample(range(limit), limit)
        cut = [ids[i : i + size] for i in range(0, limit, size)]
        return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in cut) + "}"
    order = rng.sample(range(len(dims)), len(dims))
    if kind == "iota":
        written = f"[{','.join(map(str, dims))}]T({','.join(map(str, order))})"
        source = written if order != sorted(order) else f"[{limit}]"
        return f"[{limit // size},{size}]<={source}"
    axes = ",".join(f"'a{i}'={d}" for i, d in enumerate(dims))
    refs = [f"'a{i}'" for i in order[: rng.randrange(1, len(dims) + 1)]]
    if refs[-1] == "'a0'" and dims[0] == 4:
        refs[-1] += f":({rng.choice([1, 2])})2"
    listed = ",".join(map(str, rng.sample(range(limit), limit)))
    devices = f", device_ids=({listed})" if rng.random() < 0.3 else ""
    return f"mesh[{axes}]{devices} {{{','.join(refs)}}}"


@pytest.mark.parametrize("seed", range(12))
def test_generated_modules_have_the_groups_that_jaxlib_reads(seed: int) -> None:
    """Every spelling, in every mode, names the same sets for both."""
    assert compare(generated(random.Random(seed)))


def test_text_as_jaxlib_prints_it_reads_the_same() -> None:
    """What jaxlib prints of a module gives the same program as the text it was parsed from."""
    from jaxlib import _hlo

    for seed in range(4):
        text = generated(random.Random(seed))
        printed = _hlo.hlo_module_from_text(text).to_string()
        once, again = read(text.encode()), read(printed.encode())
        sets = [{s.unordered for s in p.replica_groups} for p in (once, again)]
        assert sets[0] == sets[1]
        assert len(list(once.walk())) == len(list(again.walk()))
