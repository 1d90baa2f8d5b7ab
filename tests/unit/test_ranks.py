"""Folded sets of ids: what is written reads back, and what cannot be read is quoted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankmuster.ranks import fold, unfold


@given(st.sets(st.integers(0, 300)))
def test_what_is_folded_unfolds(ids: set[int]) -> None:
    """Any set comes back, ascending."""
    assert unfold(fold(ids)) == tuple(sorted(ids))


def test_people_may_write_spaces_and_any_order() -> None:
    """The parts may overlap, and nothing at all is no id."""
    assert unfold(" 16, 0-2 ,1") == (0, 1, 2, 16)
    assert unfold("  ") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,a", "'a' is not an id or a range like '0-7'"),
        ("1,,2", "'' is not an id or a range like '0-7'"),
        ("1 - 2", "'1 - 2' is not an id or a range like '0-7'"),
        ("0-٣", "'0-٣' is not an id or a range like '0-7'"),
        ("9" * 19, f"'{'9' * 19}' is too large"),
        ("3-1", "'3-1' runs backwards"),
        ("0-99999999", "'0-99999999' names more than 16777216 ids"),
    ],
)
def test_what_cannot_be_read_is_quoted(text: str, said: str) -> None:
    """The first part that is wrong, and why."""
    with pytest.raises(ValueError, match=re.escape(said)):
        unfold(text)


def test_the_limit_counts_ids() -> None:
    """Two are two, however they are written."""
    assert unfold("1,2", limit=2) == (1, 2)
    with pytest.raises(ValueError, match="more than 2 ids"):
        unfold("1-2,5", limit=2)
