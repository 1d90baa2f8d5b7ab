"""Who stood still is named, and nobody whom it kept waiting or whom it found silent."""

from __future__ import annotations

import msgspec
import pytest

from rankmuster.errors import DeadlineExceeded, PeerLost
from rankmuster.protocol.causes import SILENT, Cause, root_causes
from rankmuster.protocol.closing import Answer, blame, closing, report
from rankmuster.protocol.frames import pack_closing
from rankmuster.protocol.steps import Recv, Send
from rankmuster.pulse import NEVER, Pulse
from rankmuster.testing.simulate import simulate


def silent(process: int, *, still_s: float = 0.0) -> Cause:
    """What somebody reports who waited for *process* in vain."""
    cause = blame(process, DeadlineExceeded("no answer"), "while others waited", "bootstrap")
    return msgspec.structs.replace(cause, still_s=still_s)


def named(reports: dict[int, Cause]) -> set[int | None]:
    return {cause.process for cause in root_causes(reports)}


def test_a_late_look_is_a_standstill_for_a_while() -> None:
    """A look a beat late is a busy machine; one that is later counts for the next four beats."""
    pulse = Pulse(looked_at=0.0, beat_s=1.0)
    for now, still_s, unseen_since in [
        (1.0, 0.0, NEVER),
        (3.0, 0.0, NEVER),
        (10.0, 6.0, 3.0),
        (11.0, 6.0, 3.0),
        (12.5, 6.0, 3.0),
        (14.0, 0.0, 3.0),
    ]:
        pulse.look(now)
        assert (pulse.still_s, pulse.unseen_since) == (still_s, unseen_since)


def test_what_came_meanwhile_is_unseen_until_a_look_that_began_after() -> None:
    """Who stands still while it takes what came has not seen what came since."""
    pulse = Pulse(looked_at=0.0, beat_s=1.0)
    before = pulse.unseen_since
    pulse.look(5.0)
    pulse.took_all(before)
    assert pulse.unseen_since == 0.0
    pulse.took_all(0.0)
    assert pulse.unseen_since == NEVER


def test_who_is_silent_to_the_end_is_named_alone() -> None:
    """Those who gave up late on a busy machine waited too: all blame leads to the one."""
    chain = {0: silent(2), 2: silent(5), 12: silent(8), 13: silent(12), 8: silent(0)}
    assert named(chain | {5: silent(5)}) == {5}
    assert named(chain | {5: silent(5), 12: silent(8, still_s=0.3)}) == {5}


def test_who_wakes_and_blames_others_is_named_alone() -> None:
    """Where everybody waited for somebody, the one that stood still is at fault."""
    assert named({0: silent(1), 1: silent(0, still_s=4.0)}) == {1}
    ring = {0: silent(2), 2: silent(5), 5: silent(8, still_s=3.0), 8: silent(0, still_s=0.4)}
    assert named(ring) == {5}


def test_who_wakes_is_not_believed_about_those_who_were_ready() -> None:
    """What they sent in time waited for it to wake."""
    assert named({2: silent(7, still_s=3.0), 3: silent(2)}) == {2}


def test_who_was_ready_too_late_is_named_where_nobody_says_more() -> None:
    """It woke, sent what it owed, and never knew that it was given up."""
    assert named({3: silent(2)}) == {2}


def test_a_root_that_held_all_up_is_named() -> None:
    """It had no trouble itself; those who waited for each other by it are not at fault."""
    causes = {1: silent(2), 2: silent(3), 3: silent(1)}
    ranks = [closing(n, 4, causes.get(n), still_s=lambda n=n: 0.0 if n else 2.0) for n in range(4)]
    for answer in simulate(ranks).outcome.values():
        assert [(each.code, each.process) for each in answer.causes] == [(SILENT, 0)]


def test_a_root_that_comes_too_late_blames_nobody() -> None:
    """Whoever is gone by then gave it up."""
    ranks = [closing(n, 3, None, in_time=lambda: False) for n in range(3)]
    world = simulate(ranks, dies={2: 0})
    assert {c.process for answer in world.outcome.values() for c in answer.causes} == {0}


def test_an_answer_is_heard_although_the_root_has_left() -> None:
    """It gave up somebody who stood still, told all, and was gone before that one spoke."""
    steps = report(1, None)
    assert isinstance(next(steps), Send)
    assert isinstance(steps.throw(PeerLost("gone")), Recv)
    with pytest.raises(StopIteration) as end:
        steps.send(pack_closing())
    assert end.value.value == Answer(go=True)
