"""The root's decisions, with cards for processes and a number for the time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rankmuster.address import Ends
from rankmuster.census import HEAL_S, LOSS_S, Card, Census, margin_s
from rankmuster.finding import finding
from rankmuster.formats import json_program
from rankmuster.pairing import ledger
from rankmuster.program import Program
from rankmuster.protocol.edges import destinations
from rankmuster.ranks import fold
from rankmuster.resolve import Resolved
from rankmuster.root import NOTE_S, OWN, Ask, Plan, Root, pack_program, unpack_program
from rankmuster.seating import Seating
from rankmuster.signature.canonical import content_digest
from rankmuster.world import World

WORLD = World(size=4, source="launcher")


def program(elements: int = 8) -> Program:
    text = (
        '{"format": "rankmuster.program/1", "world_size": 4, "replica_groups": [[[0, 1, 2, 3]]],'
        f'"ops": [{{"kind": "all_gather", "group": 0, "elements": {elements}, "dtype": "f32",'
        '"dimension": 0}]}'
    )
    return json_program.read(text.encode(), where="", world=None)


def card(number: int, held: Program | None = None, **changes: Any) -> Card:
    resolved = Resolved(held or program())
    made = Card(
        process=number,
        devices=(number,),
        world_size=4,
        host=f"host{number}",
        pid=100 + number,
        version="1",
        whole_s=60.0,
        remaining_s=50.0,
        content=bytes(content_digest(resolved)),
        ledger=ledger(resolved, (number,)).to_bytes(16, "little"),
        address=f"host{number}:1",
    )
    return msgspec.structs.replace(made, **changes)


def root_with(*cards: Card, now: float = 0.0) -> Root:
    """A root whose connection to process n has the handle n."""
    root = Root(Census(WORLD, "1"), 0.0)
    root.program = program()
    for each in cards:
        root.knock(each.process, each.process, each.process, 1)
        root.join(each.process, each.process, each.process, 1)
        root.receive(each.process, each, now)
    return root


def codes(root: Root) -> list[tuple[str, tuple[int, ...]]]:
    assert root.plan is not None
    return [(found.code, found.ranks) for found in root.plan.findings]


def test_one_class_needs_no_programs():
    """Four equal cards are enough for go, and everybody learns where the others listen."""
    root = root_with(*map(card, range(4)))
    said = root.outgoing()
    assert [handle for handle, _ in said] == [0, 1, 2, 3]
    plan = said[0].message
    assert isinstance(plan, Plan)
    assert (plan.go_on, plan.answer_s) == (True, 50.0 - margin_s(60.0))
    assert plan.seating == Seating(processes=4, each=1)


def test_one_process_of_each_other_class_is_asked():
    """Two classes: the root has its own program, and asks one holder of the other."""
    odd = program(16)
    root = root_with(card(0), card(1), card(2, odd), card(3, odd))
    (asked,) = root.outgoing()
    assert asked.handle in {2, 3}
    assert isinstance(asked.message, Ask)
    root.receive(asked.handle, pack_program(odd, asked.message.limit), 1.0)
    assert codes(root) == [("RM302", (0, 1, 2, 3))]


def test_a_suspect_program_is_looked_at_although_all_are_alike():
    """What a program has to say by itself is part of the answer."""
    root = root_with(*(card(n, suspect=True) for n in range(4)))
    assert root.plan is not None
    assert root.plan.go_on  # the root looked, and found nothing
    assert root.report().verdict == "agree"


def test_an_open_ledger_is_looked_at_although_all_are_alike():
    """Sends without receives show in no digest."""
    root = root_with(*map(card, range(3)), card(3, ledger=b"\1" * 16))
    assert root.plan is not None


def test_a_process_that_hands_in_nothing_is_named():
    """The comparison has an end as the census does."""
    root = root_with(card(0), card(1), card(2), card(3, program(16)))
    root.look(44.9)
    assert root.plan is None
    root.look(45.0)
    assert codes(root) == [("RM603", (3,))]


def test_a_program_too_large_to_compare_is_no_match():
    """The bound on what the root reads ends in undecided."""
    odd = program(16)
    root = root_with(card(0), card(1), card(2), card(3, odd))
    root.receive(3, pack_program(odd, 10), 1.0)
    assert codes(root) == [("RM701", (3,))]


def test_a_program_survives_its_way_to_the_root():
    """What another format knew is kept beside the text."""
    held = msgspec.structs.replace(program(), format="hlo", not_recorded=frozenset({"root"}))
    back = unpack_program(pack_program(held, 1 << 20), "x")
    assert (back.format, back.not_recorded, back.ops) == (held.format, held.not_recorded, held.ops)


def test_reading_and_never_having_come_are_different_answers():
    """At the end of the time the root tells one from the other."""
    root = root_with(card(0), card(1))
    root.knock(2, 2, 2, 1)
    root.look(45.0)
    assert codes(root) == [("RM601", (3,)), ("RM603", (2,))]
    assert root.plan is not None
    assert root.plan.absent == (2, 3)


def test_who_came_is_not_to_blame_for_who_did_not():
    """At the deadline nobody is asked for a program any more, or called late for a card."""
    came = (card(1), card(3, program(16), remaining_s=2.0, whole_s=3.0))
    root = root_with(*came, now=0.5)
    root.knock(OWN, 0, 0, 1)
    root.look(1.8)
    assert codes(root) == [("RM601", (2,)), ("RM603", (0,))]
    assert not [each for each in root.outgoing() if isinstance(each.message, Ask)]


def test_the_first_cards_time_decides_when_the_answer_is_due():
    """The answer leaves a margin before anybody's deadline."""
    root = root_with(card(0), card(1, remaining_s=20.0))
    assert root.next_look(14.9) < 15.0
    root.look(14.9)
    assert root.plan is None
    root.look(15.0)
    assert root.plan is not None


