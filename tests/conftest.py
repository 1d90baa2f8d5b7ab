from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Public HLO and StableHLO files kept beside the project, read in place."""
    if not CORPUS.is_dir():
        pytest.skip("the corpus of public dumps is not beside this checkout")
    return CORPUS


def open_descriptors() -> dict[str, str]:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():  # macOS has no such view
        return {}
    found = {}
    for entry in folder.iterdir():
        try:
            found[entry.name] = os.readlink(entry)
        except FileNotFoundError:  # the descriptor of this listing itself
            continue
    return found


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    """Fail a test that leaves a thread or a descriptor behind."""
    threads = set(threading.enumerate())
    before = open_descriptors()
    yield
    gc.collect()
    left = [t.name for t in threading.enumerate() if t not in threads]
    assert not left, f"threads left behind: {left}"
    after = open_descriptors()
    new = {fd: what for fd, what in after.items() if before.get(fd) != what}
    kinds = ("socket:", "pipe:", "anon_inode:", "/tmp", "/dev/shm")
    kept = {fd: what for fd, what in new.items() if what.startswith(kinds)}
    assert not kept, f"descriptors left behind: {kept}"
