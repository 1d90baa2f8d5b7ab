"""One process too many, as the root sees it."""

from __future__ import annotations

from test_root import card, codes, root_with

from rankmuster.census import HEAL_S


def test_a_world_does_not_go_while_somebody_is_one_too_many():
    """Who came for a device that others hold is waited for, and named in time."""
    root = root_with(*map(card, range(3)))
    root.knock(9, 3, 3, 1)
    root.join(9, 3, 3, 1)
    root.receive(3, card(3), 1.0)
    assert root.plan is None
    root.look(1.0 + HEAL_S)
    assert codes(root) == [("RM605", (3,))]


def test_its_card_says_more():
    """Both claimants are named by pid and host once the second card is there."""
    root = root_with(*map(card, range(3)))
    root.knock(9, 3, 3, 1)
    root.join(9, 3, 3, 1)
    root.receive(3, card(3), 1.0)
    root.receive(9, card(3, host="elsewhere", pid=7), 1.5)
    root.look(1.5 + HEAL_S)
    assert codes(root) == [("RM605", (3,))]
    assert root.plan is not None
    assert "(pid 7 on elsewhere)" in root.plan.findings[0].message


def test_who_only_repeats_a_hello_holds_nobody_up():
    """A hello that was overheard is no process."""
    root = root_with(*map(card, range(3)))
    root.knock(9, 3, 3, 1)
    root.receive(3, card(3), 1.0)
    assert root.plan is not None
    assert root.plan.go_on


def test_a_card_that_leaves_no_time_is_too_late():
    """Whose card came when groups can no longer form is named, and not those who waited."""
    root = root_with(*map(card, range(3)), now=0.0)
    root.knock(3, 3, 3, 1)
    root.join(3, 3, 3, 1)
    root.receive(3, card(3), root.census.answer_by - 1.0)
    assert codes(root) == [("RM603", (3,))]