@pytest.mark.parametrize(("whole_s", "margin"), [(60, 5), (300, 5), (20, 2), (5, 1), (2, 0.5)])
def test_the_margin_is_a_tenth_within_bounds(whole_s, margin):
    """One to five seconds, and never more than a quarter of a short deadline."""
    assert margin_s(whole_s) == margin


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"devices": (1,)}, "RM605"),
        ({"version": "2"}, "RM607"),
        ({"world_size": 8}, "RM001"),
        ({"devices": (9,)}, "RM001"),
        ({"devices": ()}, "RM001"),
    ],
)
def test_what_cannot_heal_ends_early_and_is_named(changes, code):
    """A card that does not fit is given five seconds for a better one."""
    root = root_with(card(0), card(1), card(2), card(3, **changes), now=1.0)
    root.look(1.0 + HEAL_S - 0.1)
    assert root.plan is None
    root.look(1.0 + HEAL_S)
    assert code in {found for found, _ in codes(root)}


def test_a_better_card_heals():
    """A process that was refused, went away and came back right is welcome."""
    root = root_with(card(0), card(1), card(2), card(3, world_size=8))
    root.lose(3, "it closed the connection", 1.0)
    root.knock(7, 3, 3, 1)
    root.receive(7, card(3), 2.0)
    assert root.plan is not None
    assert root.plan.go_on


@pytest.mark.parametrize(
    ("knocks", "cards", "waits_for"),
    [
        ((), (1, 2), "device 3 (not here)"),
        ((3,), (1, 2), "device 3 (reading the program)"),
        ((2,), (1, 2, 3), "process 2 (one too many)"),
        ((), (1, 2, 2, 3), "a better card than that of process 2 (pid 102 on host2)"),
    ],
)
def test_the_note_says_what_the_root_waits_for(knocks, cards, waits_for):
    """Whoever is missing, and whoever is here and does not fit."""
    root = root_with(card(0))
    for number in knocks:
        root.knock(9, number, number, 1)
        root.join(9, number, number, 1)
    for handle, number in enumerate(cards, 10):
        root.receive(handle, card(number), 0.0)
    assert root.note(NOTE_S) == f"{NOTE_S:.0f} s: waiting for {waits_for}"


def test_a_root_with_the_wrong_size_is_the_odd_one():
    """The majority decides who is odd, not who leads."""
    root = Root(Census(World(size=2, source="launcher"), "1"), 0.0)
    root.program = program()
    root.receive(OWN, card(0, world_size=2), 0.0)
    for number in (1, 2, 3):
        root.receive(number, card(number), 0.0)
    root.look(HEAL_S)
    assert root.plan is not None
    found = root.plan.findings[0]
    assert (found.code, found.ranks, found.others, found.majority) == (
        *("RM001", (0,), (1, 2, 3), True),
    )


