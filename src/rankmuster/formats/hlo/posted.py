"""What a collective posts: elements, types, dimension (facts E4), and whether they fit (RM105).

Sees one form, the shapes of its operands and the size of its groups; no module, no ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.collective import Form
from rankmuster.formats.hlo.groups import parse_slices
from rankmuster.formats.hlo.shapes import Array, Shape, Tuple, leaves
from rankmuster.program import POINT_TO_POINT, OpKind

_DIMENSIONS = re.compile(rb"\{\s*(\d{1,9})?\s*\}")
_NO_DATA = frozenset({"token", "opaque"})

OperandShapes = Callable[[], Sequence[Shape | None]]


@dataclass(frozen=True, slots=True)
class Posted:
    """Elements and types, one entry per operand; the dimension; what does not fit, in words."""

    elements: tuple[int, ...]
    dtype: tuple[str, ...]
    dimension: int | None = None
    misfits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Shapes of operands and results; None where the text does not give them in reach."""

    operands: tuple[Shape | None, ...]
    results: tuple[Array, ...] | None
    result: Shape | None

    def arrays(self) -> tuple[Array, ...] | None:
        """The operands' arrays, None unless all are known."""
        known = [shape for shape in self.operands if shape is not None]
        if not known or len(known) != len(self.operands):
            return None
        return tuple(array for shape in known for array in _data(shape))


def needs_operands(form: Form) -> bool:
    """Whether the shapes of operands tell something that the form does not."""
    if form.shape_text.startswith(b"(") and form.opcode.endswith(b"-start"):
        return form.kind is OpKind.PERMUTE and form.is_in_place
    return (
        form.kind in (OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER)
        or not form.shape_text
        or form.is_in_place
    )


def posted(form: Form, size: int | None, operands: OperandShapes) -> Posted:
    """What *form* posts in groups of *size* members (None: not known).

    *operands* gives the shapes of operands where `needs_operands`, each None if out of reach.
    Raises InvalidProgram, without a position, where a required dimension is missing or no shape
    can be found.
    """
    kind = form.kind
    dimension = _dimension(form)
    shapes = _shapes(form, operands)
    misfits = _structure(form, shapes)
    match kind:
        case OpKind.ALL_GATHER:
            arrays, more = _gathered(shapes, dimension or 0, size)
        case OpKind.REDUCE_SCATTER:
            arrays, more = _scattered(shapes, dimension or 0, size)
        case OpKind.ALL_TO_ALL:
            return _all_to_all(form, shapes, dimension, size, misfits)
        case OpKind.ALL_TO_ALL_V:
            # Ranks may post different counts, so the posted size is 0 (facts E4).
            dtype = (shapes.results or shapes.arrays() or _missing(form))[0].known_dtype
            return Posted((0,), (dtype,), None, misfits)
        case OpKind.PERMUTE:
            arrays, more = _permuted(form, shapes)
        case _:
            arrays, more = shapes.results or shapes.arrays(), ()
    if not arrays:
        _missing(form)
    return _post(arrays or (), dimension, misfits + more)


def _post(arrays: Sequence[Array], dimension: int | None, misfits: tuple[str, ...]) -> Posted:
    return Posted(
        tuple(array.elements for array in arrays),
        tuple(array.known_dtype for array in arrays),
        dimension,
        misfits,
    )


def _missing(form: Form) -> tuple[Array, ...]:
    raise InvalidProgram(
        f"the shape of this {form.opcode.decode()} is not written and does not follow from operands"
    )


def _data(shape: Shape) -> tuple[Array, ...]:
    return tuple(array for array in leaves(shape) if array.dtype not in _NO_DATA)


def _dimension(form: Form) -> int | None:
    kind = form.kind
    if kind not in (OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_TO_ALL):
        return None
    value = form.attributes.get(b"dimensions")
    if value is None and kind is OpKind.ALL_TO_ALL:
        return None  # the form over a tuple of chunks
    match = _DIMENSIONS.fullmatch(value or b"")
    if match is None or match[1] is None:
        raise InvalidProgram(f"{form.opcode.decode()} takes one dimension, as dimensions={{0}}")
    return int(match[1])


def _shapes(form: Form, operands: OperandShapes) -> _Shapes:
    shape = form.shape
    if form.opcode.endswith(b"-start") and isinstance(shape, Tuple):
        # all-gather-start: (operands, results); permute-start: and contexts behind them; others:
        # ((operands), results, contexts). all-reduce-start has the result's own shape.
        if form.kind is not OpKind.ALL_REDUCE and len(shape.parts) > 1:
            first, result = shape.parts[0], shape.parts[1]
            parts = first.parts if isinstance(first, Tuple) else (first,)
            given = tuple(operands()) if form.is_in_place else parts
            return _Shapes(given, _data(result), result)
    elif form.kind in POINT_TO_POINT and isinstance(shape, Tuple) and shape.parts:
        return _Shapes((), _data(shape.parts[0]), shape.parts[0])  # (data, u32[], token[])
    given = tuple(operands()) if needs_operands(form) else ()
    return _Shapes(given, _data(shape) if shape is not None else None, shape)


