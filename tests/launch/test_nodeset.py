"""Node names fold and ranges read back, whatever the set."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.errors import InputError
from launch.nodeset import base36, fold, parse_ranges

ids = st.sets(st.integers(min_value=0, max_value=36**6 - 1), min_size=1, max_size=40)


def unfold(text: str) -> set[str]:
    """The names a folded string stands for, read by a second implementation."""
    match = re.fullmatch(r"node\[(.*)\]", text)
    if match is None:
        return {text}
    names: set[str] = set()
    for part in match[1].split(","):
        low, _, high = part.partition("-")
        names |= {f"node{base36(number)}" for number in range(int(low, 36), int(high or low, 36) + 1)}
    return names


@given(ids)
def test_base36_reads_back_as_the_number_it_was_made_from(numbers: set[int]) -> None:
    assert {int(base36(number), 36) for number in numbers} == numbers
    assert all(len(base36(number)) == 6 for number in numbers)


@given(st.sets(st.integers(min_value=0, max_value=2000), min_size=1, max_size=40))
def test_a_folded_set_names_exactly_the_nodes_that_went_in(numbers: set[int]) -> None:
    names = {f"node{base36(number)}" for number in numbers}
    assert unfold(fold(names)) == names


@given(st.sets(st.integers(min_value=0, max_value=300), min_size=1))
def test_a_list_of_ids_reads_back(numbers: set[int]) -> None:
    assert parse_ranges(",".join(map(str, numbers))) == tuple(sorted(numbers))


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "1-", "0x3", "1;2"])
def test_what_is_no_range_is_refused_with_the_option_named(text: str) -> None:
    with pytest.raises(InputError, match=r"^--nodes = .*0-3,7"):
        parse_ranges(text)
