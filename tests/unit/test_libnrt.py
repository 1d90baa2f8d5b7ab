from __future__ import annotations

import hashlib
from itertools import groupby
from struct import pack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_strategies import WORLD, programs

from rankmuster.program import Op, OpKind, Program
from rankmuster.resolve import Resolved
from rankmuster.signature import Digest, LibnrtSignatures, sign
from rankmuster.signature.libnrt import digest_columns
from rankmuster.testing.build import all_reduce, barrier, loop, op, permute, program, recv, send


def md5(data: bytes) -> Digest:
    return Digest(hashlib.md5(data, usedforsecurity=False).digest())


def group_digest(device: int, *ops: Op, members: list[int]) -> Digest:
    resolved = Resolved(program(*ops, groups=[[members]]))
    return sign(resolved, device).groups[0]


def pairs_digest(*ops: Op) -> Digest:
    return sign(Resolved(program(*ops, pairs=[[(1, 0), (0, 1)]])), 0).groups[0]


def test_a_collective_hashes_as_its_20_byte_view() -> None:
    """Members in written order, then op, size_n, dtype and reduce op (facts D2, D6)."""
    expected = md5(pack("<2I", 3, 1) + pack("<IQII", 1, 1 << 20, 6, 2))
    assert group_digest(1, all_reduce(1 << 20, dtype="bf16", reduce="max"), members=[3, 1]) == (
        expected
    )


def test_each_operand_posts_a_view() -> None:
    """Operands follow one another with their own sizes and types (facts E4)."""
    both = all_reduce([4, 8], dtype=["f32", "s8"], reduce="custom:(a*b)")
    expected = md5(pack("<2I", 0, 1) + pack("<IQII", 1, 4, 10, 31) + pack("<IQII", 1, 8, 2, 31))
    assert group_digest(0, both, members=[0, 1]) == expected


@pytest.mark.parametrize(
    ("posted", "view"),
    [
        (barrier(), (0x20, 0, 0x4F, 0xF)),
        (op("all_to_all_v", 64), (12, 0, 10, 0xF)),
        (op("all_gather", 64, output_splits=(1, 2)), (0, 0, 10, 0xF)),
        (op("all_reduce", 64, reduce=None), (1, 64, 10, 0xF)),
        (op("broadcast", 64, root=1, dimension=2), (2, 64, 10, 0xF)),
    ],
)
def test_what_ranks_may_differ_in_does_not_show(posted: Op, view: tuple[int, ...]) -> None:
    """Uneven counts sign as 0; root and dimension do not sign at all (facts E2, E4)."""
    assert group_digest(0, posted, members=[0, 1]) == md5(pack("<2I", 0, 1) + pack("<IQII", *view))


def test_a_set_without_ops_hashes_its_members() -> None:
    """An idle set still says who is in it (facts E8)."""
    assert group_digest(4, members=[4, 2, 9]) == md5(pack("<3I", 4, 2, 9))


def test_the_whole_digest_runs_over_the_inner_ones() -> None:
    """Replica-group sets in table order, then pairs sets, without those of others (facts D7)."""
    resolved = Resolved(
        program(groups=[[[0, 1]], [[2, 3]], [[1, 0]]], pairs=[[(2, 3)], [(0, 2), (0, 1)]])
    )
    inner = {
        0: md5(pack("<2I", 0, 1)),
        2: md5(pack("<2I", 1, 0)),
        4: md5(pack("<4I", 0, 1, 0, 2)),
    }
    assert sign(resolved, 0) == LibnrtSignatures(
        whole=md5(inner[0] + inner[2] + inner[4]), groups=inner
    )


def test_a_device_in_no_set_has_no_whole_digest() -> None:
    """That is no error (facts E8)."""
    resolved = Resolved(program(groups=[[[0, 1]]]))
    assert sign(resolved, 5) == LibnrtSignatures(whole=None, groups={})


