"""Real processes muster: they agree, or every one of them ends with the same no and its cause."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from dataclasses import replace

import pytest
from session_worlds import die, muster_world

import rankmuster
from rankmuster.errors import DeadlineExceeded, InvalidProgram, PeerLost, WorldMismatch
from rankmuster.formats import json_program
from rankmuster.launch.local import spawn
from rankmuster.program import Program
from rankmuster.switchboard import DRAIN_S, Switchboard
from rankmuster.transport.framing import Frame, Kind
from rankmuster.transport.tcp import TcpEndpoint

PHASES = ("connect", "read", "census", "bootstrap", "barrier", "closing")


def program(text: str) -> Program:
    return json_program.read(text.encode(), where="test", world=None)


def step(size: int = 8, *, elements: int = 512, rows: int = 16) -> Program:
    """An all-reduce over everybody, one in pairs, and a ring, `size` devices in all."""
    everybody = list(range(size))
    pairs = [everybody[n : n + 2] for n in range(0, size, 2)]
    ring = [[n, (n + 1) % size] for n in everybody]
    return program(
        f"""{{"format": "rankmuster.program/1", "world_size": {size},
        "replica_groups": [[{everybody}], {pairs}], "src_target_pairs": [{ring}],
        "ops": [{{"kind": "all_reduce", "group": 0, "elements": {elements}, "dtype": "f32",
                  "reduce": "add", "source": "train.py:7"}},
                {{"kind": "all_gather", "group": 1, "elements": {rows}, "dtype": "bf16",
                  "dimension": 0}},
                {{"kind": "permute", "pairs": 0, "elements": 4, "dtype": "f32"}}]}}"""
    )


def pipeline(stage: int, stages: int) -> Program:
    """One stage of a pipeline: each process holds a program of its own, and all are right."""
    size = '"group": 0, "elements": 8, "dtype": "f32"'
    ops = []
    if stage > 0:
        ops.append(f'{{"kind": "recv", "peer": {stage - 1}, {size}}}')
    if stage < stages - 1:
        ops.append(f'{{"kind": "send", "peer": {stage + 1}, {size}}}')
    return program(
        f"""{{"format": "rankmuster.program/1", "world_size": {stages}, "rank": {stage},
        "replica_groups": [[{list(range(stages))}]], "ops": [{", ".join(ops)}]}}"""
    )


def test_eight_processes_agree():
    """Every process hears go, and the root's report is that of eight equal programs."""
    outcomes, report = muster_world([step] * 8)
    assert [(each.verdict, each.findings, each.code) for each in outcomes] == [("agree", [], 0)] * 8
    assert [row["ranks"] for row in report["programs"]] == [str(n) for n in range(8)]
    assert set(report["timings"]) == {
        *("read", "census", "bootstrap", "barrier", "closing", "total")
    }


def test_the_root_does_not_wait_for_others_to_leave():
    """Once go is written the root is up, though the others stay connected and say nothing."""
    _, report = muster_world([step] * 8, deadline_s=60, then=lambda _: time.sleep(DRAIN_S))
    assert report["timings"]["closing"] < DRAIN_S / 2


@pytest.mark.parametrize(("processes", "each"), [(1, 8), (2, 4), (4, 2)])
def test_a_process_may_hold_several_devices(processes, each):
    """Devices of one process meet in memory, the others over their processes' connections."""
    outcomes, _ = muster_world([step] * processes, devices_each=each)
    assert [each.verdict for each in outcomes] == ["agree"] * processes


@pytest.mark.parametrize("groups", [[[0, 1]], [[2, 3], [0], [1]], [[0], [1], [2], [3]]])
def test_devices_without_a_communicator_take_part(groups):
    """A process whose devices share no group musters, waits at the barrier and hears go."""
    op = {"kind": "barrier", "group": 0}
    text = {"format": "rankmuster.program/1", "replica_groups": [groups], "ops": [op]}
    idle = program(json.dumps({**text, "world_size": 4}))
    outcomes, _ = muster_world([lambda: idle] * 4)
    assert [(each.verdict, each.code) for each in outcomes] == [("agree", 0)] * 4


