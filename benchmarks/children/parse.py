"""Read one HLO file when told to, and keep the result until standard input ends.

python parse.py rankmuster|jaxlib FILE
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from pathlib import Path


def ours(path: Path) -> Callable[[], object]:
    """Our reader over the mapped file; numpy is there before, as jaxlib brings it too."""
    import numpy  # noqa: F401, ICN001

    from rankmuster.formats import hlo

    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return lambda: hlo.read(data, where=path.name)


def jaxlib(path: Path) -> Callable[[], object]:
    """XLA's own parser; the text it needs as a `str` is there before."""
    from jaxlib import _hlo

    text = path.read_text()
    return lambda: _hlo.hlo_module_from_text(text)


def main() -> None:
    """Follow the conversation that `processes.peak_memory` holds."""
    parse = {"rankmuster": ours, "jaxlib": jaxlib}[sys.argv[1]](Path(sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()
    result = parse()
    print("done", flush=True)
    sys.stdin.read()
    del result


if __name__ == "__main__":
    main()
