"""Every struct by its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rankmuster.abi import (
    algorithms,
    communicators,
    context,
    dispatch,
    files,
    groups,
    network,
    world,
)
from rankmuster.abi.layout import Layout
from rankmuster.errors import InvalidProgram, did_you_mean

FAMILIES = (world, communicators, groups, context, algorithms, network, dispatch, files)

STRUCTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for family in FAMILIES
        for layout in vars(family).values()
        if isinstance(layout, Layout) and layout.summary is None
    }
)


def struct_named(name: str) -> Layout:
    """The layout of a struct. Raises InvalidProgram with the nearest name for an unknown one."""
    if name not in STRUCTS:
        raise InvalidProgram(f"no struct {name!r}", fix=did_you_mean(name, STRUCTS))
    return STRUCTS[name]
