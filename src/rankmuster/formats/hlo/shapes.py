"""Shapes: "bf16[8,128]{1,0:T(8,128)}" and tuples of them, reduced to what an op posts."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod

import msgspec

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo.scanner import MAX_DEPTH, closing, shown, skip_space
from rankmuster.program import DTYPES

# f32[8,4]{1,0:T(8,128)(2,1)S(1)}   u32[]   token[]   f32[<=5,?]   bf16[2]
_ARRAY = re.compile(rb"([a-z][a-z0-9]*+)\[([\d,<=?\s]*+)\](?:[ \t]*+\{[^{}]*+\})?")


class Array(msgspec.Struct, frozen=True, gc=False):
    """One array: element type as HLO names it, and its dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it holds; 1 for a scalar."""
        return prod(self.dims)

    @property
    def known_dtype(self) -> str:
        """The type as programs name it: "unknown" for one that is newer than this reader."""
        return self.dtype if self.dtype in DTYPES else "unknown"

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


class Tuple(msgspec.Struct, frozen=True):
    """A tuple of shapes."""

    parts: tuple[Shape, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


Shape = Array | Tuple


def leaves(shape: Shape) -> tuple[Array, ...]:
    """The arrays of *shape*, left to right."""
    if isinstance(shape, Array):
        return (shape,)
    return tuple(leaf for part in shape.parts for leaf in leaves(part))


@lru_cache(maxsize=4096)
def parse_shape(text: bytes) -> Shape:
    """Read one shape, the whole of *text*; nesting is bounded.

    Raises InvalidProgram, without a position, for anything else.
    """
    shape, position = _shape(text, skip_space(text, 0, len(text)), 0)
    if skip_space(text, position, len(text)) != len(text):
        raise InvalidProgram(f"{shown(text)!r} is not a shape")
    return shape


def _shape(text: bytes, position: int, depth: int) -> tuple[Shape, int]:
    if depth > MAX_DEPTH:
        raise InvalidProgram(f"a tuple nests deeper than {MAX_DEPTH}")
    if text[position : position + 1] == b"(":
        return _tuple(text, position + 1, depth)
    match = _ARRAY.match(text, position)
    if match is None:
        raise InvalidProgram(f"{shown(text[position:])!r} is not a shape")
    return Array(match[1].decode(), _dims(match[2])), match.end()


def _tuple(text: bytes, position: int, depth: int) -> tuple[Shape, int]:
    parts: list[Shape] = []
    position = skip_space(text, position, len(text))
    while text[position : position + 1] != b")":
        part, position = _shape(text, position, depth + 1)
        parts.append(part)
        position = skip_space(text, position, len(text))
        if text[position : position + 1] == b",":
            position = skip_space(text, position + 1, len(text))
        elif text[position : position + 1] != b")":
            raise InvalidProgram(f"{shown(text[position:])!r} stands inside a tuple")
    return Tuple(tuple(parts)), position + 1


def _dims(text: bytes) -> tuple[int, ...]:
    # A dynamic dimension "<=5" counts with its bound; "?" has none and counts as one.
    if not text.strip():
        return ()
    sizes = []
    for part in text.split(b","):
        digits = part.strip().removeprefix(b"<=")
        if digits != b"?" and not (digits.isdigit() and len(digits) < 19):
            raise InvalidProgram(f"{shown(text)!r} are not dimensions")
        sizes.append(1 if digits == b"?" else int(digits))
    return tuple(sizes)


def shape_end(text: bytes, position: int) -> int:
    """The position behind the shape at *position*, or *position* itself where none begins."""
    if text[position : position + 1] == b"(":
        return closing(text, position, len(text))
    match = _ARRAY.match(text, position)
    return match.end() if match else position