def test_a_lost_process_ends_the_census_soon():
    """Who is about to speak is heard, then all are told."""
    root = root_with(card(0), card(1), card(2))
    root.lose(2, "it closed the connection", 1.0)
    root.look(1.0 + LOSS_S / 2)
    assert root.plan is None
    root.look(1.0 + LOSS_S)
    assert codes(root) == [("RM602", (2,))]


def test_an_overheard_hello_makes_nobody_lost():
    """Without proof of the secret a connection's end is nobody's."""
    root = root_with(card(0), card(1), card(2))
    root.knock(9, 3, 3, 1)
    root.lose(9, "it closed the connection", 1.0)
    root.look(2.0)
    assert root.plan is None
    root.receive(3, card(3), 3.0)
    assert root.plan is not None
    assert root.plan.go_on


def test_a_death_that_the_launcher_saw_is_told_once():
    """The launcher and the connection may both tell of it."""
    root = root_with(card(0), card(1), card(2), card(3, program(16)))
    root.die(3, (3,), 1.0)
    root.lose(3, "it closed the connection", 1.0)
    assert codes(root) == [("RM602", (3,))]


def test_who_comes_after_the_census_is_told_so():
    """A late process hears no, and the others are not disturbed."""
    root = root_with(*map(card, range(4)))
    root.outgoing()
    root.knock(9, 3, 3, 1)
    assert root.outgoing() == []
    root.join(9, 3, 3, 1)
    ((handle, message),) = root.outgoing()
    assert isinstance(message, Plan)
    assert (handle, message.go_on, message.findings[0].code) == (9, False, "RM605")


def test_the_root_says_every_five_seconds_who_is_missing():
    """People are not left to guess."""
    root = root_with(card(0), card(1))
    root.knock(2, 2, 2, 1)
    assert root.note(NOTE_S - 0.1) == ""
    assert root.note(NOTE_S) == (
        "5 s: waiting for device 3 (not here), device 2 (reading the program)"
    )
    assert root.note(NOTE_S + 0.1) == ""
    assert root.note(2 * NOTE_S).startswith("10 s: ")


def test_many_claims_of_one_device_are_one_finding():
    """Sixteen processes that all believe to be rank 0 (NODE_RANK expanded once) are told so."""
    root = root_with(card(0, host="trn00", pid=0))
    for number in range(1, 16):
        root.receive(number, card(0, process=0, pid=number, host=f"trn{number:02}"), 0.0)
    root.look(HEAL_S)
    assert root.plan is not None
    claimed = root.plan.findings[0]
    assert (claimed.code, claimed.ranks) == ("RM605", (0,))
    assert claimed.message.startswith(
        "device 0 is claimed by 16 processes on trn[00-15]: process 0 (pid "
    )
    assert claimed.message.endswith(" and 13 more")
    assert claimed.fix.startswith("every host claims the same devices: number processes in the")


def test_local_ranks_taken_for_ranks_are_recognised():
    """Ranks 0, 1 from two hosts, and nobody for the rest."""
    root = root_with(card(0, host="a"), card(1, host="a"))
    for handle, number in ((2, 0), (3, 1)):
        root.receive(handle, card(number, pid=90 + number, host="b"), 0.0)
    root.look(HEAL_S)
    assert codes(root) == [("RM605", (0,)), ("RM605", (1,)), ("RM601", (2, 3))]
    assert root.plan is not None
    assert "local number" in root.plan.findings[0].fix


def test_two_processes_that_claim_the_same_devices_are_one_finding():
    """A process that was started twice is told once, with all its devices."""
    root = root_with(card(1, devices=(2, 3)))
    root.receive(7, card(1, devices=(2, 3), pid=77, host="b"), 0.0)
    root.receive(OWN, card(0, devices=(0, 1)), 0.0)
    root.look(HEAL_S)
    assert root.plan is not None
    (found,) = root.plan.findings
    assert found.message == (
        "devices 2-3 are claimed by process 1 (pid 101 on host1) and by process 1 (pid 77 on b)"
    )