def test_stages_of_a_pipeline_agree():
    """Programs that all differ are compared by the root, and fit together."""
    outcomes, _ = muster_world([lambda n=n: pipeline(n, 4) for n in range(4)])
    assert [each.verdict for each in outcomes] == ["agree"] * 4


def test_the_odd_one_is_named_to_everybody():
    """One process with other rows is named, with the op's field, in every process."""
    programs = [step] * 5 + [lambda: step(rows=32)] + [step] * 2
    outcomes, report = muster_world(programs)
    assert [each[:3] for each in outcomes] == [("differ", [("RM302", "5")], 1)] * 8
    (found,) = report["findings"]
    assert (found["field"], found["values"]) == (
        "elements",
        [{"ranks": "0-4,6-7", "value": 16}, {"ranks": "5", "value": 32}],
    )


def test_an_unreadable_program_is_named_to_everybody():
    """A process that cannot read its program says so, and does not leave in silence."""

    def broken() -> Program:
        raise InvalidProgram("no such op", where="3.json", line=7)

    outcomes, _ = muster_world([step] * 3 + [broken] + [step] * 4)
    assert [each[:2] for each in outcomes] == [("undecided", [("RM701", "3")])] * 8


def test_a_program_for_a_smaller_world_is_refused():
    """The world comes up whole first (S0 §6)."""
    outcomes, _ = muster_world([lambda: step(4)] * 8)
    assert [each[:2] for each in outcomes] == [("invalid", [("RM003", "0-7")])] * 8


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_process_is_named_to_everybody(phase):
    """Wherever a process is killed, all others end at once, with one verdict and its name."""
    outcomes, _ = muster_world([step] * 8, on_phase=die(phase, 5))
    living = [each for number, each in enumerate(outcomes) if number != 5]
    assert {(each.verdict, *each.findings) for each in living} == {("undecided", ("RM602", "5"))}
    assert max(each.took_s for each in living) < 2.0
    assert outcomes[5].code == 128 + signal.SIGKILL


@pytest.mark.parametrize("phase", ["read", "census", "bootstrap", "barrier", "closing"])
def test_a_killed_root_is_named_by_everybody(phase):
    """Without the root nobody goes on."""
    outcomes, _ = muster_world([step] * 8, on_phase=die(phase, 0), deadline_s=2.0)
    assert {(each.verdict, *each.findings) for each in outcomes[1:]} == {
        ("undecided", ("RM602", "0"))
    }


@pytest.mark.parametrize(("phase", "code"), [("read", "RM603"), ("bootstrap", "RM603")])
def test_a_stopped_process_is_named_within_the_deadline(phase, code):
    """A process that stands still costs the others their deadline, and no more."""

    def stop(number, name):
        if (number, name) == (5, phase):
            os.kill(os.getpid(), signal.SIGSTOP)

    outcomes, _ = muster_world([step] * 8, on_phase=stop, deadline_s=1.0)
    living = [each for number, each in enumerate(outcomes) if number != 5]
    assert {(each.verdict, *each.findings) for each in living} == {("undecided", (code, "5"))}
    assert max(each.took_s for each in living) < 1.5


def test_a_root_that_still_reads_answers_all_the_same():
    """Reading takes the root far longer than learning that somebody died, and saying so."""

    def slow() -> Program:
        time.sleep(4)
        return step()

    outcomes, _ = muster_world([slow] + [step] * 7, on_phase=die("census", 5))
    living = [each for number, each in enumerate(outcomes) if number != 5]
    assert {(each.verdict, *each.findings) for each in living} == {("undecided", ("RM602", "5"))}
    assert max(each.took_s for each in living) < 2.0


@pytest.mark.parametrize("number", [0, 7])
def test_a_process_that_reads_for_ever_ends_with_the_others(number):
    """No answer waits for a file, the root's own neither: at the deadline it is left unread."""

    def never() -> Program:
        time.sleep(60)
        return step()

    reads = [never if n == number else step for n in range(8)]
    outcomes, _ = muster_world(reads, deadline_s=1.0)
    named = ("RM603", str(number))
    assert {(each.verdict, *each.findings) for each in outcomes} == {("undecided", named)}
    assert max(each.took_s for each in outcomes) < 1.5


