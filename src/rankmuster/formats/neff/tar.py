"""The entries of a tar: ustar, pax and GNU long names, read from a stream, nothing on disk.

A reader of its own, because the library's reads headers of any size into memory and matches them
with expressions that a long run of digits holds up for hours (CVE-2024-6232). Links, devices and
names that lead out are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankmuster.formats.neff.stream import Stream

BLOCK = 512
MEMBERS_MAX = 1 << 16
EXTENSION_BYTES_MAX, EXTENSIONS_BYTES_MAX = 1 << 16, 1 << 25  # of one entry, of all together

FILE, FOLDER, LONG_NAME, PAX, PAX_GLOBAL = b"0", b"5", b"L", b"x", b"g"
FILES = (FILE, b"\0", b"7")
REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a pipe",
    b"K": "a link",
    b"S": "a sparse file",
}


class Member(NamedTuple):
    """One entry: its clean name, its type and how many bytes follow."""

    name: str
    type: bytes
    size: int


def members(stream: Stream) -> Iterator[Member]:
    """The entries of a tar (ustar, pax and GNU long names); the caller reads their bytes."""
    said: dict[str, str] = {}
    entries = extended = 0
    while not stream.ended():
        block = stream.take(BLOCK, BLOCK, "a header")
        if not block.strip(b"\0"):
            return
        entries += 1
        if entries > MEMBERS_MAX:
            raise stream.error(f"the archive has more than {MEMBERS_MAX} members")
        member = entry(block, stream)
        if member.type in (PAX, PAX_GLOBAL, LONG_NAME):
            extended += member.size
            if extended > EXTENSIONS_BYTES_MAX:
                raise stream.error(f"more than {EXTENSIONS_BYTES_MAX} bytes of extended headers")
            said |= extension(member, stream)
            continue
        if member.type in REFUSED:
            raise stream.error(f"{member.name!r} is {REFUSED[member.type]}")
        if member.type not in (*FILES, FOLDER):
            raise stream.error(f"{member.name!r} has the unknown type {member.type!r}")
        yield renamed(member, said, stream)
        said = {}


def entry(block: bytes, stream: Stream) -> Member:
    """The header block of one entry."""
    total = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if number(block[148:156], stream) != total:
        raise stream.error("a header does not add up to its checksum")
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    shown = name.decode("utf-8", "replace")
    return Member(shown, block[156:157], number(block[124:136], stream))


def number(digits: bytes, stream: Stream) -> int:
    """A number of a header: octal digits, or binary where it is large."""
    if digits[:1] == b"\x80":
        return int.from_bytes(digits[1:], "big")
    stripped = digits.strip(b" \0")
    if stripped.strip(b"01234567"):
        raise stream.error(f"{digits!r} is no number of a tar header")
    return int(stripped or b"0", 8)


def extension(member: Member, stream: Stream) -> dict[str, str]:
    """What a pax header or a GNU long name says of the next entry."""
    body = stream.take(member.size, EXTENSION_BYTES_MAX, "an extended header")
    stream.skip(-member.size % BLOCK)
    if member.type == LONG_NAME:
        return {"path": body.partition(b"\0")[0].decode("utf-8", "replace")}
    records = dict(pax_records(body, stream))
    if any(key.startswith("GNU.sparse") for key in records):
        raise stream.error("the archive holds a sparse file")
    return records if member.type == PAX else {}


def pax_records(body: bytes, stream: Stream) -> Iterator[tuple[str, str]]:
    """The records of a pax header, each like "30 path=sg00/a-long-name.json" and a newline."""
    at, end = 0, len(body.rstrip(b"\0"))
    while at < end:
        digits, _, _ = body[at : at + 8].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = body[at + len(digits) + 1 : at + length].partition(b"=")
        if not equals or value[-1:] != b"\n" or at + length > len(body):
            raise stream.error("an extended header is broken")
        yield key.decode("utf-8", "replace"), value[:-1].decode("utf-8", "replace")
        at += length


def renamed(member: Member, said: dict[str, str], stream: Stream) -> Member:
    """The entry under its clean name, with what an extended header said of it."""
    given, size = said.get("path", member.name), said.get("size", str(member.size))
    if not (size.isascii() and size.isdigit() and len(size) < 20):
        raise stream.error(f"{given!r} has the size {size!r}")
    if "linkpath" in said:
        raise stream.error(f"{given!r} is a link")
    try:
        name = clean(given)
    except ValueError as error:
        raise stream.error(str(error)) from None
    if member.type == FOLDER or given.endswith("/"):
        return Member(name, FOLDER, 0)
    if not name:
        raise stream.error(f"{given!r} is no name of a file")
    return Member(name, FILE, int(size))


def clean(name: str) -> str:
    """A member's name as the manifests write it. Raises ValueError for one that leads out."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\\" in name or "\0" in name or name[1:2] == ":":
        raise ValueError(f"{name!r} is an absolute name")
    if ".." in parts:
        raise ValueError(f"{name!r} leads out of the archive")
    return "/".join(parts)
