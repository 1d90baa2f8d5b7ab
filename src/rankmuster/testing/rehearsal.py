"""A whole bring-up in one thread: every process runs `session.come_up` over virtual connections.

Nothing of a process is played: census, comparison, groups and closing round are those of a real
one, and so is the code that carries their messages. Only connections and clock are virtual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from rankmuster.bringup import BringUp
from rankmuster.errors import InvariantError
from rankmuster.launch.base import Place
from rankmuster.program import Program
from rankmuster.report import Disagreement
from rankmuster.resolve import Resolved
from rankmuster.session import Held, Session, come_up
from rankmuster.testing.faults import STEP, Fault, Strangers
from rankmuster.testing.process import Killed, Liar, Process, Slow, Stopped
from rankmuster.testing.rehearsed import Rehearsed, Said, slowest_path
from rankmuster.testing.scenario import Scenario, altered, usual_program
from rankmuster.testing.virtual import VirtualEndpoint
from rankmuster.testing.virtual_network import VirtualNetwork
from rankmuster.transport.base import Deadline, Identity
from rankmuster.transport.handshake import Credentials

ROOT = "10.0.0.1:39999"
SECRET, JOB = b"s" * 32, b"j" * 16
HOST_PROCESSES = 8
START_S = 0.05  # within which the processes start
READ_S = 0.02  # the longest that one reads its program
LATE_S = 1.0  # after its deadline, a process that has not ended hangs
KINDS = ("left without a word", "not our protocol", "wrong secret", "silent")


def rehearse(scenario: Scenario) -> Rehearsed:
    """Run *scenario* to its end; the same one always ends the same way."""
    return _Rehearsal(scenario).run()


class _Rehearsal:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.network = VirtualNetwork(scenario.seed, rendezvous=scenario.rendezvous)
        self.program = scenario.program or usual_program(scenario.world_size)
        self.other = altered(self.program)
        self.processes: list[Process] = []
        self.running = 0
        self.said: list[Said] = []

    def run(self) -> Rehearsed:
        """Start everything, and let it happen."""
        scenario, network = self.scenario, self.network
        absent = set(scenario.absent)
        for number in range(scenario.processes):
            if number not in absent:
                self._start_at(network.random() * START_S, number)
        for double in scenario.doubles:
            self._start_at(double.when, double.process, double=True)
        for strangers in scenario.strangers:
            network.at(strangers.when, partial(self._knock, strangers))
        last_start = max((each.when for each in scenario.doubles), default=START_S)
        asleep = sum(each.seconds for each in scenario.faults)
        end = max(last_start, START_S) + scenario.deadline_s + asleep + LATE_S
        network.run(end, lambda: self.running > 0)
        for process in self.processes:
            process.steps.close()
            if process.ending is None:
                process.ending = process.ends("hangs", end)
        return self._rehearsed()

    # the lives of processes

    def _start_at(self, time: float, number: int, *, double: bool = False) -> None:
        self.running += 1
        self.network.at(time, partial(self._start, number, double=double))

    def _start(self, number: int, *, double: bool) -> None:
        process = self._process(number, double=double)
        self.processes.append(process)
        if process.place.is_root and ROOT not in self.network.listeners:
            process.endpoint.listen_at(ROOT)
        for fault in process.faults:
            if isinstance(fault.when, float):
                # One that starts later meets it as it starts.
                self.network.at(fault.when, partial(self._befall, process, fault))
        self._turn(process)

    def _process(self, number: int, *, double: bool) -> Process:
        scenario, index = self.scenario, len(self.processes)
        host = f"other{number}" if double else f"host{number // HOST_PROCESSES}"
        place = self._place(number, host, index)

        def mine() -> Process:
            return self.processes[index]

        endpoint = VirtualEndpoint(
            self.network,
            f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}",
            Credentials(place.secret, place.job, place.epoch),
            Identity(number, min(place.devices), len(place.devices)),
            step=lambda: self._count_packet(mine()),
            wake=lambda: self._wake(mine()),
        )
        deadline = Deadline.after(scenario.deadline_s, endpoint.now)
        up = (Liar if number in scenario.liars else BringUp)(
            place,
            deadline,
            say=lambda line: self.said.append(Said(self.network.now, number, line)),
            on_phase=lambda phase: self._begin(mine(), phase),
            endpoint=endpoint,
        )
        if isinstance(up, Liar):
            up.held = Resolved(self.other)
        return Process(
            number=number,
            double=double,
            place=place,
            faults=[each for each in scenario.faults if each.process == number and not double],
            endpoint=endpoint,
            up=up,
            steps=come_up(
                up, self._reader(number), scenario.path, aside=partial(self._reading, deadline.now)
            ),
        )

    def _place(self, number: int, host: str, index: int) -> Place:
        scenario = self.scenario
        claimed = tuple(device for process, device in scenario.claims if process == number)
        return Place(
            process=number,
            processes=scenario.processes,
            devices=claimed or scenario.devices(number),
            world_size=dict(scenario.sizes).get(number, scenario.world_size),
            root=ROOT,
            job=JOB,
            epoch=0,
            secret=SECRET if number not in scenario.outsiders else b"x" * 32,
            host=host,
            pid=1000 + index,
        )

    def _reader(self, number: int) -> Callable[[], Program]:
        held = self.other if number in self.scenario.differ else self.program
        return lambda: held

    def _reading(self, now: Callable[[], float], read: Callable[[], Held]) -> Slow:
        return Slow(read=read, now=now, done_at=now() + self.network.random() * READ_S)

    def _knock(self, strangers: Strangers) -> None:
        credentials, nobody = Credentials(b"", b"", 0), Identity(0, 0, 0)
        stranger = VirtualEndpoint(
            self.network, "10.255.0.1", credentials, nobody, step=_nothing, wake=_nothing
        )
        for number in range(strangers.number):
            stranger.stranger(ROOT, KINDS[number % len(KINDS)])

    # turns

    def _wake(self, process: Process) -> None:
        if not process.woken and process.ending is None:
            process.woken = True
            self.network.at(process.endpoint.busy_until, partial(self._turn, process))

    def _turn(self, process: Process) -> None:
        """Let a process do what it can, until it waits again or has ended."""
        process.woken = False
        if process.ending is not None:
            return
        if self._is_busy(process):
            self._wake(process)
            return
        if process.spins(self.network.now):
            raise InvariantError(f"process {process.number} spins; {self.scenario.replay}")
        try:
            self._advance(process)
        except StopIteration as stop:
            self._end(process, stop.value)
        except Disagreement as no:
            self._end(process, no)
        except Killed:
            self._kill(process)
        except Stopped:
            self._stop(process)
        else:
            if self._is_busy(process):
                self._wake(process)
            else:
                self._set_alarm(process)

    def _is_busy(self, process: Process) -> bool:
        return self.network.now < process.endpoint.busy_until

    def _advance(self, process: Process) -> None:
        """As `Switchboard.drive`, but for the waiting."""
        board = process.up.board
        if process.wait is None:
            process.wait = next(process.steps)
        board.turn(0.0)
        # Who was made busy sees what came meanwhile before it looks at the clock again.
        while not self._is_busy(process) and (answer := board.answer(process.wait)) is not None:
            process.wait = process.steps.send(answer)
            if not self._is_busy(process):
                board.turn(0.0)

    def _set_alarm(self, process: Process) -> None:
        assert process.wait is not None
        at = max(process.up.board.next_look(process.wait), self.network.now)
        if at != process.alarm:
            process.alarm = at
            self.network.at(at, partial(self._ring, process, at))

    def _ring(self, process: Process, alarm: float) -> None:
        if process.alarm == alarm:
            process.alarm = None
            self._turn(process)

    # what befalls them

    def _begin(self, process: Process, phase: str) -> None:
        process.phases[phase] = process.endpoint.now()
        process.strike(phase)

    def _count_packet(self, process: Process) -> None:
        process.strike(f"{STEP}{process.packets}")
        process.packets += 1

    def _befall(self, process: Process, fault: Fault) -> None:
        """Carry out, from outside, what befalls a process at a time."""
        if process.ending is not None:
            return
        if fault.kind == "kill":
            self._kill(process)
        elif fault.kind == "stop":
            self._stop(process)
        else:
            process.delay(fault.seconds)

    def _kill(self, process: Process) -> None:
        process.endpoint.die()
        self._leave(process, "killed")

    def _stop(self, process: Process) -> None:
        self._leave(process, "stopped")

    def _end(self, process: Process, outcome: Session | Disagreement) -> None:
        """It heard its answer, and leaves at once, as processes do."""
        if isinstance(outcome, Session):
            self._leave(process, "go")
        else:
            self._leave(process, outcome.report.verdict, outcome)
        process.up.close()

    def _leave(self, process: Process, how: str, no: Disagreement | None = None) -> None:
        self.running -= 1
        found = () if no is None else no.report.findings
        process.ending = process.ends(how, process.endpoint.now(), found)

    def _rehearsed(self) -> Rehearsed:
        living = [each for each in self.processes if each.ending and each.ending.lives]
        last = max(living, key=lambda each: each.ending.at if each.ending else 0.0, default=None)
        return Rehearsed(
            scenario=self.scenario,
            endings=tuple(each.ending for each in self.processes if each.ending),
            said=tuple(self.said),
            phases=_phase_times(living),
            messages=self.network.packets,
            payload_bytes=self.network.payload_bytes,
            rounds=max((each.endpoint.depth for each in living), default=0),
            slowest_path=slowest_path(last.endpoint.last) if last else (),
        )


def _phase_times(processes: list[Process]) -> dict[str, float]:
    """The longest time that any process spent in each phase."""
    longest: dict[str, float] = {}
    for process in processes:
        assert process.ending is not None
        begins = [*process.phases.items(), ("", process.ending.at)]
        for (phase, start), (_, end) in pairwise(begins):
            longest[phase] = max(longest.get(phase, 0.0), end - start)
    longest.pop("go", None)
    return longest


def _nothing() -> None:
    """A stranger neither counts nor wakes."""
