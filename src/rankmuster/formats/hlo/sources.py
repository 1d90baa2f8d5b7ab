"""From metadata to "file:line": written out, or a number into the module's tables.

metadata={op_name="jit(step)/psum" source_file="/app/train.py" source_line=88}
metadata={op_name="jit(step)/psum" stack_frame_id=9}

StackFrames: 9 {file_location_id=3 parent_frame_id=2}
FileLocations: 3 {file_name_id=1 function_name_id=2 line=36 end_line=36 column=10}
FileNames: 1 "app/train.py"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from rankmuster.formats.hlo.module import Module

_FRAME_ID = re.compile(rb"\bstack_frame_id=(\d{1,18})")
_FILE = re.compile(rb'\bsource_file="((?:[^"\\]|\\.)*+)"')
_FILE_AND_LINE = re.compile(rb'\bsource_file="([^"\\]++)" source_line=([1-9]\d{0,17})\b')
_LINE = re.compile(rb"\bsource_line=(\d{1,18})")
_ENTRY = re.compile(rb'(\d{1,18})\s++(?:"((?:[^"\\]|\\.)*+)"|\{([^{}]*+)\})')
_LOCATION = re.compile(rb"\bfile_location_id=(\d{1,18})")
_NAME_AND_LINE = re.compile(rb"\bfile_name_id=(\d{1,18})\b.*?\bline=(\d{1,18})")


class Sources:
    """The source places of one module; its tables are read when first needed."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[bytes, str] = {b"": ""}
        self._frames: dict[bytes, str] = {}

    def of(self, metadata: bytes) -> str:
        """As "train.py:88"; the file alone where no line is known, "" for nothing known."""
        if metadata not in self._known:
            self._known[metadata] = self._read(metadata)
        return self._known[metadata]

    def _read(self, metadata: bytes) -> str:
        if usual := _FILE_AND_LINE.search(metadata):
            return f"{usual[1].decode('utf-8', 'replace')}:{usual[2].decode()}"
        if b"source_file=" in metadata and (file := _FILE.search(metadata)) and file[1]:
            line = _LINE.search(metadata)
            name = file[1].decode("utf-8", "replace")
            return f"{name}:{line[1].decode()}" if line and line[1] != b"0" else name
        frame = _FRAME_ID.search(metadata)
        if frame is None:
            return ""
        if frame[1] not in self._frames:
            self._frames[frame[1]] = self._frame(frame[1])
        return self._frames[frame[1]]

    def _frame(self, number: bytes) -> str:
        location = _LOCATION.search(self._tables.get((b"StackFrames", number), b""))
        if location is None:
            return ""
        place = _NAME_AND_LINE.search(self._tables.get((b"FileLocations", location[1]), b""))
        if place is None:
            return ""
        name = self._tables.get((b"FileNames", place[1]))
        return f"{name.decode('utf-8', 'replace')}:{place[2].decode()}" if name else ""

    @cached_property
    def _tables(self) -> Mapping[tuple[bytes, bytes], bytes]:
        found: dict[tuple[bytes, bytes], bytes] = {}
        for start, end in self._module.tables:
            text = self._module.text[start:end]
            name = text.split(None, 1)[0] if text else b""
            for number, string, braces in _ENTRY.findall(text):
                found[name, number] = string or braces
        return found
