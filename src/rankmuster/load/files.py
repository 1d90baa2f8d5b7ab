"""Bytes of one input: a file, a pipe, standard input, packed or not. Knows nothing of programs."""

from __future__ import annotations

import errno
import gzip
import io
import mmap
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import IO

from rankmuster.errors import InvalidProgram, UnreadableInput, did_you_mean
from rankmuster.formats import BYTES_MAX, Buffer

STDIN = "-"
MAPPED_ABOVE_BYTES = 64 << 20
# A gzip file can grow a thousandfold, and a pipe may never end: what is kept of them is bounded.
SPOOLED_BYTES_MAX = BYTES_MAX
CHUNK_BYTES = 1 << 20
HEAD_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
NAMES_OFFERED_FROM = 10_000  # entries of a folder that are looked at for a nearest name
Worth = Callable[[bytes], int]


@contextmanager
def contents(path: str, worth: Worth = lambda _: BYTES_MAX) -> Iterator[Buffer]:
    """The bytes behind *path* ("-" is standard input), unpacked if they are gzip.

    What comes out of a pipe, a device or gzip is read as far as *worth* says of its beginning: of
    how many bytes something can be made. Up to 64 MiB are read and more are mapped; a map is closed
    on leaving, so nothing may keep a view of it. Raises `UnreadableInput` for what is missing, not
    ours to read, too large to keep, or changes its size meanwhile, and `InvalidProgram` for what is
    empty.
    """
    with translated(path), opened(path) as file, seekable(file, path, worth) as plain:
        size = os.fstat(plain.fileno()).st_size
        if size == 0:
            raise InvalidProgram("the file is empty", where=shown(path))
        if size <= MAPPED_ABOVE_BYTES:
            data = plain.read(size + 1)
            refuse_if_resized(path, size, len(data))
            yield data
        else:
            with mmap.mmap(plain.fileno(), size, access=mmap.ACCESS_READ) as view:
                try:
                    yield view
                finally:
                    refuse_if_resized(path, size, os.fstat(plain.fileno()).st_size)


def head(path: str) -> bytes:
    """The first part of a file, unpacked: enough to know its format by."""
    with translated(path), opened(path) as file:
        data = file.read(HEAD_BYTES)
    if data.startswith(GZIP_MAGIC):
        with translated(path):
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data, HEAD_BYTES)
    return data


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn what the operating system says about *path* into an `UnreadableInput`."""
    try:
        yield
    except FileNotFoundError as error:
        raise UnreadableInput(f"{shown(path)}: no such file", fix=neighbour(path)) from error
    except ValueError as error:  # a NUL in the name
        if "null byte" not in str(error):
            raise
        raise UnreadableInput(f"{shown(path)!r} is not a file name") from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UnreadableInput(f"{shown(path)}: broken gzip data ({error})") from error
    except OSError as error:
        raise UnreadableInput(f"{shown(path)}: {error.strerror or error}") from error


def neighbour(path: str) -> str:
    """The name in the same folder that is nearest to the one that is not there."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, NAMES_OFFERED_FROM)]
    except OSError:
        return f"there is no folder {shown(folder)!r} either"
    hint = did_you_mean(name, names)
    return hint if hint.startswith("did") else ""


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """The file, or standard input, which stays open."""
    if path == STDIN:
        if sys.stdin is None:
            raise UnreadableInput("standard input is closed")
        yield sys.stdin.buffer
        return
    with open(path, "rb") as file:  # noqa: PTH123 "-" and /dev/fd names are no Path matter
        if stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", path)
        yield file


@contextmanager
def seekable(file: IO[bytes], path: str, worth: Worth) -> Iterator[IO[bytes]]:
    """*file* itself where it can be sized and mapped, else a bounded copy; gzip is unpacked."""
    is_plain = not is_stream(file)
    ahead = io.BufferedReader(file)  # type: ignore[type-var] # it reads as a raw one does
    try:
        is_packed = ahead.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
        if is_plain and not is_packed:
            file.seek(0)
            yield file
            return
        with tempfile.TemporaryFile() as kept:
            with gzip.GzipFile(fileobj=ahead) if is_packed else nullcontext(ahead) as source:
                copy(source, kept, path, worth)
            yield kept
    finally:
        ahead.detach()


def is_stream(file: IO[bytes]) -> bool:
    """Whether *file* is a pipe, a terminal or the like: its size says nothing."""
    try:
        status = os.fstat(file.fileno())
        is_sized = stat.S_ISREG(status.st_mode) and status.st_size > 0  # /proc has files of size 0
        return not is_sized or file.tell() != 0
    except OSError:  # no descriptor behind it, as under a test runner
        return True


def is_read_once(path: str) -> bool:
    """Whether *path* is standard input, a pipe (`<(…)`) or the like: nobody can read it again."""
    if path == STDIN:
        return True
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 paths stay as they were typed
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def copy(source: IO[bytes] | gzip.GzipFile, kept: IO[bytes], path: str, worth: Worth) -> None:
    """Copy as far as it is worth it, and a byte more, so that it shows; rewind the copy."""
    chunk = source.read(HEAD_BYTES)
    left = worth(chunk) + 1
    while chunk:
        kept.write(chunk)
        if kept.tell() > SPOOLED_BYTES_MAX:
            raise UnreadableInput(
                f"{shown(path)}: more than {SPOOLED_BYTES_MAX} bytes from a pipe or gzip",
                fix="put them into a file, unpacked",
            )
        left -= len(chunk)
        chunk = source.read(min(CHUNK_BYTES, left)) if left > 0 else b""
    kept.flush()
    kept.seek(0)


def refuse_if_resized(path: str, before: int, after: int) -> None:
    """Raise when a file grew or shrank while it was read: it was still being written."""
    if before != after:
        raise UnreadableInput(
            f"{shown(path)}: had {before} bytes and then {after} while it was read",
            fix="wait until its writer is done",
        )


def shown(path: str) -> str:
    """A path for messages: standard input by its name, undecodable bytes replaced."""
    if path == STDIN:
        return "<stdin>"
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
