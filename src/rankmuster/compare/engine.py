"""The comparison itself: communicators, order across them, circles, and what is left over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankmuster.compare.circle import circle
from rankmuster.compare.order import crossed
from rankmuster.compare.shared import kin, shared_communicators
from rankmuster.compare.sides import stories_of
from rankmuster.compare.story import Story
from rankmuster.compare.telling import tell
from rankmuster.compare.votes import Votes
from rankmuster.compare.whole import same_programs, world_sizes
from rankmuster.copies import ProgramClass, ProgramCopy, classes
from rankmuster.finding import Finding, Severity, finding

MOST = 20
"""So many differences are told in full; of the rest, how many there are."""


def compare(
    copies: Sequence[ProgramCopy], world_size: int, *, same: bool = False
) -> tuple[Finding, ...]:
    """Compare the programs of *copies*, each by every communicator that it shares with others.

    Devices without a copy are not compared. With *same*, programs must be equal even where no
    other process can see it. Devices at or beyond *world_size* count for nothing.
    """
    held = classes(copies)
    return compare_classes([each for each in held if each.devices[:1] < (world_size,)], same=same)


def compare_classes(held: Sequence[ProgramClass], *, same: bool = False) -> tuple[Finding, ...]:
    """See `compare`; for those who have sorted the copies into classes already."""
    programs = kin(held)
    found = list(world_sizes(held))
    if len(programs) > 1:
        found += differences(held, programs)
        if not any(each.severity is Severity.ERROR for each in found):
            found += filter(None, (circle(programs),))
    return (*found, *same_programs(held, programs, found, same=same))


def differences(
    held: Sequence[ProgramClass], programs: Sequence[ProgramClass]
) -> Iterator[Finding]:
    """Every difference on what the programs share, one finding for each cause."""
    runs = {device: each for each in held for device in each.devices}
    shared = tuple(shared_communicators(programs))
    votes = Votes(programs)
    stories = sorted(
        (*stories_of(shared, votes), *crossed(shared, votes)),
        key=lambda each: each.first_place,
    )
    for story in stories[:MOST]:
        yield tell(story, runs)
    if rest := stories[MOST:]:
        yield remaining(rest)


def remaining(rest: Sequence[Story]) -> Finding:
    """One finding that counts those not told."""
    devices = {
        device for story in rest for holding in story.split()[0] for device in holding.devices
    }
    codes = ", ".join(sorted({story.code for story in rest}))
    is_error = any(story.severity is not Severity.WARNING for story in rest)
    return finding(
        rest[0].code,
        f"{len(rest)} more differences ({codes}) are not told one by one",
        severity=Severity.ERROR if is_error else Severity.WARNING,
        ranks=devices,
    )
