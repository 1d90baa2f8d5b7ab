"""The lexical ground of HLO text: positions, balanced brackets, and attribute lists.

Knows quotes, brackets and comments; it does not know what any attribute means.
"""

from __future__ import annotations

import codecs
import mmap
import re
from typing import TypeAlias

from rankmuster.errors import InvalidProgram

Text: TypeAlias = bytes | mmap.mmap

_CHUNK = 1 << 20
# One bracket, or one thing that may hide brackets: a string or a comment.
_BRACKET = re.compile(
    rb'[(){}\[\]]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|"|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/', re.DOTALL
)
_COMMENT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/', re.DOTALL)
_SPACE = re.compile(rb"(?:\s++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+", re.DOTALL)
_CLOSES = {b"(": b")", b"{": b"}", b"[": b"]"}
MAX_DEPTH = 256  # tuples nest three or four deep in real programs

# ", channel_id=1": a comma, a name with "=" directly behind it, a value that ends before the next
# comma. Values in brackets hold at most two levels here; deeper ones are walked by `closing`.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rb'[^{}"]++|' + _STRING
_ATTRIBUTE = re.compile(
    rb"\s*+,\s*+(?:/\*[^*]*\*/\s*+)?([A-Za-z_][\w.-]*+)="
    rb"(?:(\{(?:"
    + _FLAT
    + rb"|\{(?:"
    + _FLAT
    + rb')*+\})*+\})|([^\s,{}()\[\]"]++)(?=\s*+(?:[,\n]|\Z)))?',
    re.DOTALL,
)
# [2,4]<=[2,2,2]T(0,2,1)
_IOTA = re.compile(rb"\s*+\[[\d,\s]*+\]\s*+<=\s*+\[[\d,\s]*+\](?:\s*+T\s*+\([\d,\s]*+\))?")
# mesh['a'=2,'b'=4], device_ids=([2,4]T(1,0)) {'b':(1)2}
_MESH = re.compile(
    rb"\s*+mesh\s*+\[[^\]]*+\]"
    rb"(?:\s*+,\s*+device_ids\s*+=\s*+\((?:[^()]|\([^()]*+\))*+\))?\s*+\{[^}]*+\}"
)
_PLAIN = re.compile(rb'\s*+[^\s,{}()\[\]"]++')


def line_and_column(text: Text, position: int) -> tuple[int, int]:
    """Where *position* is for a person, both from 1. Reads in slices: a map has no count()."""
    line = 1
    for start in range(0, position, _CHUNK):
        line += text[start : min(start + _CHUNK, position)].count(b"\n")
    return line, position - text.rfind(b"\n", 0, position)


def malformed(text: Text, position: int, what: str, *, fix: str = "") -> InvalidProgram:
    """The error that names the line and column of *position*."""
    line, column = line_and_column(text, min(position, len(text)))
    return InvalidProgram(what, line=line, column=column, fix=fix)


def shown(text: bytes, limit: int = 60) -> str:
    """Part of the input for a message: printable, on one line, not too long."""
    line = " ".join(text[: 4 * limit].decode("utf-8", "replace").split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def skip_space(text: Text, position: int, end: int) -> int:
    """The first position from *position* on that is neither blank nor comment."""
    return _SPACE.match(text, position, end).end()  # type: ignore[union-attr]  # matches ""


def beginning(text: Text) -> int:
    """The position of the first word, behind blanks, comments and UTF-8's own mark."""
    mark = codecs.BOM_UTF8
    return skip_space(text, len(mark) if text[: len(mark)] == mark else 0, len(text))


def blank_comments(text: bytes) -> bytes:
    """*text* with each comment turned into as many blanks, so that positions stay."""

    def blank(match: re.Match[bytes]) -> bytes:
        found = match[0]
        return found if found[:1] == b'"' else re.sub(rb"[^\n]", b" ", found)

    return _COMMENT.sub(blank, text)


def closing(text: Text, position: int, end: int) -> int:
    """The position behind the bracket that closes the one at *position*.

    Raises InvalidProgram where brackets do not match, are left open at *end*, or nest too deep.
    """
    expected: list[bytes] = []
    for match in _BRACKET.finditer(text, position, end):
        token = match[0]
        if token in _CLOSES:
            expected.append(_CLOSES[token])
            if len(expected) > MAX_DEPTH:
                raise malformed(text, match.start(), f"brackets nest deeper than {MAX_DEPTH}")
        elif token in (b")", b"}", b"]"):
            if token != expected.pop():
                raise malformed(text, match.start(), f"unbalanced {token.decode()!r}")
            if not expected:
                return match.end()
        elif token == b'"':
            raise malformed(text, match.start(), "a string is not closed")
    raise malformed(text, position, f"{shown(text[position : position + 1])!r} is not closed")


def attributes(text: Text, position: int, end: int) -> tuple[dict[bytes, bytes], int]:
    """The list `, name=value, ...` at *position*, and the position behind it.

    A name given twice is malformed. Values keep their brackets and quotes.
    """
    found: dict[bytes, bytes] = {}
    while match := _ATTRIBUTE.match(text, position, end):
        name, braces, plain = match.groups()
        value, position = braces or plain, match.end()
        if value is None:
            value, position = _value(text, position, end)
        if name in found:
            raise malformed(text, match.start(), f"attribute {shown(name)} stands here twice")
        found[name] = value
    return found, position


def _value(text: Text, position: int, end: int) -> tuple[bytes, int]:
    start = skip_space(text, position, end)
    match = _MESH.match(text, start, end) or _IOTA.match(text, start, end)
    if match:
        return match[0].strip(), match.end()
    if text[start : start + 1] in (b"{", b"(", b"["):
        stop = closing(text, start, end)
    elif text[start : start + 1] == b'"':
        string = _COMMENT.match(text, start, end)
        if string is None:
            raise malformed(text, start, "a string is not closed")
        stop = string.end()
    elif plain := _PLAIN.match(text, start, end):
        stop = plain.end()
        while text[stop : stop + 1] in (b"{", b"(", b"["):  # f32[2]{0}, pad=0_0x1_1
            stop = closing(text, stop, end)
            plain = _PLAIN.match(text, stop, end)
            stop = plain.end() if plain and text[stop : stop + 1] not in (b" ", b"\n") else stop
    else:
        raise malformed(text, start, "an attribute has no value")
    return text[start:stop], stop