def test_an_address_that_cannot_be_reached_is_named(monkeypatch):
    """Who advertises an address where nobody answers is named with it, and nobody else is.

    Process 4 has nothing to say to process 0, which therefore has to dial it; were it on the same
    host, its frames would go by the root.
    """

    def away(place):
        return replace(place, host="elsewhere") if place.process == 4 else place

    listen = Switchboard.listen

    def elsewhere(board) -> str:
        address = listen(board)
        return address.replace("127.0.0.1", "127.0.0.9") if board.place.process == 4 else address

    monkeypatch.setattr(Switchboard, "listen", elsewhere)
    outcomes, report = muster_world([step] * 8, deadline_s=2.0, change=away)
    assert {(each.verdict, *each.findings) for each in outcomes} == {("undecided", ("RM608", "4"))}
    (found,) = report["findings"]
    assert found["severity"] == "error"
    assert "cannot reach process 4 at 127.0.0.9:" in found["message"]
    assert "Connection refused" in found["message"]


def test_a_frame_in_anothers_name_ends_with_its_sender(monkeypatch):
    """The root passes on what a process sends for its own devices, and nothing else."""
    take_seats = Switchboard._take_seats

    def forge(board, seating):
        take_seats(board, seating)
        if board.place.process == 5:
            frame = Frame(Kind.GROUP, bytes(17), bytes(16), source=6, destination=3)
            board.endpoint.send(board._root_handle, frame)

    monkeypatch.setattr(Switchboard, "_take_seats", forge)
    outcomes, report = muster_world([step] * 8)
    assert {tuple(each.findings) for each in outcomes[:5]} == {(("RM602", "5"),)}
    assert "a frame of device 6 came from another process" in report["findings"][0]["message"]


def test_processes_of_one_host_need_no_connection_of_their_own(monkeypatch):
    """Until go all frames between them go by the root: each process dials once."""
    dial, dialled = TcpEndpoint.dial, []

    def counted(endpoint, *arguments, **options):
        dialled.append(arguments)
        return dial(endpoint, *arguments, **options)

    def then(session):
        assert len(dialled) == (0 if session._up.place.is_root else 1)

    monkeypatch.setattr(TcpEndpoint, "dial", counted)
    outcomes, _ = muster_world([step] * 8, then=then)
    assert {(each.verdict, each.code) for each in outcomes} == {("agree", 0)}


def test_a_device_claimed_twice_is_named_before_the_deadline(monkeypatch):
    """Two processes with one device: the missing one and the doubled one are both named."""
    monkeypatch.setattr("rankmuster.census.HEAL_S", 0.2)

    def change(place):
        return replace(place, devices=(4,)) if place.process == 5 else place

    outcomes, report = muster_world([step] * 8, change=change)
    codes = {(found["code"], found["ranks"]) for found in report["findings"]}
    assert codes == {("RM605", "4"), ("RM601", "5")}
    assert {each.verdict for each in outcomes} == {"undecided"}


def test_another_world_size_is_named_before_the_deadline(monkeypatch):
    """A process that was started for another world is named with both sizes."""
    monkeypatch.setattr("rankmuster.census.HEAL_S", 0.2)

    def change(place):
        return replace(place, world_size=16) if place.process == 5 else place

    _, report = muster_world([step] * 8, change=change)
    found = next(each for each in report["findings"] if each["code"] == "RM001")
    assert (found["ranks"], [each["value"] for each in found["values"]]) == ("5", [8, 16])


def test_a_wrong_secret_is_told_to_its_holder(monkeypatch):
    """Who holds another secret hears that; the others miss its device."""
    monkeypatch.setattr("rankmuster.census.HEAL_S", 0.2)

    def change(place):
        return replace(place, secret=b"x" * 32) if place.process == 5 else place

    outcomes, report = muster_world([step] * 8, change=change, deadline_s=1.0)
    assert outcomes[5].findings == [("RM606", "")]
    codes = {found["code"] for found in report["findings"]}
    assert {"RM601", "RM604"} <= codes


