"""Lines of output, however it is cut into pieces."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from launch.remote.log import lines
from launch.remote.log.lines import Line, Lines

KEY = (0, 0, 1)


def told(text: bytes, cuts: list[int]) -> list[tuple[bytes, bool]]:
    made, found = Lines(), list[Line]()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += made.feed(0.0, KEY, text[start:end])
    return [(line.data, line.overwritten) for line in (*found, *made.end(KEY))]


@pytest.mark.parametrize("text", [b"one\ntwo\n", b"10%\r20%\rdone\r\nlast", b"a\r", b"\r\n\r\nb\rc\n", b""])
def test_pieces_of_any_size_make_the_same_lines(text: bytes) -> None:
    whole = told(text, [])
    assert told(text, list(range(1, len(text)))) == whole
    for seed in range(20):
        drawn = random.Random(seed)
        assert told(text, sorted(drawn.sample(range(len(text) + 1), min(3, len(text) + 1)))) == whole


def test_a_line_that_is_too_long_is_one_also_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LONGEST", 10)
    assert [data for data, _ in told(b"x" * 25, list(range(1, 25)))] == [b"x" * 10, b"x" * 10, b"x" * 5]
    made = Lines()
    drop = made.skip
    for _ in range(25):
        drop(0.0, KEY, b"y")
    drop(0.0, KEY, b"z")
    assert [line.data for line in made.unfinished()] == [b"y" * 9 + b"z"]


@pytest.mark.parametrize("word", ["feed", "skip"])
def test_many_pieces_of_a_line_take_time_in_proportion_to_their_number(word: str) -> None:
    def cost(count: int) -> float:
        made = Lines()
        add: Callable[[float, tuple[int, int, int], bytes], object] = getattr(made, word)
        began = time.process_time()
        for _ in range(count):
            list(add(0.0, KEY, b"x" * 10) or ())  # type: ignore[call-overload]
        return time.process_time() - began

    cost(1000)
    few, many = min(cost(20_000) for _ in range(3)), min(cost(160_000) for _ in range(3))
    assert many < 20 * few
