"""Steps of a launch whose ranks print them, from the beginning in each epoch or not."""

from __future__ import annotations

import json

import pytest

from launch.remote.sample.history import HistoryRecorder
from launch.remote.sample.sample_records import AttemptSteps, Sample


def steps_of(*printed: tuple[int, dict[str, str]]) -> AttemptSteps:
    """The record of a launch whose ranks printed these metrics, one sample after the other."""
    recorded = HistoryRecorder(0, 0.0)
    for second, (rank, metrics) in enumerate(printed):
        one = {"rank": rank, "cpu_permille": 0, "memory": 0, "silent_ms": 0, "metrics": metrics, "lines": {}}
        sample: Sample = {"node": [], "ranks": [one]}  # type: ignore[list-item]
        recorded.add("a", sample, float(second))
    (found,) = json.loads(recorded.as_json())["attempts"]
    return found  # type: ignore[no-any-return]


def of_rank_0(*steps: float) -> AttemptSteps:
    return steps_of(*[(0, {"step": str(step)}) for step in steps])


def of_epochs(*printed: tuple[float, float]) -> AttemptSteps:
    """The same with the epoch of each step."""
    return steps_of(*[(0, {"epoch": str(epoch), "step": str(step)}) for epoch, step in printed])


def test_steps_that_only_grow_are_as_printed() -> None:
    found = of_rank_0(10, 20, 30)
    assert (found["first_step"], found["last_step"], found["last_step_at"]) == (10, 30, 2.0)
    assert (found["has_epochs"], found["epoch_steps"]) == (False, 30)


def test_a_step_that_falls_back_begins_an_epoch_and_the_count_goes_on() -> None:
    found = of_rank_0(1, 50, 100, 1, 50, 100, 30)
    assert (found["first_step"], found["last_step"], found["last_step_at"]) == (1, 230, 6.0)
    assert (found["has_epochs"], found["epoch_steps"]) == (True, 100)


def test_steps_from_0_on_are_one_more() -> None:
    found = of_rank_0(0, 99, 0, 99, 0)
    assert (found["last_step"], found["epoch_steps"]) == (200, 100)


@pytest.mark.parametrize("late", [(98,), (60, 61)])
def test_lines_that_are_not_in_order_begin_none(late: tuple[float, ...]) -> None:
    found = of_rank_0(10, 99, *late, 101)
    assert (found["last_step"], found["has_epochs"]) == (101, False)


def test_an_evaluation_in_between_is_none() -> None:
    assert of_rank_0(900, 1000, 1, 20, 40, 1001, 1100)["last_step"] == 1100
    assert of_epochs((0, 1000), (1, 2), (1, 40), (1, 1100), (2, 10), (2, 1200))["last_step"] == 1200


def test_ranks_are_each_counted_and_the_furthest_is_the_launchs() -> None:
    ahead, behind = [(0, step) for step in (90, 100, 5, 15)], [(1, step) for step in (88, 98, 99, 10)]
    pairs = [one for both in zip(ahead, behind, strict=True) for one in both]
    found = steps_of(*[(rank, {"step": str(step)}) for rank, step in pairs])
    assert (found["first_step"], found["last_step"]) == (90, 115)


def test_with_the_metric_epoch_an_epoch_begins_at_any_earlier_step() -> None:
    found = of_epochs((3, 10), (3, 90), (4, 70), (4, 95), (5, 80))
    assert (found["first_epoch"], found["last_epoch"]) == (3, 5)
    assert (found["last_step"], found["epoch_steps"]) == (90 + 95 + 80, 95)


def test_a_line_of_the_next_epoch_may_come_before_its_first_step() -> None:
    assert of_epochs((0, 90), (1, 98), (1, 5), (1, 60))["last_step"] == 98 + 60


def test_an_evaluation_that_prints_steps_of_the_same_epoch_is_none() -> None:
    printed = [{"epoch": "0", "step": "100"}, {"step": "1"}, {"step": "20"}, {"epoch": "1", "step": "3"}]
    found = steps_of(*[(0, metrics) for metrics in printed])
    assert (found["last_step"], found["has_epochs"]) == (103, True)


def test_steps_that_go_on_over_epochs_are_as_printed() -> None:
    found = of_epochs((0, 50), (0, 100), (1, 150), (2, 250))
    assert (found["last_step"], found["has_epochs"], found["last_epoch"]) == (250, False, 2)
