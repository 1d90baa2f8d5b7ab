"""The local barrier: who leads, who waits for whom, and who is named when somebody is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from nrt_worlds import in_threads

from rankmuster.errors import BadArgument, Closed, DeadlineExceeded, MusterError, PeerLost
from rankmuster.local_barrier import LocalBarrier, children, open_barrier, plan
from rankmuster.transport.base import Deadline

TWO_HOSTS = [(0, "a", 1), (4, "b", 1), (1, "a", 1), (2, "a", 2), (3, "a", 2)]
FOUR = [(device, "here", device // 2) for device in range(4)]


def name() -> bytes:
    return os.urandom(16)


def test_leaders() -> None:
    """The first member of each process leads it; members of other machines do not count."""
    mine = plan(TWO_HOSTS, 3)
    assert (mine.participants, mine.leaders, mine.my_leader) == ((0, 1, 2, 3), (0, 2), 2)
    assert plan(TWO_HOSTS, 4).participants == (4,)
    with pytest.raises(BadArgument):
        plan(TWO_HOSTS, 9)


def test_who_reports_to_whom() -> None:
    """Members report to their leader, leaders to the first of them."""
    parents = {device: plan(TWO_HOSTS, device).parent for device in range(4)}
    assert parents == {0: None, 1: 0, 2: 0, 3: 2}
    assert children(TWO_HOSTS, 0) == {1, 2}


def test_nobody_leaves_before_all_have_come() -> None:
    """Round after round, every member is seen to arrive before any leaves."""
    barrier_name, arrived, seen = name(), [0] * 4, []

    def member(me: int) -> None:
        deadline = Deadline.after(5.0)
        with open_barrier(barrier_name, FOUR, me, deadline) as barrier:
            for turn in range(1, 20):
                arrived[me] = turn
                barrier.wait(deadline)
                seen.append(min(arrived) >= turn)
                barrier.wait(deadline)

    in_threads([lambda me=me: member(me) for me in range(4)])
    assert seen == [True] * 4 * 19


def test_one_alone() -> None:
    """A barrier of one never waits and has one address."""
    with open_barrier(name(), [(5, "here", 1)], 5, Deadline.after(1.0)) as barrier:
        barrier.wait(Deadline.after(1.0))
        assert list(barrier.handles) == [5]


def failing(leave: int, *, late: bool = False) -> list[str]:
    """What each of four members is told when one leaves, or does not come, instead of waiting."""
    barrier_name = name()

    def member(me: int) -> str:
        barrier = open_barrier(barrier_name, FOUR, me, Deadline.after(5.0))
        try:
            if me == leave:
                if late:
                    time.sleep(0.8)
                return "left"
            barrier.wait(Deadline.after(0.2 if late and me == 2 else 5.0))
        except MusterError as error:
            with pytest.raises(type(error)):  # from then on, without waiting again
                barrier.wait(Deadline.after(5.0))
            return f"{type(error).__name__}: {error}"
        finally:
            time.sleep(0.05 if me != leave else 0.0)
            barrier.close()
        return "passed"

    return in_threads([lambda me=me: member(me) for me in range(4)])


@pytest.mark.parametrize("leave", range(4))
def test_a_lost_member_is_named_to_all(leave: int) -> None:
    """Leaf, leader or first leader: whoever is lost ends every other wait with its name."""
    told = failing(leave)
    text = f"PeerLost: device {leave} was lost at the local barrier"
    assert told == ["left" if me == leave else text for me in range(4)]


def test_a_late_member_is_named() -> None:
    """Who does not come in time is named to all by the one who waits for it."""
    told = failing(3, late=True)
    assert all(each.startswith("DeadlineExceeded: device 3 did not come") for each in told[:3])


@pytest.mark.parametrize("late", range(4))
def test_all_wait_alike_and_name_the_late_one(late: int) -> None:
    """Nobody takes for late who itself waited: those that others report to give up first."""
    barrier_name = name()

    def member(me: int) -> str:
        with open_barrier(barrier_name, FOUR, me, Deadline.after(5.0)) as barrier:
            if me == late:
                time.sleep(2.2)
                return "came too late"
            with pytest.raises(DeadlineExceeded) as caught:
                barrier.wait(Deadline.after(2.0))
            time.sleep(0.2)
            return str(caught.value)

    told = in_threads([lambda me=me: member(me) for me in range(4)])
    assert all(f"device {late} did not come" in each for me, each in enumerate(told) if me != late)


def test_nobody_ever_comes() -> None:
    """Opening ends by its deadline, on either side."""
    for me in (0, 3):
        with pytest.raises(DeadlineExceeded):
            open_barrier(name(), FOUR, me, Deadline.after(0.1))


def test_closed() -> None:
    """A closed barrier says so."""
    barrier: LocalBarrier = open_barrier(name(), [(0, "here", 1)], 0, Deadline.after(1.0))
    barrier.close()
    barrier.close()
    with pytest.raises(Closed):
        barrier.wait(Deadline.after(1.0))


PROCESS = """
import sys, time
from rankmuster.local_barrier import open_barrier
from rankmuster.transport.base import Deadline
members = [(0, "h", 0), (1, "h", 1)]
barrier = open_barrier(bytes.fromhex(sys.argv[1]), members, 1, Deadline.after(20))
barrier.wait(Deadline.after(20))
print("passed", flush=True)
time.sleep(20)
"""


def test_unrelated_processes_meet() -> None:
    """Two processes that share nothing but a name meet; one that is killed is named."""
    shared = name()
    other = subprocess.Popen([sys.executable, "-c", PROCESS, shared.hex()], stdout=subprocess.PIPE)
    try:
        with open_barrier(shared, [(0, "h", 0), (1, "h", 1)], 0, Deadline.after(20.0)) as barrier:
            barrier.wait(Deadline.after(20.0))
            assert other.stdout is not None
            assert other.stdout.readline() == b"passed\n"
            other.send_signal(signal.SIGKILL)
            with pytest.raises(PeerLost, match="device 1 was lost"):
                barrier.wait(Deadline.after(20.0))
    finally:
        other.kill()
        other.communicate()
