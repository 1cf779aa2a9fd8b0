"""Goodput of jobs whose steps are known."""

from __future__ import annotations

from typing import Any

import pytest

from launch.remote.sample.sample_records import AttemptSteps
from launch.report.facts import parts_of
from launch.report.goodput import NO_EPOCH, NO_STEP, ONE_STEP, Goodput, measure_goodput
from launch.report.summary import goodput_text
from tests.launch.report.sample_job import attempt, facts, history, phase, spans_of

RUN = spans_of(phase("queue", 0, 10), phase("run", 10, 110)).spans


def test_steps_of_one_launch_are_kept_without_their_checkpoints() -> None:
    found = measure_goodput(
        RUN, history(attempts=[attempt(0, (1, 100), (20, 100), checkpoints=2, checkpoint_s=8)])
    )
    assert isinstance(found, Goodput)
    assert (found.total_s, found.kept_s, found.checkpoint_s, found.before_steps_s) == (110.0, 72.0, 8.0, 10.0)
    assert found.share == pytest.approx(72 / 110)
    assert found.lost == ()


def test_steps_that_a_restart_repeats_are_lost_with_their_part_of_the_time() -> None:
    attempts = [attempt(0, (1, 100), (20, 120)), attempt(1, (61, 200), (140, 280))]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert isinstance(found, Goodput)
    (lost,) = found.lost
    assert (lost.restart, lost.steps) == (1, 40)
    assert lost.seconds == pytest.approx(40.0)
    assert found.kept_s == pytest.approx(100 - 40 + 140)


def test_a_restart_from_the_last_step_loses_nothing() -> None:
    attempts = [attempt(0, (1, 100), (20, 120)), attempt(1, (101, 200), (140, 240))]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert isinstance(found, Goodput)
    assert found.lost == ()


def test_a_restart_from_the_beginning_loses_all() -> None:
    attempts = [attempt(0, (0, 99), (20, 120)), attempt(1, (0, 199), (140, 340))]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert isinstance(found, Goodput)
    assert found.lost_s == pytest.approx(100.0)


def test_a_launch_without_a_step_says_nothing_of_the_ones_before() -> None:
    attempts = [
        attempt(0, (0, 99), (20, 120)),
        attempt(1, None, (130, 135)),
        attempt(2, (50, 199), (140, 340)),
    ]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert isinstance(found, Goodput)
    assert [(one.restart, one.steps) for one in found.lost] == [(2, 50)]


def test_goodput_is_unknown_where_the_step_never_grows() -> None:
    attempts = [attempt(0, (12, 12), (20, 100)), attempt(1, (12, 12), (140, 240))]
    assert measure_goodput(RUN, history(attempts=attempts)) == ONE_STEP


def of_epochs(
    number: int, epochs: tuple[float, float], steps: tuple[float, float], **fields: float
) -> AttemptSteps:
    """A launch whose steps began again in its epochs, of 100 steps each."""
    known = {"first_epoch": epochs[0], "last_epoch": epochs[1], "epoch_steps": 100.0, "has_epochs": True}
    times = (20 + 1000 * number, 21 + 1000 * number + steps[1] - steps[0])
    return attempt(number, steps, times, **{**known, **fields})


class TestStepsThatBeginAgainInEachEpoch:
    """One step takes a second; the job has run for longer than that."""

    def lost(self, *attempts: AttemptSteps) -> list[tuple[float, Any]]:
        found = measure_goodput(RUN, history(attempts=list(attempts)))
        assert isinstance(found, Goodput)
        return [(one.steps, pytest.approx(one.seconds)) for one in found.lost]

    def test_what_a_restart_in_the_last_epoch_repeats_is_lost(self) -> None:
        first = of_epochs(0, (0, 3), (1, 350))
        assert self.lost(first, of_epochs(1, (3, 5), (1, 270))) == [(50, 50)]

    def test_a_restart_from_the_beginning_loses_all(self) -> None:
        first = of_epochs(0, (0, 3), (1, 350))
        assert self.lost(first, of_epochs(1, (0, 5), (1, 600))) == [(350, 350)]

    def test_a_restart_in_the_next_epoch_loses_nothing_though_neither_launch_saw_a_step_begin_again(
        self,
    ) -> None:
        first = of_epochs(0, (0, 0), (1, 100), has_epochs=False)
        assert self.lost(first, of_epochs(1, (1, 1), (1, 80), has_epochs=False)) == []

    def test_steps_that_go_on_over_epochs_are_compared_as_they_are(self) -> None:
        first = of_epochs(0, (0, 3), (1, 350), has_epochs=False, epoch_steps=350.0)
        later = of_epochs(1, (2, 5), (301, 600), has_epochs=False, epoch_steps=600.0)
        assert self.lost(first, later) == [(50, 50)]

    def test_a_restart_is_not_known_where_lines_have_no_epoch(self) -> None:
        unknown = {"first_epoch": None, "last_epoch": None}
        attempts = [of_epochs(0, (0, 3), (1, 350)), of_epochs(1, (0, 1), (1, 150))]
        without = history(attempts=[{**one, **unknown} for one in attempts])
        assert measure_goodput(RUN, without) == NO_EPOCH
        assert goodput_text(facts(sampled=without)) == f"unknown: {NO_EPOCH}"

    def test_one_launch_needs_none(self) -> None:
        one = {**of_epochs(0, (0, 3), (1, 350)), "first_epoch": None}
        found = measure_goodput(RUN, history(attempts=[one]))
        assert isinstance(found, Goodput)
        assert found.kept_s == 350


def test_records_of_older_node_code_have_no_epochs() -> None:
    names = ("has_epochs", "epoch_steps", "first_epoch", "last_epoch")
    old = [attempt(0, (1, 100), (20, 120)), attempt(1, (61, 200), (140, 280))]
    for one in old:
        for name in names:
            one.pop(name)  # type: ignore[misc]
    found = measure_goodput(RUN, history(attempts=old))
    assert isinstance(found, Goodput)
    assert [one.steps for one in found.lost] == [40]


def test_without_the_metric_step_it_is_unknown_and_no_number() -> None:
    without = history(attempts=[attempt(0, None, (20, 100))])
    assert measure_goodput(RUN, without) == NO_STEP
    assert goodput_text(facts(sampled=without)) == "unknown: no metric `step`"
    assert goodput_text(spans_of(phase("run", 0, 5))) == "unknown: nothing was sampled"


def test_parts_add_up_to_the_whole() -> None:
    whole = facts()
    assert sum(part.seconds for part in parts_of(whole)) == pytest.approx(whole.total_s, abs=2.1)
    assert {"steps that were kept", "steps that were lost", "checkpoints"} <= {
        one.name for one in parts_of(whole)
    }