def test_the_listing_taken_by_its_word_signs_the_sets_of_others() -> None:
    """The guard that S0 prints skips every replica group that the device is in (facts D5)."""
    sets = {"groups": [[[0, 1]], [[2, 3]]], "pairs": [[(0, 1)]]}
    resolved = Resolved(program(all_reduce(group=0), all_reduce(group=1), **sets))
    inner = {1: md5(pack("<IQII", 1, 1024, 10, 0)), 2: md5(pack("<2I", 0, 1))}
    assert sign(resolved, 0, hash_only_nonmember_groups=True) == LibnrtSignatures(
        whole=md5(inner[1] + inner[2]), groups=inner
    )


def test_a_message_between_two_names_its_destination() -> None:
    """Both ends of an edge sign alike, although one posts RECV (S0 §4, facts E6)."""
    sender = group_digest(0, send(1, 64), members=[0, 1])
    receiver = group_digest(1, recv(0, 64), members=[0, 1])
    assert sender == receiver == md5(pack("<2I", 0, 1) + pack("<IQI", 5, 64, 1))


def test_a_stretch_of_messages_is_sorted_by_destination() -> None:
    """Crossing messages between two ranks may be posted in either order (facts E6)."""
    first = group_digest(0, send(1, 64), recv(1, 32), all_reduce(), send(1, 8), members=[0, 1])
    second = group_digest(1, send(0, 32), recv(0, 64), all_reduce(), recv(0, 8), members=[0, 1])
    views = (pack("<IQI", 5, 32, 0), pack("<IQI", 5, 64, 1), pack("<IQII", 1, 1024, 10, 0))
    expected = md5(pack("<2I", 0, 1) + b"".join(views) + pack("<IQI", 5, 8, 1))
    assert first == second == expected


@pytest.mark.parametrize("members", [[0], [0, 1, 2]])
def test_messages_in_other_groups_do_not_show(members: list[int]) -> None:
    """Outside a sub-group of two, lists differ by rank: pairing decides there (facts D4, E6)."""
    plain = group_digest(0, all_reduce(), members=members)
    assert group_digest(0, send(1), all_reduce(), recv(1), members=members) == plain


def test_permutes_hash_all_sorted_pairs_and_as_collectives() -> None:
    """A pairs set signs its pairs in sorted order (facts D9, E5)."""
    expected = md5(pack("<4I", 0, 1, 1, 0) + pack("<IQII", 8, 1024, 10, 0xF))
    assert pairs_digest(permute()) == expected


@pytest.mark.parametrize(
    ("ops", "written"),
    [
        ([(OpKind.SEND, 4), (OpKind.RECV, 4)], pack("<IQI", 5, 4, 0)),
        ([(OpKind.RECV, 4), (OpKind.RECV, 8)], pack("<IQIIQI", 5, 4, 0, 5, 8, 0)),
        (
            [(OpKind.RECV, 8), (OpKind.SEND, 4)],
            pack("<IQI", 5, 4, 0) + b"\xff" * 8 + pack("<IQI", 5, 8, 0),
        ),
    ],
)
def test_messages_on_pairs_hide_the_ranks_place(
    ops: list[tuple[OpKind, int]], written: bytes
) -> None:
    """Of a stretch alike or one-sided only one side is written, else both (facts E5)."""
    posted = [op(kind, size, pairs=0) for kind, size in ops]
    assert pairs_digest(*posted) == md5(pack("<4I", 0, 1, 1, 0) + written)


def test_a_loop_signs_once_whatever_its_trips() -> None:
    """An op hashes once for each place in the text (facts E9)."""
    plain = group_digest(0, all_reduce(), members=[0, 1])
    assert group_digest(0, loop(10**9, all_reduce()), members=[0, 1]) == plain


def test_ids_beyond_32_bits_still_sign() -> None:
    """A wrong program has digests too; an id keeps its low 32 bits."""
    assert group_digest(0, members=[0, 10**12]) == md5(pack("<2I", 0, 10**12 & 0xFFFF_FFFF))


