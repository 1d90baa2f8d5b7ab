"""Archives that mean harm, and bytes that mean nothing: refused by name, in bounded time."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster import formats
from rankmuster.errors import InvalidProgram
from rankmuster.formats.neff import archive as json_limits
from rankmuster.formats.neff import stream as byte_limits
from rankmuster.formats.neff import tar as tar_limits
from rankmuster.formats.neff.archive import json_files
from rankmuster.program import Program
from rankmuster.testing.neff import archive, definition, manifests, neff, packed

GRAPH = definition([[[0, 1], [2, 3]]], [[[0, 1], [1, 0]]])
FILES = [neff(GRAPH["replica_groups"], package=package) for package in (1, 2)]
LONG = {f"{'deep/' * 30}x.json": b"{}", "sg00/pe.bin": bytes(700)} | manifests([GRAPH])
TARS = [archive(LONG, form=form) for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def refused(tar: bytes) -> str:
    with pytest.raises(InvalidProgram) as caught:
        formats.read(packed(tar))
    return str(caught.value)


@pytest.mark.parametrize(
    ("hostile", "error"),
    [
        (member("neff.json", tarfile.SYMTYPE, "/etc/passwd"), "'neff.json' is a symbolic link"),
        (member("a", tarfile.LNKTYPE, "b"), "'a' is a hard link"),
        (member("dev/sda", tarfile.BLKTYPE), "'dev/sda' is a block device"),
        (member("tty", tarfile.CHRTYPE), "'tty' is a character device"),
        (member("fifo", tarfile.FIFOTYPE), "'fifo' is a pipe"),
        (member("sparse", tarfile.GNUTYPE_SPARSE), "'sparse' is a sparse file"),
        (member("odd", b"Z"), "'odd' has the unknown type b'Z'"),
        (member("/etc/cron.d/x"), "'/etc/cron.d/x' is an absolute name"),
        (member("C:\\x"), "'C:\\\\x' is an absolute name"),
        (member("sg00/../../x"), "'sg00/../../x' leads out of the archive"),
        (member("."), "'.' is no name of a file"),
        (member("./kelf-a.json"), "'kelf-a.json' stands twice in the archive"),
    ],
)
def test_hostile_members_are_refused_by_name(hostile: tarfile.TarInfo, error: str) -> None:
    """Links, devices, names that lead out and doubles are never passed over in silence."""
    tar = archive({"neff.json": b"{}", "kelf-a.json": b"{}"}, [hostile])
    assert error in refused(tar)


def with_checksum(tar: bytes) -> bytes:
    """The first header's checksum mended."""
    head = bytearray(tar[:512])
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + tar[512:]


def test_a_folder_is_no_file() -> None:
    """Folders are passed over, whatever they are called."""
    assert "does not hold this file" in refused(archive({}, [member("neff.json", tarfile.DIRTYPE)]))


def bomb(size: int) -> bytes:
    """A gzip tar whose one member is *size* zero bytes, without ever holding them."""
    head = tarfile.TarInfo("weights.npy")
    head.size = size
    packer = zlib.compressobj(wbits=31)
    parts = [packer.compress(head.tobuf())]
    parts += [packer.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, packer.compress(bytes(1024)), packer.flush()])


