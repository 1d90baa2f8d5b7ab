"""The JSON files of a NEFF's archive."""

from __future__ import annotations

from rankmuster.formats.json_text import Buffer
from rankmuster.formats.neff.stream import Stream, unpacked
from rankmuster.formats.neff.tar import BLOCK, FOLDER, members

JSON_BYTES_MAX = 1 << 26  # each, and four times that in all
SKIPPED = "wavegraph-bin.json"  # the loader skips it too, and it is large


def json_files(data: Buffer, start: int, where: str) -> dict[str, bytes]:
    """The JSON files of the archive from byte *start* of *data* on, by their clean names.

    Raises `InvalidProgram` for an archive that is broken, hostile or too large.
    """
    stream = Stream(chunks=unpacked(data, start, where), where=where)
    found: dict[str, bytes] = {}
    names: set[str] = set()
    held = 0
    for member in members(stream):
        if member.type == FOLDER:
            continue
        if member.name in names:
            raise stream.error(f"{member.name!r} stands twice in the archive")
        names.add(member.name)
        if is_wanted(member.name):
            held += member.size
            if held > 4 * JSON_BYTES_MAX:
                raise stream.error(f"{member.name!r}: more than {4 * JSON_BYTES_MAX} bytes of JSON")
            found[member.name] = stream.take(member.size, JSON_BYTES_MAX, repr(member.name))
        else:
            stream.skip(member.size)
        stream.skip(-member.size % BLOCK)
    return found


def is_wanted(name: str) -> bool:
    """Whether the manifest chain could name the file."""
    return name.endswith(".json") and not name.endswith(SKIPPED)
