"""The original's structs as they stand in memory: little endian, x86-64, release 2.31.24.

Layouts, what an image of one holds, and images of our own worlds and groups. Pure: bytes in, bytes
out; pointers are shown and never followed.
"""

from __future__ import annotations

from rankmuster.abi.catalogue import STRUCTS as STRUCTS
from rankmuster.abi.catalogue import struct_named as struct_named
from rankmuster.abi.layout import Layout as Layout
