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


def left_behind(threads: set[threading.Thread], before: dict[str, str]) -> list[str]:
    """What is there now and was not: threads by name, descriptors by what they are open on."""
    left = [thread.name for thread in threading.enumerate() if thread not in threads]
    kinds = ("socket:", "pipe:", "anon_inode:", "/tmp", "/dev/shm")
    now = {fd: what for fd, what in open_descriptors().items() if before.get(fd) != what}
    return left + [f"{fd}: {what}" for fd, what in now.items() if what.startswith(kinds)]


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    """Fail a test that leaves a thread or a descriptor behind."""
    threads = set(threading.enumerate())
    before = open_descriptors()
    yield
    if left_behind(threads, before):
        gc.collect()  # only now: with all modules loaded it takes 50 ms
        assert not left_behind(threads, before)
