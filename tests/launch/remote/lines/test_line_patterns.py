"""Numbers found in ranks' lines."""

from __future__ import annotations

import time

import pytest

from launch.remote.base.rate_limit import LAST_BYTES, RecentOutput
from launch.remote.lines.line_patterns import SEARCH_S, LineReader, PatternSearch


def search(*lines: str, **own: str) -> dict[str, str]:
    warned: list[str] = []
    found = PatternSearch(own, warned.append).search({0: list(lines)})
    assert warned == []
    return found[0]


def test_the_newest_line_with_a_metric_counts() -> None:
    assert search("step 1 loss 0.9", "step 2", "validating") == {"step": "2", "loss": "0.9"}


def test_a_jobs_own_pattern_is_added_and_one_of_a_known_name_replaces_it() -> None:
    found = search("step 7 PSNR: 31.5 dB, loss 0.5, batch 9", psnr=r"PSNR: (\S+)", step=r"batch (\d+)")
    assert found == {"psnr": "31.5", "step": "9", "loss": "0.5"}


def test_what_a_group_finds_has_to_be_a_number() -> None:
    assert search("name: fast", name=r"name: (\w+)") == {}
    assert search("x", optional=r"x(y)?") == {}


def test_a_pattern_that_this_python_does_not_take_is_left_out_with_a_line() -> None:
    warned: list[str] = []
    found = PatternSearch({"bad": "(a"}, warned.append).search({0: ["step 3"]})
    assert found == {0: {"step": "3"}}
    assert warned == [
        "metric bad: this node's Python does not take its pattern: missing ), unterminated subpattern at "
        "position 0"
    ]


def test_a_pattern_without_end_is_stopped_and_not_searched_again() -> None:
    warned: list[str] = []
    patterns = PatternSearch({"bad": "(a+)+b"}, warned.append)
    begun = time.process_time()
    patterns.search({0: ["a" * 60]})
    assert time.process_time() - begun < 4 * SEARCH_S
    assert len(warned) == 1
    assert warned[0].startswith("metric bad: its pattern took longer than 0.05 s")
    assert patterns.search({0: ["a" * 60, "step 3"]}) == {0: {"step": "3"}}
    assert len(warned) == 1


@pytest.mark.parametrize(
    "line",
    [
        f"loss{' ' * LAST_BYTES}",
        f"loss: {'1' * LAST_BYTES}x",
        f"{'1' * LAST_BYTES} /s",
        f"1{',111' * (LAST_BYTES // 4)} samples/s",
        f"samples/s{' ' * LAST_BYTES}",
        f"samples_per_sec{' ' * LAST_BYTES}",
        f"checkpoint_s={'1' * LAST_BYTES}x",
        "checkpoint in " * (LAST_BYTES // 14),
        f"step{' (' * 6}{' ' * LAST_BYTES}",
        f"[{' ' * LAST_BYTES}",
        "loss '\" " * (LAST_BYTES // 8),
        "".join(f"loss{number} 1 " for number in range(LAST_BYTES // 10)),
        f"steps {'1/' * (LAST_BYTES // 2)}",
        f"loss{'(' * LAST_BYTES}1",
    ],
    ids=lambda line: line[:20],
)
def test_no_line_takes_the_time_of_the_others(line: str) -> None:
    warned: list[str] = []
    patterns = PatternSearch({}, warned.append)
    assert patterns.search({0: ["epoch 3 ends", line]})[0]["epoch"] == "3"
    assert warned == []


def test_a_total_of_all_ranks_does_not_follow_a_ranks_own_throughput() -> None:
    patterns = PatternSearch({}, lambda _: None)
    total = "Total img/sec on 8 GPU(s): 962.4 +-16.8"
    assert patterns.search({0: [total]}) == {0: {"samples_per_s": "962.4"}}
    assert patterns.search({0: ["Iter #9: 120.3 img/sec per GPU"]})[0]["samples_per_s"] == "120.3"
    assert patterns.search({0: ['{"img_per_s": 962.4, "nodes": 2}']}) == {0: {}}
    assert patterns.search({0: [total], 1: [total]}) == {0: {}, 1: {"samples_per_s": "962.4"}}


def test_the_first_line_of_each_form_is_kept_with_each_metric() -> None:
    patterns = PatternSearch({"psnr": r"PSNR: (\S+)"}, lambda _: None)
    patterns.search({0: ["step 1 loss 0.5", "PSNR: 31.5"], 1: ["step 1 loss 0.25"]})
    assert patterns.take_lines(0) == {
        "step": "step 1 loss 0.5",
        "loss": "step 1 loss 0.5",
        "psnr": "PSNR: 31.5",
    }
    assert (patterns.take_lines(0), patterns.take_lines(1)) == ({}, {})
    patterns.search({0: ["step 2 loss 0.125"], 1: [f"validated; loss 3 {'x' * 1000}"]})
    assert patterns.take_lines(0) == {}
    assert [len(line) for line in patterns.take_lines(1).values()] == [400]
    for letter in "abcdef":
        patterns.search({0: [f"{letter}: step 3"]})
    assert patterns.take_lines(0) == {"step": "b: step 3"}


def test_a_number_that_is_too_long_is_none_and_not_its_beginning() -> None:
    patterns = PatternSearch({}, lambda _: None)
    for number in ("0." + "3" * 40, "3" * 80):
        assert patterns.search({0: [f"loss: {number}"]}) == {0: {}}


class TestLines:
    def test_a_line_comes_once_its_end_has_come(self) -> None:
        reader = LineReader()
        assert reader.lines({1: b"one\ntw"}) == ["one"]
        assert reader.lines({1: b"o\rthree"}) == ["two"]
        assert reader.lines({}) == []
        assert reader.lines({}, at_end=True) == ["three"]

    def test_lines_of_one_stream_stay_whole_beside_those_of_the_other(self) -> None:
        reader = LineReader()
        assert reader.lines({1: b"los", 2: b"warn"}) == []
        assert reader.lines({1: b"s 0.5\n", 2: b"ing\n"}) == ["loss 0.5", "warning"]

    def test_a_line_whose_beginning_is_lost_is_left_out(self) -> None:
        reader, output = LineReader(), RecentOutput(0.0)
        output.add(1, b"x" * 10**6 + b"\nstep 4\nste", 1.0)
        assert reader.lines(output.take()) == ["step 4"]
        output.add(1, b"p 5" * LAST_BYTES, 2.0)
        assert reader.lines(output.take()) == []
        output.add(1, b" 9\nstep 6\n", 3.0)
        assert reader.lines(output.take()) == ["step 6"]

    def test_anything_may_be_in_a_line(self) -> None:
        assert LineReader().lines({1: b"\xff\x00 step 3\n\x1b]0;title\x07step 4\x08\n"}) == [
            "\ufffd\x00 step 3",
            "step 4",
        ]

    def test_no_more_than_the_end_of_the_output_is_kept(self) -> None:
        output = RecentOutput(0.0)
        for _ in range(100):
            output.add(1, b"y" * 65536, 5.0)
        assert output.last == 5.0
        assert [len(data) for data in output.take().values()] == [LAST_BYTES]
        assert output.take() == {}
