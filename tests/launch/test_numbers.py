"""Numbers of things in messages."""

from __future__ import annotations

from launch.errors import InputError
from launch.numbers import counted
from launch.selection import Selection


def test_one_thing_is_one_thing() -> None:
    assert [counted(number, "minute") for number in (0, 1, 2)] == ["0 minutes", "1 minute", "2 minutes"]


def test_an_error_speaks_of_one_rank_as_one() -> None:
    try:
        Selection(ranks=frozenset({1})).check("t-1", ["node000000"], 1)
    except InputError as error:
        assert error.problem == "job t-1 has 1 rank"