def test_servers_of_different_kinds_are_a_warning():
    """Who believes to run on another instance, or counts cores otherwise, is named."""
    ours = {"instance": "trn2.48xlarge", "core_size": 2}
    cards = [card(n, **ours) for n in range(3)]
    root = root_with(*cards, card(3, **{**ours, "core_size": 1}))
    assert root.plan is not None
    (found,) = root.plan.findings
    assert (root.plan.go_on, found.code, found.severity) == (True, "RM404", "warning")
    assert found.message == (
        "the processes run on different servers: trn2.48xlarge with logical-core size 2: "
        "devices 0-2; trn2.48xlarge with logical-core size 1: device 3"
    )


def test_what_a_refused_process_knows_of_itself_is_told_too():
    """Its own contradicting sources explain why its card does not fit."""
    why = finding("RM006", "RANK says 0, SLURM_PROCID says 3", ranks=(0,))
    root = root_with(*map(card, range(3)))
    root.receive(3, card(0, process=3, findings=(why,)), 0.0)
    root.look(HEAL_S)
    assert [code for code, _ in codes(root)] == ["RM006", "RM605", "RM601"]


def test_addresses_go_to_whoever_asked_for_them():
    """A process learns where those listen to whom it sends, and its host's barrier goes."""
    cards = [card(n, host=f"host{n // 2}", wants="3" if n == 0 else "") for n in range(4)]
    plans = [said.message for said in root_with(*cards).outgoing()]
    assert [plan.addresses for plan in plans] == [
        {1: "host1:1", 3: "host3:1"},
        {0: "host0:1"},
        {3: "host3:1"},
        {2: "host2:1"},
    ]
    assert [plan.local for plan in plans] == ["0-1", "0-1", "2-3", "2-3"]


def test_a_large_worlds_plans_take_a_few_hundred_bytes_each():
    """A table of all addresses would take 300 MB at 2048 processes."""
    size = 2048
    root = Root(Census(World(size=size, source="launcher"), "1"), 0.0)
    root.program = program()
    for number in range(size):
        root.join(number, number, number, 1)
        wants = fold(destinations(number, size))
        listens = f"10.0.{number >> 6}.1:40000"
        where = {"host": f"trn{number >> 6}", "address": listens}
        root.receive(number, card(number, world_size=size, wants=wants, **where), 0.0)
    sizes = [len(msgspec.json.encode(said.message)) for said in root.outgoing()]
    assert len(sizes) == size
    assert max(sizes) < 1000


def test_an_address_where_a_process_is_not_seen_is_a_warning():
    """A bridge that every host has is advertised; the connection comes from elsewhere."""
    root = Root(Census(WORLD, "1"), 0.0)
    root.program = program()
    for number in range(4):
        root.ends[number] = Ends("10.0.0.1:20480", f"10.0.0.{number}:4000")
        root.join(number, number, number, 1)
        address = "172.17.0.1:5000" if number > 1 else f"10.0.0.{number}:5000"
        root.receive(number, card(number, address=address), 0.0)
    (found,) = root.report().findings
    assert (found.code, found.severity, found.ranks) == ("RM608", "warning", (2, 3))
    assert found.message == (
        "device(s) 2,3 advertise 172.17.0.1 (bridge), and are seen from 10.0.0.2, 10.0.0.3"
    ).replace("2,3 ad", "2-3 ad")


@pytest.mark.parametrize(
    ("listener", "asker", "address"),
    [
        ("127.0.0.1:40000", "127.0.0.1:40001", "127.0.0.1:5000"),
        ("127.0.0.1:40000", "10.0.0.2:40001", "10.0.0.1:5000"),
        ("127.0.0.1:40000", "[fd00::2]:40001", "10.0.0.1:5000"),
        ("10.0.0.3:40000", "10.0.0.2:40001", "10.0.0.3:5000"),
    ],
)
def test_a_loopback_address_is_told_to_nobody_elsewhere(listener, asker, address):
    """Who knows itself by the loopback only is where it is seen, or else on the root's host."""
    root = Root(Census(WORLD, "1"), 0.0)
    root.program = program()
    ends = {1: listener, 3: asker}
    root.ends = {number: Ends("10.0.0.1:20480", theirs) for number, theirs in ends.items()}
    for number in range(4):
        root.join(number, number, number, 1)
        changes = {1: {"address": "127.0.0.1:5000"}, 3: {"wants": "1"}}.get(number, {})
        root.receive(number, card(number, **changes), 0.0)
    assert root.outgoing()[3].message.addresses == {1: address}