def test_strangers_at_the_door_are_listed_and_change_nothing():
    """A port scan costs a line in the report."""

    def knock(local) -> None:
        host, port = local.root.rsplit(":", 1)
        for said in (b"GET / HTTP/1.0\r\n\r\n", b""):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as door:
                door.sendall(said)

    def wait(number, phase):
        if (number, phase) == (3, "census"):
            time.sleep(0.2)

    outcomes, report = muster_world([step] * 8, meanwhile=knock, on_phase=wait)
    assert {each.verdict for each in outcomes} == {"agree"}
    assert [each["code"] for each in report["findings"]] == ["RM604"]


def test_members_exchange_bytes_after_go():
    """A communicator gathers small payloads in rank order and has one unique id."""

    def then(session):
        (device,) = session._up.place.devices
        pair = session.communicator(1)
        assert pair.members == (device - device % 2, device - device % 2 + 1)
        everybody = session.communicator(tuple(range(8)))
        everybody.barrier(deadline_s=5)
        gathered = everybody.all_gather(bytes([device]), deadline_s=5)
        assert gathered == tuple(bytes([n]) for n in range(8))
        ids = everybody.all_gather(everybody.unique_id, deadline_s=5)
        assert len(set(ids)) == 1
        assert len(ids[0]) == 128
        with pytest.raises(WorldMismatch, match="in no communicator"):
            session.communicator((0, 7))

    outcomes, _ = muster_world([step] * 8, then=then)
    assert [each.code for each in outcomes] == [0] * 8


def test_a_member_that_left_is_lost_to_the_others():
    """After go, waiting for a process that is gone ends at once."""

    def then(session):
        if session._up.place.process == 5:
            os._exit(9)
        with pytest.raises(PeerLost):
            session.communicator(tuple(range(8))).all_gather(b"x", deadline_s=5)

    outcomes, _ = muster_world([step] * 8, then=then)
    assert [each.code for each in outcomes] == [0, 0, 0, 0, 0, 9, 0, 0]


def test_launched_processes_muster_twice():
    """`muster` finds its world by itself, and again for the next program."""

    def target() -> bytes:
        seen = []
        for elements in (4, 8):
            with rankmuster.muster(step(elements=elements), deadline_s=5) as session:
                seen.append((session.world.size, session.report.verdict))
        return repr(seen).encode()

    expected = repr([(8, "agree")] * 2).encode()
    assert spawn(target, 4, devices_each=2, deadline_s=8) == [(0, expected)] * 4


def test_a_muster_inside_another():
    """Two worlds of the same processes may be up at once."""

    def target() -> bytes:
        with (
            rankmuster.muster(step(elements=4), deadline_s=5) as outer,
            rankmuster.muster(step(elements=8), deadline_s=5) as inner,
        ):
            everybody = tuple(range(8))
            outer.communicator(everybody).barrier(deadline_s=5)
            inner.communicator(everybody).barrier(deadline_s=5)
            return str(outer.communicator(0).unique_id != inner.communicator(0).unique_id).encode()

    assert spawn(target, 4, devices_each=2, deadline_s=8) == [(0, b"True")] * 4


def test_a_process_that_nobody_launched_is_its_own_world():
    """Without a launcher all devices are ours."""
    with rankmuster.muster(step(), environ={}) as session:
        assert session.world.size == 8
        assert session.report.verdict == "agree"
        assert session.communicator(0).all_gather(b"x") == (b"x",) * 8


def test_a_disagreement_carries_the_report():
    """Who musters a bad program alone is told as a whole world would be."""
    with pytest.raises(rankmuster.Disagreement) as caught:
        rankmuster.muster(
            program(
                '{"format": "rankmuster.program/1", "world_size": 2, "replica_groups": [[[0, 5]]],'
                '"ops": [{"kind": "barrier", "group": 0}]}'
            ),
            environ={},
        )
    assert caught.value.report.verdict == "invalid"


def test_a_launch_that_takes_too_long_is_ended():
    """`spawn` has a deadline of its own, and leaves no process."""

    def target() -> bytes:
        time.sleep(30)
        return b""

    with pytest.raises(DeadlineExceeded, match="processes 0-1 of 2 still ran"):
        spawn(target, 2, deadline_s=0.2)