def test_bombs_are_refused_early() -> None:
    """What unpacks two hundred times over is refused, and never held in memory."""
    data = bomb(256 << 20)
    tracemalloc.start()
    with pytest.raises(InvalidProgram, match="over 200 to one"):
        json_files(data, 0, "bomb")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_members_and_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is an end to how many members, and how much JSON, an archive may hold."""
    monkeypatch.setattr(tar_limits, "MEMBERS_MAX", 3)
    assert "more than 3 members" in refused(archive({f"{n}.bin": b"" for n in range(4)}))
    json_files(archive({f"{n}.bin": b"" for n in range(3)}), 0, "")
    monkeypatch.setattr(json_limits, "JSON_BYTES_MAX", 100)
    assert "'a.json' has 101 bytes, more than 100" in refused(archive({"a.json": bytes(101)}))
    monkeypatch.setattr(tar_limits, "MEMBERS_MAX", 9)
    some = {f"{n}.json": bytes(99) for n in range(4)}
    assert len(json_files(archive(some), 0, "")) == 4
    more = archive(some | {"4.json": bytes(99)})
    assert "'4.json': more than 400 bytes of JSON" in refused(more)
    monkeypatch.setattr(byte_limits, "UNPACKED_BYTES_MAX", 2000)
    assert "holds more than 2000 bytes" in refused(archive({"a.bin": bytes(5000)}))


def test_headers_cannot_hold_the_reader_up() -> None:
    """A pax header of digits without end is refused, not matched; so is one without sense."""
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, 1 << 20
    assert "an extended header has 1048576 bytes" in refused(head.tobuf() + bytes(1024))
    head.size = 60_000
    assert "an extended header is broken" in refused(head.tobuf() + b"1" * 60_416)


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (b"22 GNU.sparse.major=1\n", "the archive holds a sparse file"),
        (b"19 linkpath=/etc/x\n", "is a link"),
        (b"13 size=many\n", "'./neff.json' has the size 'many'"),
        (b"14 path=../x.\n", "'../x.' leads out of the archive"),
        (b"99 path=x\n", "an extended header is broken"),
    ],
)
def test_extended_headers_cannot_hide_harm(record: bytes, error: str) -> None:
    """What a plain header may not say, a pax header may not either."""
    head = tarfile.TarInfo("pax")
    head.type, head.size = tarfile.XHDTYPE, len(record)
    tar = head.tobuf() + record.ljust(512, b"\0") + archive({"neff.json": b"{}"})
    assert error in refused(tar)


def test_extended_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is what all of them hold together, and a global one changes nothing."""
    monkeypatch.setattr(tar_limits, "EXTENSIONS_BYTES_MAX", 20)
    head = tarfile.TarInfo("pax")
    head.type, head.size = tarfile.XGLTYPE, 12
    tar = head.tobuf() + b"12 path=x.y\n".ljust(512, b"\0")
    assert "does not hold this file" in refused(tar + archive({"x.json": b"{}"}))
    assert "more than 20 bytes of extended headers" in refused(tar + tar + archive({}))


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda tar: tar[:600], "the archive ends"),
        (lambda tar: b"\xff" + tar[1:], "does not add up to its checksum"),
        (lambda tar: with_checksum(tar[:124] + b"9" * 11 + tar[135:]), "is no number"),
        (lambda tar: with_checksum(tar[:124] + b"\x80" + b"\xff" * 11 + tar[136:]), "has the size"),
    ],
)
def test_broken_archives_say_where(spoil: Callable[[bytes], bytes], error: str) -> None:
    """A tar that is cut off or damaged is told with its byte."""
    assert error in refused(spoil(archive({"neff.json": b"{}" * 400})))


def test_an_archive_may_end_without_its_blank_blocks() -> None:
    """Some writers leave the two blank blocks out."""
    tar = archive({"neff.json": b"{}"}).rstrip(b"\0")
    assert json_files(tar.ljust(1024, b"\0"), 0, "") == {"neff.json": b"{}"}


def test_broken_gzip_is_told() -> None:
    """A payload that only begins like gzip is a broken one."""
    with pytest.raises(InvalidProgram, match="broken gzip data"):
        json_files(b"\x1f\x8b" + b"\xff" * 100, 0, "")


def damaged(data: st.DataObject, good: bytes) -> bytes:
    """Some bytes changed, and perhaps the end cut off."""
    held = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(0, 255))
    return bytes(held[: data.draw(st.integers(1, len(held)) | st.just(len(held)))])


def try_file(data: st.DataObject) -> None:
    """A program or an InvalidProgram."""
    with suppress(InvalidProgram):
        assert isinstance(formats.read(damaged(data, data.draw(st.sampled_from(FILES)))), Program)


def try_archive(data: st.DataObject) -> None:
    """The same behind a hash that fits, with checksums that do."""
    tar = damaged(data, data.draw(st.sampled_from(TARS)))
    with suppress(InvalidProgram):
        found = json_files(with_checksum(tar), 0, "")
        assert all(not name.startswith("/") and ".." not in name.split("/") for name in found)
    with suppress(InvalidProgram):
        assert isinstance(formats.read(packed(with_checksum(tar))), Program)


@given(st.data())
def test_damaged_files_give_a_program_or_an_error(data: st.DataObject) -> None:
    """Whatever is changed or cut, nothing but an InvalidProgram comes out."""
    try_file(data)
    try_archive(data)


@pytest.mark.nightly
@given(st.data())
def test_damaged_files_long(data: st.DataObject) -> None:
    """The same, for as long as the profile says."""
    try_file(data)
    try_archive(data)


NAMES = st.text("abc/.d-é", min_size=1, max_size=160).filter(
    lambda name: not name.startswith("/") and ".." not in name and name.strip("/.")
)


@given(
    st.dictionaries(NAMES.map(lambda name: f"{name}x.json"), st.binary(max_size=900), max_size=5),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_archives_read_as_the_library_reads_them(files: dict[str, bytes], form: int) -> None:
    """On harmless archives our reader and the standard library's agree."""
    clean = {tar_limits.clean(name): content for name, content in files.items()}
    tar = archive(clean, form=form)
    with tarfile.open(fileobj=io.BytesIO(tar)) as held:
        theirs = {tar_limits.clean(each.name): held.extractfile(each).read() for each in held}
    assert json_files(tar, 0, "") == theirs == clean
