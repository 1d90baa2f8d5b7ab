"""The runtime's log: lines as the original writes them, with module, function and level.

ERROR ENC:get_nccl_comm ...
"""

from __future__ import annotations

import logging

from rankmuster.errors import MusterError
from rankmuster.messages import ERROR, Line

LOGGER = logging.getLogger("rankmuster.nrt")
FORMAT = "%(levelname)s %(module)s:%(funcName)s %(message)s"
"""For a handler of this logger: prints lines as above."""


def report(error: BaseException, entry_point: str) -> None:
    """Log what an entry point would have raised: first causes first, in the original's words."""
    seen: list[BaseException] = [error]
    while (cause := seen[-1].__cause__) is not None and cause not in seen:
        seen.append(cause)
    for each in reversed(seen):
        what = getattr(each, "what", None)
        if isinstance(what, Line) or each is error:
            say(what if isinstance(what, Line) else str(each), entry_point, _fix(each))


def say(text: str, function: str, fix: str = "", level: int = ERROR) -> None:
    """Log one line of *function*, or of the function that a `Line` comes from."""
    module = "NRT"
    if isinstance(text, Line):
        module, function, level = text.origin.module, text.origin.function, text.origin.level
    if LOGGER.isEnabledFor(level):
        whole = f"{text}; {fix}" if fix and fix not in text else str(text)
        # The record's module is the stem of its path, which is how it gets the original's tag.
        record = LOGGER.makeRecord(LOGGER.name, level, module, 0, whole, (), None, function)
        LOGGER.handle(record)


def _fix(error: BaseException) -> str:
    return error.fix if isinstance(error, MusterError) else ""
