"""Writes valid NEFF files, for tests: ours and those of whoever builds on this library.

What a compiler would put beside the manifests (engine instructions, weights) is left out; readers
that need it will not find it.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rankmuster.formats.neff.header import HEADER, HEADER_BYTES, PACKED, payload_hash

Sets = Sequence[Sequence[Sequence[int]]]


def neff(
    replica_groups: Sets = (),
    src_target_pairs: Sets = (),
    *,
    package: int = PACKED,
    extra: Mapping[str, bytes] | None = None,
    header: Mapping[str, Any] | None = None,
    **said: Any,
) -> bytes:
    """A NEFF of one graph with these sets; *said* as in `manifests`, *header* as in `packed`.

    *extra* holds more files of the archive by name.
    """
    files = manifests([definition(replica_groups, src_target_pairs)], **said)
    return packed(archive(files | dict(extra or {})), package=package, **(header or {}))


def definition(replica_groups: Sets = (), src_target_pairs: Sets = (), **rest: Any) -> Any:
    """The def.json of one graph; *rest* are more of its keys (`num_streams`, and so on)."""
    return {"replica_groups": replica_groups, "src_target_pairs": src_target_pairs, **rest}


def manifests(
    definitions: Sequence[Any], *, target: str = "cayman", **rest: Any
) -> dict[str, bytes]:
    """The JSON files of graphs with these *definitions*, by name; *rest* goes into each of them."""
    graphs = [
        {"name": f"sg{number:02}", "definition": f"sg{number:02}/def.json"}
        for number in range(len(definitions))
    ]
    node = {"op": "tvm_op", "name": "a", "attrs": {"func_name": "__kelf", "kelf": "kelf-a.json"}}
    entry = {"nodes": [{"op": "null", "name": "input"}, node], "arg_nodes": [0], "heads": [[1, 0]]}
    files = {
        "neff.json": entry,
        "kelf-a.json": {"version": "1.0", "target": target, "graphs": graphs},
        **{
            graph["definition"]: {**each, **rest}
            for graph, each in zip(graphs, definitions, strict=True)
        },
    }
    return {name: msgspec.json.encode(value) for name, value in files.items()}


def archive(
    files: Mapping[str, bytes],
    more: Sequence[tarfile.TarInfo] = (),
    *,
    form: int = tarfile.PAX_FORMAT,
) -> bytes:
    """A tar of *files*, written as the compiler does ("./sg00/def.json"); *more* are empty."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in more:
            tar.addfile(member)
    return buffer.getvalue()


def packed(
    tar: bytes,
    *,
    package: int = PACKED,
    major: int = 2,
    minor: int = 0,
    feature_bits: int = 0,
    core_size: int = 0,
    cores: int = 1,
    name: str = "model",
    build: str = "rankmuster.testing",
) -> bytes:
    """A NEFF around an archive: header, hash and payload. *package* 1 is plain, 2 is gzip."""
    payload = gzip.compress(tar, mtime=0) if package == PACKED else tar
    blank = bytes(HEADER_BYTES)
    digest = payload_hash(package, blank + payload)
    start = (package, HEADER_BYTES, len(payload), major, minor, build.encode(), cores)
    end = (digest, bytes(16), name.encode(), cores, bytes(64), feature_bits, core_size)
    return HEADER.pack(*start, *end) + payload
