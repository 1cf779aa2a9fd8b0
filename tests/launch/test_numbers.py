"""Numbers of things in messages."""

from __future__ import annotations

import pytest

from infra.config.readers import node_count
from launch.client.log_filter import Selection
from launch.errors import InputError
from launch.nodeset import parse_ranges
from launch.numbers import bounded, counted, shown, whole


def test_one_thing_is_one_thing() -> None:
    assert [counted(number, "minute") for number in (0, 1, 2)] == ["0 minutes", "1 minute", "2 minutes"]


MANY = "12345678901234567890123456"


def test_an_error_shows_the_number_that_was_given_however_long() -> None:
    with pytest.raises(InputError, match=rf"--last = {MANY}: must be at most 10"):
        bounded("--last", MANY, 0, 10, remedy="give less")
    with pytest.raises(InputError, match=rf"--last = -{MANY}: must be at least 0"):
        bounded("--last", f" -{MANY} ", 0, 10, remedy="give more")
    with pytest.raises(InputError, match=rf"{MANY} is above"):
        parse_ranges(f"0-{MANY}")
    with pytest.raises(InputError, match=rf"nodeCount = {MANY}: is more than"):
        node_count("nodeCount", int(MANY), None)


@pytest.mark.parametrize("sign", ["", "-", "+"])
def test_of_thousands_of_digits_an_error_shows_the_first_and_how_many_there_are(sign: str) -> None:
    with pytest.raises(
        InputError, match=rf"N = '\{sign}{'7' * 40}… \(5000 digits\)'" if sign else "5000 digits"
    ):
        bounded("N", sign + "7" * 5000, 0, 10, remedy="give less")


def test_a_number_beyond_what_python_writes_as_digits_is_shown_too() -> None:
    number = 16**9000
    assert shown(number, whole(number) or 0) == f"0x1{'0' * 39}… (9001 digits)"


def test_an_error_speaks_of_one_rank_as_one() -> None:
    try:
        Selection(ranks=frozenset({1})).check("t-1", ["node000000"], 1)
    except InputError as error:
        assert error.problem == "job t-1 has 1 rank"
