"""Public dumps and XLA's own test inputs, read in place."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hlo_modules import codes

from rankmuster.errors import InvalidProgram
from rankmuster.formats.hlo import read

# What each wrong input of XLA's verifier tests is wrong in, by our codes.
CAUSES = {
    "HloVerifierTestForCollectiveDeadlocks__VerifySendRecvDeadlockOnOtherCollectives": {"RM206"},
    "HloVerifierTestForCollectiveDeadlocks__VerifySendRecvDeadlockOnSend": {"RM206"},
    "HloVerifierTest__ChannelVerifierMultipleRecvUsers": {"RM206"},
    "HloVerifierTest__ChannelVerifierMultipleSendUsers": {"RM206"},
    "HloVerifierTest__CollectivePermuteCrossReplicaSourceOOR": {"RM202"},
    "HloVerifierTest__CollectivePermuteDoneNoCollectivePermuteStart": {"RM701"},
    "HloVerifierTest__CollectivePermuteSameSourceTooManyTimes": {"RM201"},
    "HloVerifierTest__CollectivePermuteUnmatchingOutputAndOutputOffset": {"RM105"},
    "HloVerifierTest__FusionNestedComputationThreadVerifier": {"RM701"},
    "HloVerifierTest__ReduceScatterInvalidScatterDim": {"RM105"},
    "HloVerifierTest__ReduceScatterWithUnexpectedArrayOutputShape": {"RM105"},
    "HloVerifierTest__ReduceScatterWithUnexpectedTupleOperandShape": {"RM105"},
    "derived_groups__a2a_crosspart_bad": {"RM101"},
    "derived_groups__a2a_crosspart_ok": set(),
    "derived_groups__a2a_empty": {"RM104"},
    "derived_groups__a2a_missing": {"RM101", "RM103"},
    "derived_groups__a2a_repeated": {"RM102", "RM103"},
    "derived_groups__ar_empty_group": {"RM104"},
    "derived_groups__ar_flat_ok": set(),
    "derived_groups__ar_missing_id": {"RM101", "RM103"},
    "derived_groups__ar_no_groups_ok": set(),
    "derived_groups__ar_too_few": {"RM103"},
    "derived_groups__ar_too_many": {"RM101"},
}


def hlo_files(corpus: Path) -> list[Path]:
    return sorted([*corpus.rglob("*.hlo"), *corpus.glob("jax/**/*.txt")])


def error_of(path: Path) -> InvalidProgram | None:
    try:
        read(path.read_bytes(), where=path.name)
    except InvalidProgram as error:
        return error
    return None


@pytest.mark.parametrize("name", CAUSES)
def test_wrong_inputs_get_the_true_cause(corpus: Path, name: str) -> None:
    """What XLA's verifier refuses has an error of ours; what it accepts has none."""
    found = read((corpus / "xla_verifier_cases" / f"{name}.hlo").read_bytes())
    assert set(codes(found)) == CAUSES[name]


def test_every_verifier_case_has_a_cause(corpus: Path) -> None:
    """The table above leaves out no file."""
    assert {path.stem for path in (corpus / "xla_verifier_cases").iterdir()} == set(CAUSES)


def test_the_corpus_reads_or_is_refused_with_a_place(corpus: Path) -> None:
    """Every file is a program or an error with a line; refused are templates and fragments."""
    errors = {path.stem: error_of(path) for path in hlo_files(corpus)}
    refused = {name for name, error in errors.items() if error is not None}
    assert all(error.line is not None for error in errors.values() if error is not None)
    with (corpus / "MANIFEST.tsv").open() as table:
        known = {Path(row[0]).stem for row in csv.reader(table, delimiter="\t")}
    assert refused <= known
    assert len(refused) < 20


def test_the_maxtext_dump_is_cut_off(corpus: Path) -> None:
    """A dump that ends at line 2000 is refused at its end, with that reason."""
    path = next((corpus / "maxtext").glob("*.txt"))
    with pytest.raises(InvalidProgram, match="cut off") as caught:
        read(path.read_bytes())
    assert caught.value.line == 2001


def test_several_modules_are_refused_with_that_reason(corpus: Path) -> None:
    """A second HloModule in one file is named with its line."""
    path = corpus / "xla" / "hlo__translate__hlo_to_mhlo__tests__frontend_attributes.hlo"
    with pytest.raises(InvalidProgram, match="second HloModule") as caught:
        read(path.read_bytes())
    assert caught.value.line == 30


def test_a_jax_dump_is_read_with_its_source_lines(corpus: Path) -> None:
    """Ops of a real training step carry the file and line of the user's code."""
    path = corpus / "jax/mp_clean/proc0/module_0000.jit_step.cpu_after_optimizations.txt"
    found = read(path.read_bytes())
    assert [(op.kind.value, op.elements, op.source) for op in found.walk()] == [
        ("all_reduce", (1,), "app/jax_gen.py:36"),
        ("all_gather", (32,), "app/jax_gen.py:36"),
    ]
    assert [s.members for s in found.replica_groups] == [((0, 1, 2, 3),)]
    assert (found.world_size, found.world_source, found.findings) == (4, "header", ())


def test_the_order_of_two_stages_is_each_one_s_own(corpus: Path) -> None:
    """Before and after optimisation a step holds the same kinds of ops on the same sets."""
    sets = []
    for path in sorted((corpus / "jax/all_ops").glob("module_0004*optimizations.txt")):
        found = read(path.read_bytes(), partitions=8)
        sets.append({s.unordered for s in found.replica_groups})
    assert len(sets) == 2
    assert sets[0] == sets[1]