# The rules once more, as plainly as possible, with tables of their own.
WORDS = {"all_gather": 0, "all_reduce": 1, "broadcast": 2, "reduce": 3, "reduce_scatter": 4}
WORDS |= {"all_to_all": 7, "permute": 8, "permute_reduce": 9, "permute_implicit": 10}
WORDS |= {"permute_reduce_implicit": 11, "all_to_all_v": 12, "barrier": 32, "gather": 33}
WORDS |= {"scatter": 34, "comm_split": 35, "window": 36, "other": 63}
DTYPES = {"f32": 10, "bf16": 6, "s8": 2, "pred": 65, "unknown": 79}
REDUCES = {"add": 0, "max": 2, "avg": 20, None: 15}


def plain_view(each: Op) -> bytes:
    uneven = each.kind == "all_to_all_v" or each.input_splits or each.output_splits
    rows = list(zip(each.elements, each.dtype, strict=True)) or [(0, "unknown")]
    return b"".join(
        pack("<IQII", WORDS[each.kind], 0 if uneven else n, DTYPES[d], REDUCES.get(each.reduce, 31))
        for n, d in rows
    )


def plain_messages(stretch: list[Op], pair: bool, device: int) -> bytes:
    rows = [(each, n) for each in stretch for n in each.elements]
    if not pair:
        to = [(each.peer if each.kind == "send" else device, n) for each, n in rows]
        return b"".join(pack("<IQI", 5, n, d) for d, n in sorted(to, key=lambda row: row[0]))
    sent, received = ([n for each, n in rows if each.kind == k] for k in ("send", "recv"))
    if sent and received and sent != received:
        rest = b"\xff" * 8 + b"".join(pack("<IQI", 5, n, 0) for n in received)
    else:
        sent, rest = sent or received, b""
    return b"".join(pack("<IQI", 5, n, 0) for n in sent) + rest


def plain_groups(each: Program, device: int) -> dict[int, Digest]:
    found = {}
    edges = [sorted(pairs.pairs) for pairs in each.src_target_pairs]
    sets = [groups.members for groups in each.replica_groups] + edges
    for number, members in enumerate(sets):
        on_pairs = number >= len(each.replica_groups)
        mine = next((m for m in members if device in m), None)
        if mine is None:
            continue
        data = b"".join(pack("<I", i) for m in (members if on_pairs else [mine]) for i in m)
        place = number - len(each.replica_groups)
        queue = [o for o in each.walk() if (o.pairs == place if on_pairs else o.group == number)]
        for messages, stretch in groupby(queue, lambda o: o.kind in ("send", "recv")):
            if not messages:
                data += b"".join(map(plain_view, stretch))
            elif on_pairs or len(mine) == 2:
                data += plain_messages(list(stretch), on_pairs, device)
        found[number] = md5(data)
    return found


@given(programs())
def test_digests_equal_a_plain_rendering(each: Program) -> None:
    """Whatever the program, every device's digests are those of the rules written out."""
    resolved = Resolved(each)
    for device in range(WORLD + 1):
        groups = plain_groups(each, device)
        whole = md5(b"".join(groups.values())) if groups else None
        assert sign(resolved, device) == LibnrtSignatures(whole=whole, groups=groups)


@given(st.integers(0, 9000))
def test_columns_sign_like_ops(count: int) -> None:
    """Ops that come as arrays have the digest of the same ops one by one."""
    sizes = np.arange(count, dtype=np.uint64) * 977
    rows = [np.full(count, word, dtype=np.int64) for word in (1, 6, 0)]
    ours = digest_columns((0, 1), rows[0], sizes, rows[1], rows[2])
    views = b"".join(pack("<IQII", 1, int(size), 6, 0) for size in sizes)
    assert ours == md5(pack("<2I", 0, 1) + views)


def test_columns_must_have_one_length() -> None:
    """A column that is cut off is the caller's mistake, not an empty digest."""
    one, two = np.zeros(1, dtype=int), np.zeros(2, dtype=int)
    with pytest.raises(ValueError, match="columns of 2, 1, 2, 2 entries"):
        digest_columns((0, 1), two, one, two, two)


def test_a_digest_is_16_bytes() -> None:
    """Nothing else can be taken for one, and it prints as hex."""
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        Digest(b"abc")
    assert str(Digest(bytes(16))) == "00" * 16
