"""The 1024 bytes in front of a NEFF's archive (facts §5.1). There is no magic number."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from rankmuster.errors import InvalidProgram, UnsupportedFormat
from rankmuster.formats.json_text import Buffer

HEADER = struct.Struct("<5Q128sI32s16s256sI64sQI468x")
HEADER_BYTES = 1024
assert HEADER.size == HEADER_BYTES
START = struct.Struct("<QQ")  # package version, header size: what a file is recognised by
PACKAGES_SNIFFED = range(1, 256)  # a text has no byte of zero up there
PLAIN, PACKED = 1, 2  # package versions: a plain tar with SHA-256, a gzip one with MD5
MAJOR_MAX = 2
UNKNOWN_FEATURES = ((1 << 63) - 1) & ~((1 << 27) - 1)  # bits 27 to 62
CORE_SIZES = (1, 2)
HASHED_AT_ONCE = 1 << 20
GZIP_MAGIC, TAR_MAGIC, TAR_MAGIC_OFFSET = b"\x1f\x8b", b"ustar", 257


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header says; `core_size` (LNC) is None where it leaves it out."""

    package: int
    data_size: int
    major: int
    minor: int
    digest: bytes
    name: str
    feature_bits: int
    core_size: int | None


def sniff(data: Buffer) -> bool:
    """Whether *data* begins as a NEFF does, however broken the rest may be."""
    if len(data) < START.size:
        return False
    package, size = START.unpack(data[: START.size])
    return size == HEADER_BYTES and package in PACKAGES_SNIFFED


def read_header(data: Buffer, where: str) -> Header:
    """The header of a whole file, checked against the payload behind it.

    Raises `UnsupportedFormat` for a version or feature that no public source describes, and
    `InvalidProgram` for a size or hash that does not fit.
    """
    if len(data) < HEADER_BYTES:
        what = f"a NEFF begins with {HEADER_BYTES} bytes of header, and this ends after {len(data)}"
        raise InvalidProgram(what, where=where, offset=len(data))
    header = unpack(data[:HEADER_BYTES])
    check_versions(header, where)
    check_payload(header, data, where)
    return header


def unpack(image: bytes) -> Header:
    """What we need of the header, unchecked; `rankmuster decode neff_header` shows all of it."""
    package, _, data_size, major, minor, _, _, digest, _, name, _, _, bits, core_size = (
        HEADER.unpack(image)
    )
    return Header(
        package=package,
        data_size=data_size,
        major=major,
        minor=minor,
        digest=digest,
        name=name.partition(b"\0")[0].decode("utf-8", "replace"),
        feature_bits=bits,
        core_size=core_size or None,
    )


def check_versions(header: Header, where: str) -> None:
    """Refuse what a later compiler may have written."""
    if header.package not in (PLAIN, PACKED):
        what = f"NEFF package version {header.package} is neither {PLAIN} nor {PACKED}"
        raise UnsupportedFormat(what, where=where, offset=0)
    if header.major > MAJOR_MAX:
        what = f"NEFF version {header.major}.{header.minor} is newer than {MAJOR_MAX}"
        raise UnsupportedFormat(what, where=where, offset=0x18)
    unknown = header.feature_bits & UNKNOWN_FEATURES
    if header.major == MAJOR_MAX and unknown:
        bits = [bit for bit in range(63) if unknown >> bit & 1]
        what = f"the NEFF needs features that nobody has published: bits {bits}"
        raise UnsupportedFormat(what, where=where, offset=0x220)
    if header.core_size not in (None, *CORE_SIZES):
        what = f"logical-core size {header.core_size} is neither of {CORE_SIZES}"
        raise InvalidProgram(what, where=where, offset=0x228)


def check_payload(header: Header, data: Buffer, where: str) -> None:
    """Refuse a payload of another size, kind or hash than the header says."""
    held = len(data) - HEADER_BYTES
    if header.data_size != held:
        what = f"the header says {header.data_size} bytes follow it, and {held} do"
        fix = "copy the file again" if held < header.data_size else ""
        raise InvalidProgram(what, where=where, offset=0x10, fix=fix)
    magic, at = (GZIP_MAGIC, 0) if header.package == PACKED else (TAR_MAGIC, TAR_MAGIC_OFFSET)
    start = HEADER_BYTES + at
    if data[start : start + len(magic)] != magic:
        kind = "gzip" if header.package == PACKED else "tar"
        what = f"package version {header.package} holds a {kind} archive, and this is none"
        raise InvalidProgram(what, where=where, offset=start)
    found = payload_hash(header.package, data)
    if found != header.digest[: len(found)]:
        what = f"the payload hashes to {found.hex()}, the header says {header.digest.hex()}"
        raise InvalidProgram(what, where=where, offset=0xAC, fix="copy the file again")


def payload_hash(package: int, data: Buffer) -> bytes:
    """The hash that a header of this package version holds: SHA-256, or MD5 in the first half."""
    state = hashlib.sha256() if package == PLAIN else hashlib.md5(usedforsecurity=False)
    for at in range(HEADER_BYTES, len(data), HASHED_AT_ONCE):
        state.update(data[at : at + HASHED_AT_ONCE])
    return state.digest()
