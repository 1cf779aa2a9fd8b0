"""Fewer lines for who reads them: bars, matches, equal lines of many ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.client import log_display
from launch.client.events import LogLine, Quiet
from launch.client.log_display import Bars, Merge, SharedLine, matches

START = datetime(2026, 3, 1, tzinfo=UTC)


def line(
    rank: int | None, text: str, at: float = 0.0, *, bar: bool = False, stream: str = "stdout"
) -> LogLine:
    node = f"node{0 if rank is None else rank // 4:06}"
    when = START + timedelta(seconds=at)
    return LogLine(when, rank, node, stream, text.encode(), bar)  # type: ignore[arg-type]


def merged(lines: Iterable[LogLine]) -> list[SharedLine]:
    merge = Merge()
    shown = [shared for one in lines for shared in merge.feed(one)]
    return shown + list(merge.rest())


def merged_text(lines: Iterable[LogLine]) -> list[tuple[tuple[int | None, ...], str]]:
    return [(shared.ranks, shared.data.decode()) for shared in merged(lines)]


class TestBars:
    def test_the_first_state_one_now_and_then_and_the_last(self) -> None:
        bars = Bars()
        states = [line(0, f"{second}%", second, bar=True) for second in range(25)]
        shown = [one.data for one in [*states, line(0, "100%", 25)] if bars.shows(one)]
        assert shown == [b"0%", b"10%", b"20%", b"100%"]

    def test_ranks_and_streams_have_bars_of_their_own_and_empty_states_are_none(self) -> None:
        bars = Bars()
        assert not bars.shows(line(0, " ", bar=True))
        assert bars.shows(line(0, "a", bar=True))
        assert bars.shows(line(1, "a", bar=True))
        assert bars.shows(line(0, "a", bar=True, stream="stderr"))
        assert not bars.shows(line(0, "b", 1, bar=True))

    def test_the_oldest_of_very_many_bars_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_display, "_BARS", 10)
        bars = Bars()
        assert all(bars.shows(line(rank, "a", bar=True)) for rank in range(12))
        assert [bars.shows(line(rank, "b", 1, bar=True)) for rank in (11, 2, 1)] == [False, False, True]

    def test_lines_are_never_kept_back(self) -> None:
        bars = Bars()
        assert all(bars.shows(line(0, text)) for text in ("", "a", "a"))


class TestMatching:
    @pytest.mark.parametrize(
        ("pattern", "text", "whether"),
        [
            ("loss", "epoch 1 loss 0.5", True),
            ("^loss", "epoch 1 loss 0.5", False),
            ("l.ss$", "\x1b[31mloss\x1b[0m", True),
            ("é", "é", True),
            ("x", "", False),
        ],
    )
    def test_anywhere_in_the_line_colours_aside(self, pattern: str, text: str, whether: bool) -> None:
        assert matches(line(0, text), re.compile(pattern)) is whether

    def test_bytes_that_are_no_text_do_not_end_the_search(self) -> None:
        odd = LogLine(START, 0, "node000000", "stdout", b"\xff loss \x80")
        assert matches(odd, re.compile("loss"))

    def test_notices_always_do(self) -> None:
        assert matches(line(0, "left out 12.3 MB", stream="notice"), re.compile("loss"))


class TestMerging:
    def test_equal_lines_of_many_ranks_are_one(self) -> None:
        written = [line(rank, text, n) for n, text in enumerate(("loss 1", "loss 2")) for rank in range(8)]
        assert merged(written) == [
            SharedLine(tuple(range(8)), ("node000000", "node000001"), "stdout", text)
            for text in (b"loss 1", b"loss 2")
        ]

    def test_lines_of_one_rank_stand_for_themselves_where_they_came(self) -> None:
        written = [line(0, "a"), line(1, "a"), line(1, "only one"), line(0, "b"), line(1, "b")]
        assert merged_text(written) == [((0, 1), "a"), ((1,), "only one"), ((0, 1), "b")]

    def test_a_line_said_twice_stays_twice(self) -> None:
        written = [line(rank, "same") for rank in (0, 1) for _ in range(3)]
        assert merged_text(written) == [((0, 1), "same")] * 3

    def test_no_rank_is_shown_out_of_its_order(self) -> None:
        written = [line(0, "a"), line(0, "b"), line(1, "b"), line(1, "a")]
        assert merged_text(written) == [((0,), "a"), ((0, 1), "b"), ((1,), "a")]

    def test_what_comes_a_second_later_is_another_line(self) -> None:
        assert merged_text([line(0, "a", 0), line(1, "a", 0.9), line(2, "a", 2)]) == [
            ((0, 1), "a"),
            ((2,), "a"),
        ]

    def test_streams_are_apart_and_notices_stay_alone(self) -> None:
        written = [line(0, "a"), line(1, "a", stream="stderr"), line(2, "n", stream="notice")]
        written.append(line(3, "n", stream="notice"))
        assert [(one.ranks, one.stream) for one in merged(written)] == [
            ((0,), "stdout"), ((1,), "stderr"), ((2,), "notice"), ((3,), "notice"),
        ]  # fmt: skip

    def test_lines_that_wait_take_no_more_memory_than_is_set_for_all(self) -> None:
        long, merge = "x" * (1 << 20), Merge()
        early = [one for number in range(80) for one in merge.feed(line(number, f"{number}{long}"))]
        assert len(early) in range(16, 20)
        assert [one.ranks for one in (*early, *merge.rest())] == [(number,) for number in range(80)]

    def test_very_many_ranks_of_one_line_do_not_wait_together(self) -> None:
        merge, count = Merge(), 700_000
        shown = [one for number in range(count) for one in merge.feed(line(number, "a"))]
        assert sum(len(one.ranks) for one in (*shown, *merge.rest())) == count
        assert shown

    def test_the_launchers_words_on_several_nodes_are_merged_too(self) -> None:
        written = [LogLine(START, None, f"node{n:06}", "stderr", b"warning") for n in range(3)]
        (one,) = merged(written)
        assert (one.ranks, len(one.nodes)) == ((None,), 3)

    def test_nothing_is_held_back_once_it_is_quiet(self) -> None:
        merge = Merge()
        assert list(merge.feed(line(0, "a"))) == []
        assert [one.data for one in merge.feed(Quiet())] == [b"a"]
        assert list(merge.rest()) == []

    def test_lines_wait_for_a_second_and_no_longer(self) -> None:
        merge = Merge()
        assert list(merge.feed(line(0, "a", 0.0))) == []
        assert list(merge.feed(line(0, "b", 0.9))) == []
        assert [one.data for one in merge.feed(line(0, "c", 1.5))] == [b"a"]

    @given(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.floats(0, 0.6)),
            max_size=60,
        )
    )
    def test_every_rank_has_all_of_its_lines_in_their_order(
        self, written: list[tuple[int, str, float]]
    ) -> None:
        now = 0.0
        lines = []
        for rank, text, pause in written:
            now += pause
            lines.append(line(rank, text, now))
        shown = merged_text(lines)
        for rank in range(4):
            assert [text for ranks, text in shown if rank in ranks] == [
                text for r, text, _ in written if r == rank
            ]
