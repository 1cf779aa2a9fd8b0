"""What of a rank's output goes to the head, and what is reported of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.remote.base import frames
from launch.remote.base import rate_limit as module
from launch.remote.base.rate_limit import LAST_BYTES, LastBytes, Outlet


def outlet(rate: int = 10, burst: int = 20) -> Outlet:
    return Outlet(3, "rank-3", rate, burst, 0.0)


def sent(one: Outlet) -> list[tuple[Any, ...]]:
    """What the head gets: (stream, data) for output, (bytes, lines) for notices, (0, data) for last bytes."""
    result: list[tuple[Any, ...]] = []
    for kind, payload in frames.Decoder().feed(one.frames()):
        if kind == frames.NOTE:
            fields = frames.unpack(payload)
            assert (fields["rank"], fields["log"]) == (3, "rank-3")
            result.append((fields["bytes"], fields["lines"], fields["lost"], fields["why"]))
        else:
            rank, stream = frames.OUTPUT.unpack_from(payload)
            assert rank == 3
            assert (kind == frames.TAIL) == (stream == 0)
            result.append((stream, payload[frames.OUTPUT.size :]))
    return result


def test_pieces_of_one_stream_are_gathered_and_streams_stay_in_order() -> None:
    one = outlet()
    for stream, data in ((1, b"a\n"), (1, b"b\n"), (2, b"c\n"), (1, b"d")):
        one.take(stream, data, 0.0)
    assert one.size > 0
    assert sent(one) == [(1, b"a\nb\n"), (2, b"c\n"), (1, b"d")]
    assert one.size == 0
    one.end()
    assert sent(one) == []


def test_over_the_rate_whole_lines_are_left_out_counted_and_told_once_there_is_room_again() -> None:
    one = outlet()
    one.take(1, b"0123456789\nabcdefgh\nxyz\nuvw\n", 0.0)
    assert sent(one) == [(1, b"0123456789\nabcdefgh\n")]
    one.take(1, b"more\n", 0.5)
    assert sent(one) == []
    one.take(1, b"later\n", 1.5)
    assert sent(one) == [(13, 3, 0, ""), (1, b"later\n")]


def test_what_was_left_out_is_told_also_when_nothing_follows() -> None:
    one = outlet()
    one.take(1, b"x" * 30 + b"\n", 0.0)
    one.tick(0.9)
    assert sent(one) == []
    one.tick(1.1)
    assert sent(one) == [(31, 1, 0, "")]
    one.tick(9.0)
    assert sent(one) == []


def test_a_line_is_passed_on_whole_or_not_at_all() -> None:
    one = outlet()
    one.take(1, b"0123456789", 0.0)
    one.take(1, b"0123456789 and its end\nnext\n", 0.0)
    assert sent(one) == [(1, b"01234567890123456789 and its end\n")]
    one.take(1, b"begun ", 0.1)
    one.take(1, b"and ended\nwhole\n", 5.0)
    assert sent(one) == [(21, 2, 0, ""), (1, b"whole\n")]


def test_a_line_that_has_begun_is_passed_on_to_its_end_and_the_rate_is_kept_afterwards() -> None:
    one = outlet()
    for _ in range(10):
        one.take(1, b"x" * 15, 0.0)
    one.take(1, b"end\nnew\n", 0.0)
    assert sent(one) == [(1, b"x" * 150 + b"end\n")]
    one.take(1, b"too early\n", 13.0)
    assert sent(one) == []
    one.take(1, b"later\n", 16.0)
    assert sent(one) == [(14, 2, 0, ""), (1, b"later\n")]


def test_a_line_of_a_megabyte_is_whole_at_any_rate() -> None:
    one = Outlet(3, "rank-3", 128 << 10, 1 << 20, 0.0)
    text = b"x" * 1_000_000 + b"\n"
    pieces = [text[at : at + 65536] for at in range(0, len(text), 65536)]
    for number in range(4):  # a second after the other: more than the rate
        for piece in pieces:
            one.take(1, piece, float(number))
    one.end()
    result = sent(one)
    passed = b"".join(item[1] for item in result if item[0] == 1)
    assert passed == text * passed.count(b"\n")
    assert passed.count(b"\n") == 2
    assert [item for item in result if len(item) == 4] == [(2 * len(text), 2, 0, "")]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("rate", [10, 100_000])
def test_a_longer_line_ends_at_the_bound_and_what_it_lacks_is_said_behind_it(
    monkeypatch: pytest.MonkeyPatch, size: int, rate: int
) -> None:
    monkeypatch.setattr(module, "_LONGEST_LINE", 100)
    one = outlet(rate, 100_000)
    text = b"a" * 100 + b"\n" + b"b" * 101 + b"\n" + b"c" * 300 + b"\n" + b"d\n"
    for at in range(0, len(text), size):
        one.take(1, text[at : at + size], 0.0)
    assert [item if len(item) == 4 else item[1] for item in sent(one)] == [
        b"a" * 100 + b"\n" + b"b" * 100,
        (2, 1, 0, ""),
        b"c" * 100,
        (201, 1, 0, ""),
        b"d\n",
    ]


def test_a_line_that_was_left_out_in_part_and_never_ends_is_told_after_a_while() -> None:
    one = outlet()
    one.take(1, b"x" * 30, 0.0)
    one.tick(0.9)
    assert sent(one) == []
    one.tick(3.0)
    assert sent(one) == [(30, 0, 0, "")]


def test_progress_bars_are_cut_between_their_states_and_line_ends_counted_as_they_look() -> None:
    one = outlet()
    one.take(1, b"10%\r20%\r30%\r40%\r50%\r60%\r", 0.0)
    one.take(1, b"\n", 0.0)
    one.take(1, b"a\r\nb\r\n", 0.0)
    one.end()
    assert sent(one) == [
        (1, b"10%\r20%\r30%\r40%\r50%\r"),
        (4 + 1 + 6, 3, 0, ""),
        (0, b"10%\r20%\r30%\r40%\r50%\r60%\r\na\r\nb\r\n"),
    ]


def test_streams_share_the_rate_but_not_their_lines() -> None:
    one = outlet()
    one.take(1, b"half", 0.0)
    one.take(2, b"e" * 40 + b"\n", 0.0)
    one.take(1, b" line\nmore\n", 0.0)
    assert sent(one) == [(1, b"half line\n")]
    one.take(2, b"ok\n", 9.0)
    assert sent(one) == [(46, 2, 0, ""), (2, b"ok\n")]


def test_without_room_on_the_way_everything_is_left_out() -> None:
    one = outlet(1000, 1000)
    one.take(1, b"a\nhal", 0.0)
    one.take(1, b"f\nb\nc\n", 0.0, has_room=False)
    one.tick(60.0, has_room=False)
    assert sent(one) == [(1, b"a\nhalf\n")]
    one.take(1, b"d\n", 61.0)
    assert sent(one) == [(4, 2, 0, ""), (1, b"d\n")]


def test_at_the_end_the_head_gets_the_true_last_bytes_if_it_lacks_any() -> None:
    one = outlet()
    one.take(1, b"x" * 9000 + b"\nlast words", 0.0)
    one.end()
    assert sent(one) == [(9011, 1, 0, ""), (0, (b"x" * 9000 + b"\nlast words")[-LAST_BYTES:])]
    one.end()
    assert sent(one) == []


def test_a_log_that_cannot_be_written_is_told_once_and_what_it_lacks_when_it_can() -> None:
    one = outlet()
    for _ in range(3):
        one.logged(100, "No space left on device")
    assert sent(one) == [(0, 0, 0, "No space left on device")]
    assert b"300 bytes" in one.gap
    one.logged(0, "")
    assert sent(one) == [(0, 0, 300, "No space left on device")]
    assert one.gap == b""
    one.logged(5, "No space left on device")
    one.end()
    assert [result[2] for result in sent(one)] == [0, 5]


def test_what_was_left_out_is_not_said_to_be_in_a_log_that_lacks_it() -> None:
    one = outlet()
    one.logged(31, "No space left on device")
    one.take(1, b"x" * 30 + b"\n", 0.0)
    one.end()
    assert (31, 1, 0, "No space left on device") in sent(one)


pieces = st.lists(
    st.tuples(
        st.sampled_from([1, 2]),
        st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r", b"\r\n", b"ccccccc"]), min_size=1).map(b"".join),
        st.floats(0, 2),
        st.booleans(),
    ),
    max_size=30,
)


@given(pieces)
def test_every_byte_is_sent_or_counted(given_pieces: list[tuple[int, bytes, float, bool]]) -> None:
    one = outlet()
    now = 0.0
    for stream, data, pause, room in given_pieces:
        now += pause
        one.take(stream, data, now, room)
    one.end()
    result = sent(one)
    passed = sum(len(item[1]) for item in result if len(item) == 2 and item[0])
    left = sum(item[0] for item in result if len(item) == 4)
    assert passed + left == sum(len(data) for _, data, _, _ in given_pieces)


@given(st.lists(st.integers(1, 30), max_size=40), st.floats(0.01, 3))
def test_what_is_passed_on_is_whole_lines_of_the_rank_in_their_order(sizes: list[int], pause: float) -> None:
    one = outlet()
    lines = [b"%d:" % number + b"x" * size + b"\n" for number, size in enumerate(sizes)]
    text = b"".join(lines)
    for number, start in enumerate(range(0, len(text), 7)):
        one.take(1, text[start : start + 7], number * pause)
    one.end()
    passed = b"".join(item[1] for item in sent(one) if item[0] == 1 and len(item) == 2)
    shown = passed.splitlines(keepends=True)
    assert [line for line in shown if line in lines] == [line for line in lines if line in shown]


def test_who_printed_little_is_not_what_fills_the_way() -> None:
    one = outlet()
    one.take(1, b"12345678\n", 0.0)
    assert one.is_modest
    one.take(1, b"12345678\n", 0.0)
    assert not one.is_modest
    one.tick(2.0)
    assert one.is_modest
    one.take(1, b"x" * 30 + b"\n", 2.0)
    assert not one.is_modest


def test_the_true_last_lines_have_what_one_stream_began_before_the_other_stream_came_between() -> None:
    one = outlet(rate=10, burst=10)
    one.take(1, b"left out: more than the burst\n", 0.0)
    for stream, data in ((1, b"loss: "), (2, b"careful\n"), (1, b"0.5\nunfinished")):
        one.take(stream, data, 0.0)
    one.end()
    assert sent(one)[-1] == (0, b"left out: more than the burst\ncareful\nloss: 0.5\nunfinished")


def test_the_last_bytes_of_both_streams_together_are_bounded() -> None:
    last = LastBytes()
    for _ in range(100):
        for stream in (1, 2):
            last.add(stream, b"x" * 1000)
        last.add(1, b"\n")
    assert last.data == b"x" * LAST_BYTES
