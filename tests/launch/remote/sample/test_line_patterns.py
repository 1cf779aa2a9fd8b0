"""Numbers found in ranks' lines."""

from __future__ import annotations

import time

import pytest

from launch.remote.base.rate_limit import LAST_BYTES, RecentOutput
from launch.remote.sample.line_patterns import SEARCH_S, LineReader, PatternSearch

MEGATRON = (
    " [2025-04-13 23:41:12] iteration       10/    1000 | consumed samples:          160 | elapsed time per "
    "iteration (ms): 1147.6 | learning rate: 0.000000E+00 | lm loss: 7.399415E+00 | loss scale: 8388608.0 | "
    "number of skipped iterations:  11 | number of nan iterations:   12 |"
)
DEEPSPEED = (
    "[2023-12-29 13:02:49,654] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
    "RunningAvgSamplesPerSec=110.8, CurrSamplesPerSec=111.3, MemAllocated=1.87GB"
)
KERAS = "\x1b[1m 10/100\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m5s\x1b[0m 50ms/step - loss: 1.2"
LINES = [
    ("Iter #3: 544.8 img/sec per GPU", {"step": "3", "samples_per_s": "544.8"}),
    (
        "Epoch: [0][  10/5005]\tTime  0.3 ( 0.5)\tLoss 6.91e+00 (6.9e+00)",
        {"step": "10", "loss": "6.91e+00", "epoch": "0"},
    ),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300131", {"loss": "2.300131", "epoch": "1"}),
    (
        "Epoch 0:  50%|███  | 938/1875 [00:10<00:10, 90.1it/s, v_num=0, train_loss=0.31]",
        {"step": "938", "loss": "0.31", "epoch": "0"},
    ),
    ("Map: 50%|█| 938/1875 [00:10<00:10, 90.1 examples/s]", {"samples_per_s": "90.1"}),
    (
        "{'loss': 0.8091, 'grad_norm': 1.2, 'learning_rate': 0.000333, 'epoch': 0.08}",
        {"loss": "0.8091", "epoch": "0.08"},
    ),
    ("{'loss': '0.8091', 'grad_norm': '1.2', 'epoch': '0.08'}", {"loss": "0.8091", "epoch": "0.08"}),
    (
        "{'train_runtime': 12.3, 'train_samples_per_second': 81.0, 'train_steps_per_second': 8.1}",
        {"samples_per_s": "81.0"},
    ),
    ("10/100 [==>......] - ETA: 5s - loss: 1.2012 - accuracy: 0.5", {"step": "10", "loss": "1.2012"}),
    (KERAS, {"step": "10", "loss": "1.2"}),
    (DEEPSPEED, {"step": "10", "samples_per_s": "111.3", "epoch": "0"}),
    ("[logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.00033]", {"step": "10"}),
    (MEGATRON, {"step": "10", "loss": "7.399415E+00"}),
    ("saved checkpoint step_10.pt in 1.25 s", {"checkpoint_s": "1.25"}),
    ("checkpoint_s=3", {"checkpoint_s": "3"}),
    ("[30/5005] loss: 0.5 (100.5 samples/s)", {"step": "30", "loss": "0.5", "samples_per_s": "100.5"}),
    ("Epoch [3/10], Step [100/600], Loss: 0.4", {"step": "100", "loss": "0.4", "epoch": "3"}),
    ("Epoch [3/10] done", {"epoch": "3"}),
    ("Epoch 2 step 10", {"step": "10", "epoch": "2"}),
    ("Epoch 3/10", {"epoch": "3"}),
    ("epochs: 10, num_epoch=3, steps per epoch: 100, epoch 2nd, time of epoch", {}),
    ("Step [1,250/10,000], Loss: 0.5", {"step": "1250", "loss": "0.5"}),
    ("step 3 loss nan", {"step": "3", "loss": "nan"}),
    ("val_loss: 0.3, eval_loss 0.4, loss scale: 8.0, time per step: 3 s, step: 1.5", {}),
    ("", {}),
]


def search(*lines: str, **own: str) -> dict[str, str]:
    warned: list[str] = []
    found = PatternSearch(own, warned.append).search({0: list(lines)})
    assert warned == []
    return found[0]


@pytest.mark.parametrize(("line", "found"), LINES, ids=[line[:30] for line, _ in LINES])
def test_what_frameworks_print_is_found(line: str, found: dict[str, str]) -> None:
    (read,) = LineReader().lines({1: line.encode() + b"\n"}) or [""]
    assert search(read) == found


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
    ],
    ids=lambda line: line[:20],
)
def test_no_line_takes_a_known_pattern_out_of_the_search(line: str) -> None:
    warned: list[str] = []
    patterns = PatternSearch({}, warned.append)
    patterns.search({0: [line]})
    assert warned == []


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
