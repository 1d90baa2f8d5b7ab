from __future__ import annotations

from rankmuster.resolve import Group, GroupSet, Resolved
from rankmuster.testing.build import all_reduce, permute, program


def test_pairs_sets_follow_the_declared_groups() -> None:
    """Set ids count the replica groups, then the pairs sets, whose members are components."""
    resolved = Resolved(program(groups=[[[0, 1], [2, 3]]], pairs=[[(3, 0), (0, 3), (1, 1)]]))
    assert resolved.sets == (
        GroupSet(id=0, kind="replica_groups", members=((0, 1), (2, 3))),
        GroupSet(
            id=1,
            kind="source_target_pairs",
            members=((0, 3), (1,)),
            pairs=((0, 3), (1, 1), (3, 0)),
        ),
    )


def test_an_op_finds_its_set() -> None:
    """Ops on groups and on pairs look up one common numbering."""
    resolved = Resolved(program(groups=[[[0, 1]], [[1, 0]]], pairs=[[(0, 1)]]))
    assert [resolved.set_of(op).id for op in (all_reduce(group=1), permute())] == [1, 2]


def test_a_device_sees_its_own_sub_groups() -> None:
    """The rank is the place in written order; sets without the device are left out."""
    resolved = Resolved(program(groups=[[[4, 2], [0, 1]], [[0, 1]]], pairs=[[(1, 2)]]))
    group, pairs = resolved.groups_of(2)
    assert group == Group(id=0, kind="replica_groups", members=(4, 2), device=2)
    assert (group.rank, group.size) == (1, 2)
    assert (pairs.id, pairs.members) == (2, (1, 2))


def test_communicators_are_distinct_lists_of_two_or_more() -> None:
    """Equal lists are one communicator, another order is another, a device alone is none."""
    sets = [[[0, 1]], [[1, 0]], [[0], [1]], [[0, 1]]]
    assert Resolved(program(groups=sets)).communicators(0) == ((0, 1), (1, 0))


def test_an_outsider_has_no_groups() -> None:
    """A device that no set names has neither groups nor communicators (facts D30, E8)."""
    resolved = Resolved(program(groups=[[[0, 1]]], pairs=[[(0, 1)]]))
    assert (resolved.groups_of(7), resolved.communicators(7)) == ((), ())


def test_a_repeated_device_keeps_its_first_sub_group() -> None:
    """A wrong set still resolves: judging it is not done here."""
    resolved = Resolved(program(groups=[[[0, 1], [1, 2, 10**12], []]]))
    assert [each.members for each in resolved.groups_of(1)] == [(0, 1)]


def test_member_lists_know_their_sets() -> None:
    """Each distinct list names the sets that hold it, whatever their kind, each once."""
    resolved = Resolved(program(groups=[[[0, 1], [0, 1]], [[1, 0]]], pairs=[[(0, 1)]]))
    assert resolved.sets_by_members == {(0, 1): (0, 2), (1, 0): (1,)}
