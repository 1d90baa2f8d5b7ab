"""Where in a JSON text something stands: lines and columns for messages. Runs only on errors."""

from __future__ import annotations

import mmap
import re
from typing import TypeAlias

import msgspec

Buffer: TypeAlias = bytes | mmap.mmap
Path: TypeAlias = tuple[str | int, ...]

EMPTY = "''"  # a key without a letter, as messages show it
SEARCHED_BYTES = 1 << 21  # a longer text costs seconds to search; its message has the path alone
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


def show(path: Path) -> str:
    """Write a path as people do: ("ops", 3, "group") -> "ops[3].group"."""
    if len(path) > 12:
        return f"{show(path[:6])} ... {show(path[-4:])}"
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part or EMPTY}" for part in path)
    return text.removeprefix(".") or "the file"


def line_and_column(text: Buffer, offset: int) -> tuple[int, int]:
    """The line and column of a byte, both from 1."""
    before = text[:offset]
    return before.count(b"\n") + 1, offset - before.rfind(b"\n")


def locate(text: Buffer, path: Path) -> int | None:
    """The offset of the value at *path* in a well-formed text, None where it is not found."""
    if len(text) > SEARCHED_BYTES:
        return None
    here: list[str | int | None] = []  # the path of the value that comes next; None before a key
    for token in TOKEN.finditer(text):
        match token[0]:
            case b":":
                pass
            case b",":
                last = here[-1]
                here[-1] = last + 1 if isinstance(last, int) else None
            case b"]" | b"}":
                here.pop()
            case word if here and here[-1] is None:  # a key
                here[-1] = msgspec.json.decode(word, type=str)
            case word:
                if tuple(here) == path:
                    return token.start()
                if word in b"[{":
                    here.append(0 if word == b"[" else None)
    return None