def _structure(form: Form, shapes: _Shapes) -> tuple[str, ...]:
    kind, count = form.kind, form.operand_count
    if kind is OpKind.ALL_TO_ALL_V:
        return () if count == 6 else (f"takes 6 operands, has {count}",)
    if kind in (OpKind.SEND, OpKind.RECV, OpKind.PERMUTE, OpKind.BROADCAST):
        return ()
    misfits = tuple(
        f"operand {i} is a tuple, {shape}"
        for i, shape in enumerate(shapes.operands)
        if isinstance(shape, Tuple)
    )
    if kind is OpKind.ALL_TO_ALL or shapes.results is None or misfits:
        return misfits
    if count != len(shapes.results) or (count > 1 and isinstance(shapes.result, Array)):
        return (f"has {count} operands, but its shape {shapes.result} has {len(shapes.results)}",)
    return misfits


def _gathered(
    shapes: _Shapes, dimension: int, size: int | None
) -> tuple[tuple[Array, ...] | None, tuple[str, ...]]:
    inputs, outputs = shapes.arrays(), shapes.results
    if inputs is not None:
        return inputs, _ratios(outputs or (), inputs, dimension, size)
    if outputs is None:
        return None, ()
    shrunk, misfits = [], []
    for output in outputs:
        if dimension >= len(output.dims):
            misfits.append(f"dimension {dimension} is out of range for {output}")
            shrunk.append(output)
            continue
        dims = list(output.dims)
        dims[dimension] //= size or 1
        if size and output.dims[dimension] % size:
            misfits.append(f"dimension {dimension} of {output} does not divide by {size} members")
        shrunk.append(Array(output.dtype, tuple(dims)))
    return tuple(shrunk), tuple(misfits)


def _scattered(
    shapes: _Shapes, dimension: int, size: int | None
) -> tuple[tuple[Array, ...] | None, tuple[str, ...]]:
    inputs, outputs = shapes.arrays(), shapes.results
    if outputs is not None:
        return outputs, _ratios(inputs or (), outputs, dimension, size)
    if inputs is None or any(dimension >= len(array.dims) for array in inputs):
        return None, ()
    return tuple(_shrink(array, dimension, size or 1) for array in inputs), ()


def _shrink(array: Array, dimension: int, size: int) -> Array:
    dims = list(array.dims)
    dims[dimension] = -(-dims[dimension] // size)
    return Array(array.dtype, tuple(dims))


def _ratios(
    larger: Sequence[Array], smaller: Sequence[Array], dimension: int, size: int | None
) -> tuple[str, ...]:
    misfits = []
    for whole, shard in zip(larger, smaller, strict=False):
        if dimension >= min(len(whole.dims), len(shard.dims)):
            misfits.append(f"dimension {dimension} is out of range for {shard}")
            continue
        # XLA allows a ragged last shard: the count is rounded up, and one member may keep all.
        count = -(-whole.dims[dimension] // max(1, shard.dims[dimension]))
        if size not in (None, 1, count):
            misfits.append(f"{whole} holds {count} times {shard}, the group has {size} members")
    return tuple(misfits)


def _all_to_all(
    form: Form,
    shapes: _Shapes,
    dimension: int | None,
    size: int | None,
    misfits: tuple[str, ...],
) -> Posted:
    arrays = shapes.results or shapes.arrays() or _missing(form)
    if dimension is None:
        count = form.operand_count
        if size is not None and count != size:
            misfits += (f"sends {count} chunks, the group has {size} members",)
        return _post(arrays, None, misfits)
    if form.operand_count != 1:
        misfits += (f"with dimensions= takes one operand, has {form.operand_count}",)
    array = arrays[0]
    if dimension >= len(array.dims):
        misfits += (f"dimension {dimension} is out of range for {array}",)
    elif size and array.dims[dimension] % size:
        misfits += (f"dimension {dimension} of {array} does not divide by {size} members",)
    chunk = array.elements // (size or 1)
    return Posted((chunk,), (array.known_dtype,), dimension, misfits)


def _permuted(form: Form, shapes: _Shapes) -> tuple[tuple[Array, ...] | None, tuple[str, ...]]:
    if b"slice_sizes" not in form.attributes:
        return shapes.results or shapes.arrays(), ()
    # In place: operands are inputs, outputs, and the offsets where slices start in each.
    slices = parse_slices(form.attributes[b"slice_sizes"])
    inputs = _data(shapes.operands[0]) if shapes.operands and shapes.operands[0] else shapes.results
    if not inputs or not slices:
        return inputs, ()
    each, rest = divmod(len(slices), len(inputs))
    misfits = list(_offsets(shapes))
    if rest:
        misfits.append(f"{len(slices)} slices do not spread over {len(inputs)} buffers")
    sums = [sum(slices[i * each : (i + 1) * each]) for i in range(len(inputs))]
    arrays = [Array(a.dtype, (count,)) for a, count in zip(inputs, sums, strict=True)]
    return tuple(arrays), tuple(misfits)


def _offsets(shapes: _Shapes) -> tuple[str, ...]:
    if len(shapes.operands) != 4:
        return ()
    misfits = []
    for what, buffers, offsets in (("input", 0, 2), ("output", 1, 3)):
        buffer, offset = shapes.operands[buffers], shapes.operands[offsets]
        if not (isinstance(buffer, Tuple) and isinstance(offset, Tuple)):
            continue
        if len(buffer.parts) != len(offset.parts) or not all(
            isinstance(part, Tuple) for part in offset.parts
        ):
            misfits.append(
                f"{len(buffer.parts)} {what} buffers do not match their offsets {offset}"
            )
    return tuple(misfits)
