from __future__ import annotations

from rankmuster.checking import check
from rankmuster.copies import ProgramCopy
from rankmuster.program import Program
from rankmuster.testing.build import all_reduce, program
from rankmuster.world import World

BUSY = program(all_reduce(), groups=[[[0, 1]]])
IDLE = program(groups=[[[0, 1]]])


def verdict(*programs: Program) -> str:
    copies = [ProgramCopy(program=each, devices=(n,)) for n, each in enumerate(programs)]
    return check(copies, World(size=len(programs), source="file")).verdict


def test_a_process_may_have_nothing_to_do() -> None:
    """A JSON file that lists no ops says so, and agrees with those that leave it alone."""
    assert verdict(BUSY, BUSY, IDLE) == "agree"


def test_a_world_without_ops_is_undecided() -> None:
    """If nobody communicates there is nothing to compare, which is never a match."""
    assert verdict(IDLE, IDLE) == "undecided"


def test_a_member_that_posts_nothing_differs() -> None:
    """Doing nothing is no excuse where others wait."""
    assert verdict(BUSY, IDLE) == "differ"
