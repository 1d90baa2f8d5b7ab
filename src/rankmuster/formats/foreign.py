"""What bytes are that no reader here reads: other encodings, packings and other tools' files.

Whoever dumped the wrong thing is told which thing it is and what to dump instead. Looks at the
beginning only, and claims nothing that it does not recognise.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection
from typing import NamedTuple

from rankmuster.formats.json_text import Buffer

HEAD_BYTES = 1 << 20  # keys of a recorder's dump stand within its first entry


class Foreign(NamedTuple):
    """What something is, as "it is ..." goes on, and what to give instead."""

    what: str
    fix: str


UTF_8 = "save it as UTF-8: iconv -f {0} -t UTF-8"
UNPACK = "unpack it (of packed files, gzip is read)"
HLO_TEXT = "give HLO text, as compiled.as_text() and lowered.as_text(dialect='hlo') print it"
RECORDED = (
    "no version of these is read here: give the programs that ran (HLO, NEFF, JSON), or compare "
    "the dumps of all ranks with PyTorch's own torchfrtrace"
)

MLIR = Foreign("StableHLO, or other MLIR", HLO_TEXT)
RECORDER = Foreign("a Flight Recorder dump of PyTorch", RECORDED)
LISTING = Foreign("a listing of neuron-ls", "name it with --cluster, beside a program")
PICKLE = Foreign("a Python pickle", "pickles are never loaded here: give the program itself")
HLO_PROTO = Foreign("an HLO protobuf", "dump text: --xla_dump_hlo_as_text, compiled.as_text()")

# The longer mark first: that of UTF-32 begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
PACKINGS = (
    (b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (b"\xfd7zXZ\0", "packed with xz"),
    (b"BZh", "packed with bzip2"),
    (b"PK\x03\x04", "a zip archive"),
)
BYTECODE = b"ML\xefR"
MLIR_TEXT = re.compile(
    rb'\s*+(?://[^\n]*+\s*+)*+(?:module\s|"?builtin\.module\b|"?func\.func\b|sdy\.mesh\b|#[\w.]+\s*+=\s*+\S)'
)
PICKLED = re.compile(rb"\x80[\x02-\x05]")
# HloProto holds a module (1), that its name (1) and the name of its entry (2): facts of the format.
PROTO = re.compile(rb"\n[\x80-\xff]{0,4}[\0-\x7f]\n(?P<length>[\x01-\x7f])", re.DOTALL)
RECORDER_KEYS = frozenset({"pg_config", "pg_status", "nccl_comm_state"})
RECORDER_WORDS = re.compile(rb"pg_config|pg_status|profiling_name|collective_seq_id")
LIST = re.compile(rb"\s*+\[")
TRACED = "give the program that it was taken of"
OBJECTS = (
    ({"nodes", "arg_nodes", "heads"}, "the manifest of an unpacked NEFF", "name its folder"),
    ({"traceEvents"}, "a profiler's trace", TRACED),
    ({"schema", "nodes"}, "an execution trace", TRACED),
    ({"schema", "verdict"}, "a report of ours", "give the programs that it is about"),
)


def recognised(data: Buffer) -> Foreign | None:
    """What *data*, which no reader claims, is; None where that is not known either."""
    if encoding := encoding_of(data[:64]):
        return Foreign(f"{encoding} text", UTF_8.format(encoding))
    for magic, packed in PACKINGS:
        if data[: len(magic)] == magic:
            return Foreign(packed, UNPACK)
    head = data[:HEAD_BYTES]
    if PICKLED.match(head):
        return RECORDER if RECORDER_WORDS.search(head) else PICKLE
    if LIST.match(head):
        is_listing = b'"neuron_device"' in head
        return RECORDER if RECORDER_WORDS.search(head) else LISTING if is_listing else None
    if head.startswith(BYTECODE) or MLIR_TEXT.match(head):
        return MLIR
    return HLO_PROTO if is_hlo_proto(head) else None


def encoding_of(head: bytes) -> str:
    """The encoding other than UTF-8 that a text is in: by its mark, or by every other zero."""
    for mark, name in MARKS:
        if head.startswith(mark):
            return name
    low, high = head[::2], head[1::2]
    if len(head) > 1 and not any(high) and all(low):
        return "UTF-16LE"
    return "UTF-16BE" if len(head) > 1 and not any(low) and all(high) else ""


def is_hlo_proto(head: bytes) -> bool:
    """Whether *head* begins with a module, its name and the name of its entry."""
    match = PROTO.match(head)
    return match is not None and head[match.end() + match["length"][0] :][:1] == b"\x12"


def object_with(keys: Collection[str]) -> Foreign | None:
    """What a JSON object with *keys*, which does not say its format, is; None for who knows."""
    if not RECORDER_KEYS.isdisjoint(keys):
        return RECORDER
    for known, what, fix in OBJECTS:
        if known.issubset(keys):
            return Foreign(what, fix)
    return None
