from __future__ import annotations

import pytest
from command_line import Ran, Rankmuster

from rankmuster.cli import run


@pytest.fixture
def rankmuster(capsys: pytest.CaptureFixture[str]) -> Rankmuster:
    """`rankmuster` with these arguments."""

    def ran(*arguments: object) -> Ran:
        code = run([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    return ran
