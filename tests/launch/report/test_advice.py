"""Advice, each with a job that just deserves it and one that just does not."""

from __future__ import annotations

from typing import Any

import pytest

from launch.client.query import Happening
from launch.remote.sample.sample_records import History
from launch.report.advice import advise
from launch.report.facts import collect_facts
from tests.launch.report.sample_job import NODES, START, attempt, history, phase, report

RUN = phase("run", 10, 110)


def advice(*events: Happening, sampled: History | None = None) -> list[str]:
    return list(advise(collect_facts(report(events=events), sampled, (), START + 300)))


def nodes(**values: list[float]) -> dict[str, Any]:
    """A history with these means of the three nodes."""
    return {node: {name: [each[n]] for name, each in values.items()} for n, node in enumerate(NODES)}


def sampled(*attempts: Any, **values: list[float]) -> History:
    names = {"rate": "metric:samples_per_s"}
    series = nodes(**{names.get(name, name): value for name, value in values.items()})
    return history(nodes=series, attempts=list(attempts) or [attempt(0, (1, 100), (11, 109))])


@pytest.mark.parametrize(
    ("name", "words"), [("environment", "its environment took 62.0 s of"), ("data", "`fab data.s")]
)
def test_staging_that_takes_much_of_the_time(name: str, words: str) -> None:
    (text,) = advice(phase(f"stage-{name}", -62, 0), RUN)
    assert words in text
    assert advice(phase(f"stage-{name}", -9.9, 0), RUN) == []
    assert advice(phase(f"stage-{name}", -62, 0), phase("run", 0, 600)) == []


def test_a_long_wait_in_the_queue() -> None:
    (text,) = advice(phase("queue", 0, 60), RUN)
    assert text.startswith("it waited in the queue for 60.0 s of 110.0 s: `fab jobs` shows for what")
    assert advice(phase("queue", 0, 59), RUN) == []


def test_idle_gpus_and_what_keeps_them_waiting() -> None:
    (text,) = advice(RUN, sampled=sampled(gpu=[0.2, 0.23, 0.26], cpu=[0.3] * 3))
    assert text.startswith("its GPUs were busy 23 % of the time: they wait for input")
    (text,) = advice(RUN, sampled=sampled(gpu=[0.2, 0.23, 0.26], cpu=[0.95] * 3))
    assert text.startswith(
        "its GPUs were busy 23 % of the time, its nodes' processors 95 %: the input pipeline"
    )
    (text,) = advice(RUN, sampled=sampled(gpu=[0.0] * 3, cpu=[0.3] * 3))
    assert "nothing computed on them" in text
    assert advice(RUN, sampled=sampled(gpu=[0.5] * 3)) == []
    assert advice(phase("run", 10, 69), sampled=sampled(gpu=[0.2] * 3)) == []


def test_checkpoints_that_take_a_tenth_of_the_time() -> None:
    steps = {"steps": (1, 100), "times": (11, 109)}
    (text,) = advice(RUN, sampled=sampled(attempt(0, **steps, checkpoints=5, checkpoint_s=31.0)))
    assert text.startswith("5 checkpoints took 31 % of the ranks' time")
    assert advice(RUN, sampled=sampled(attempt(0, **steps, checkpoints=5, checkpoint_s=9.9))) == []
    (text,) = advice(RUN, sampled=sampled(attempt(0, **steps, checkpoints=1, checkpoint_s=31.0)))
    assert text.startswith("1 checkpoint took 31 % ")


def test_a_restart_that_repeats_much() -> None:
    first, second = attempt(0, (1, 200), (11, 61)), attempt(1, (61, 300), (70, 109))
    (text,) = advice(RUN, sampled=sampled(first, second))
    assert text == "restart 1 repeated 140 steps, 35.0 s of work: checkpoint more often"
    assert advice(RUN, sampled=sampled(first, attempt(1, (182, 300), (70, 109)))) == []


def test_nodes_slower_than_the_median() -> None:
    (text,) = advice(RUN, sampled=sampled(rate=[100.0, 100.0, 70.0]))
    assert text == (
        "ranks on node000002 are up to 30 % slower than the median of the nodes: "
        "`fab check --nodes node000002`"
    )
    assert advice(RUN, sampled=sampled(rate=[100.0, 100.0, 86.0])) == []


def test_a_job_without_steps_is_asked_for_some_unless_it_was_short() -> None:
    without = sampled(attempt(0, None, (11, 109)))
    (text,) = advice(RUN, sampled=without)
    assert "print step=N" in text
    assert advice(phase("run", 10, 30), sampled=without) == []


def test_what_costs_most_comes_first() -> None:
    found = advice(phase("stage-environment", -62, 0), RUN, sampled=sampled(gpu=[0.1] * 3))
    assert [text[:9] for text in found] == ["its GPUs ", "its envir"]


def test_a_job_without_phases_gets_none() -> None:
    assert advice(sampled=sampled(gpu=[0.1] * 3)) == []
