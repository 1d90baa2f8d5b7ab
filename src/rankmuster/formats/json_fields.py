"""Typed access to the fields of a JSON value, each check with its path for the message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from rankmuster.errors import InvalidProgram, did_you_mean
from rankmuster.formats.json_text import Path

U32, I63 = (1 << 32) - 1, (1 << 63) - 1


class Fault(Exception):
    """What is wrong at a path of the text; becomes an `InvalidProgram` with its line."""

    def __init__(
        self, path: Path, what: str, fix: str = "", kind: type[InvalidProgram] = InvalidProgram
    ) -> None:
        super().__init__(what)
        self.path, self.what, self.fix, self.kind = path, what, fix, kind


def an_object(value: Any, path: Path) -> Mapping[str, Any]:
    """The value, if it is an object."""
    if not isinstance(value, dict):
        raise Fault(path, f"is {quote(value)}, not an object")
    return value


def a_list(value: Any, path: Path) -> list[Any]:
    """The value, if it is a list."""
    if not isinstance(value, list):
        raise Fault(path, f"is {quote(value)}, not a list")
    return value


def required(entry: Mapping[str, Any], key: str, path: Path) -> Any:
    """The value under a key that must be there; null is a value."""
    if key not in entry:
        raise Fault(path, f"needs {key!r}")
    return entry[key]


def check_keys(entry: Mapping[str, Any], known: Collection[str], path: Path) -> None:
    """Refuse a key that the format does not know."""
    for key in entry:
        if key not in known:
            raise Fault((*path, key), "is not a key of the format", did_you_mean(key, known))


def whole(
    entry: Mapping[str, Any], key: str, path: Path, *, low: int = 0, high: int = U32
) -> int | None:
    """The whole number under *key*, None where it is absent or null."""
    value = entry.get(key)
    return None if value is None else in_range(value, (*path, key), low, high)


def in_range(value: Any, path: Path, low: int, high: int) -> int:
    """The value, if it is a whole number in range; true and 1.0 are none."""
    if type(value) is not int or not low <= value <= high:
        raise Fault(path, f"is {quote(value)}, not a whole number from {low} to {high}")
    return value


def text_of(entry: Mapping[str, Any], key: str, path: Path) -> str | None:
    """The string under *key*, None where it is absent or null."""
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise Fault((*path, key), f"is {quote(value)}, not a string")
    return value


def quote(value: Any) -> str:
    """A value as a message shows it, cut where it is long."""
    text = repr(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:56]} ..."
