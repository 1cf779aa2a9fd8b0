"""Node names fold and ranges read back, whatever the set."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.errors import InputError
from launch.nodeset import base36, fold, parse_nodes, parse_ranges

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


@given(st.sets(st.integers(min_value=0, max_value=2000), min_size=1, max_size=40))
def test_what_is_printed_of_nodes_chooses_them(numbers: set[int]) -> None:
    names = {f"node{base36(number)}" for number in numbers}
    assert parse_nodes(fold(names)).names == names
    assert parse_nodes(fold(names)).numbers == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("text", "names", "ids"),
    [
        ("0-3,7", set(), {0, 1, 2, 3, 7}),
        ("node00000a", {"node00000a"}, set()),
        ("node000009-node00000b", {"node000009", "node00000a", "node00000b"}, set()),
        ("node00000z-000011", {"node00000z", "node000010", "node000011"}, set()),
        ("gpu-a000001 , 4", {"gpu-a000001"}, {4}),
        ("trainer-x000001-trainer-x000002", {"trainer-x000001", "trainer-x000002"}, set()),
        ("node[000000-000001,00000f],9,login", {"node000000", "node000001", "node00000f", "login"}, {9}),
    ],
)
def test_names_and_ids_go_together(text: str, names: set[str], ids: set[int]) -> None:
    chosen = parse_nodes(text)
    assert (set(chosen.names), set(chosen.ids)) == (names, ids)
    assert (chosen.count, chosen.is_all) == (None, False)


def test_all_and_a_number_name_no_node() -> None:
    assert parse_nodes("all").is_all
    assert parse_nodes("any:12").count == 12
    assert not parse_nodes("any:12").is_all


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is not a node"),
        ("0-", "'0-' is not a range"),
        ("3-1", "'3-1' runs backwards"),
        ("node000003-node000001", "'node000003-node000001' runs backwards"),
        ("NODE", "'NODE' is not a node"),
        ("node000000,", "'' is not a node"),
        ("0;1", "'0;1' is not a range"),
        ("node[0-3]", "'node[0-3]' is not a node"),
        ("node[000001", "'node[000001' is not a node"),
        ("0,all", "'all' is not a node"),
        ("0,any:2", "'any:2' is not a node"),
        ("any:0", "must be at least 1"),
        ("any:x", "has no number of nodes"),
        ("node000000-node0zzzzz", "names more than 100000 nodes"),
    ],
)
def test_what_chooses_no_nodes_is_refused_with_what_would(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_nodes(text, "--node")
    assert str(caught.value).startswith("--node = ")
    assert problem in str(caught.value)
    assert "write it like 0-3,7" in str(caught.value)
    if text.startswith("any:"):
        assert str(caught.value).startswith(f"--node = {text!r}: ")
