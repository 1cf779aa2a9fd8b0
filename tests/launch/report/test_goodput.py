"""Goodput of jobs whose steps are known."""

from __future__ import annotations

import pytest

from launch.report.facts import parts_of
from launch.report.goodput import measure_goodput
from launch.report.summary import goodput_text
from tests.launch.report.sample_job import attempt, facts, history, phase, spans_of

RUN = spans_of(phase("queue", 0, 10), phase("run", 10, 110)).spans


def test_steps_of_one_launch_are_kept_without_their_checkpoints() -> None:
    found = measure_goodput(
        RUN, history(attempts=[attempt(0, (1, 100), (20, 100), checkpoints=2, checkpoint_s=8)])
    )
    assert found is not None
    assert (found.total_s, found.kept_s, found.checkpoint_s, found.before_steps_s) == (110.0, 72.0, 8.0, 10.0)
    assert found.share == pytest.approx(72 / 110)
    assert found.lost == ()


def test_steps_that_a_restart_repeats_are_lost_with_their_part_of_the_time() -> None:
    attempts = [attempt(0, (1, 100), (20, 120)), attempt(1, (61, 200), (140, 280))]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert found is not None
    (lost,) = found.lost
    assert (lost.restart, lost.steps) == (1, 40)
    assert lost.seconds == pytest.approx(40.0)
    assert found.kept_s == pytest.approx(100 - 40 + 140)


def test_a_restart_from_the_last_step_loses_nothing() -> None:
    attempts = [attempt(0, (1, 100), (20, 120)), attempt(1, (101, 200), (140, 240))]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert found is not None
    assert found.lost == ()


def test_a_restart_from_the_beginning_loses_all() -> None:
    attempts = [attempt(0, (0, 99), (20, 120)), attempt(1, (0, 199), (140, 340))]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert found is not None
    assert found.lost_s == pytest.approx(100.0)


def test_a_launch_without_a_step_says_nothing_of_the_ones_before() -> None:
    attempts = [
        attempt(0, (0, 99), (20, 120)),
        attempt(1, None, (130, 135)),
        attempt(2, (50, 199), (140, 340)),
    ]
    found = measure_goodput(RUN, history(attempts=attempts))
    assert found is not None
    assert [(one.restart, one.steps) for one in found.lost] == [(2, 50)]


def test_without_the_metric_step_it_is_unknown_and_no_number() -> None:
    without = history(attempts=[attempt(0, None, (20, 100))])
    assert measure_goodput(RUN, without) is None
    assert goodput_text(facts(sampled=without)) == "unknown: no metric `step`"
    assert goodput_text(spans_of(phase("run", 0, 5))) == "unknown: nothing was sampled"


def test_parts_add_up_to_the_whole() -> None:
    whole = facts()
    assert sum(part.seconds for part in parts_of(whole)) == pytest.approx(whole.total_s, abs=2.1)
    assert {"steps that were kept", "steps that were lost", "checkpoints"} <= {
        one.name for one in parts_of(whole)
    }
