"""Phases as they are read from a job's events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launch.report.timeline import timeline
from tests.launch.report.sample_job import START, facts, phase, report


def test_phases_come_in_the_order_of_their_begin() -> None:
    found = timeline(report().state, [phase("run", 5, 9), phase("queue", 0, 5)], START + 10)
    assert [(one.phase, one.seconds) for one in found] == [("queue", 5.0), ("run", 4.0)]


def test_a_job_of_older_code_has_none_even_while_it_runs() -> None:
    assert timeline(report(state="RUNNING", ended=None).state, [], START + 10) == ()


@pytest.mark.parametrize(
    ("state", "last", "now_in"),
    [
        ("QUEUED", "stage-code", "queue"),
        ("STARTING", "queue", "start"),
        ("STARTING", "start", "look"),
        ("RUNNING", "look", "run"),
        ("RUNNING", "end", "upload"),
    ],
)
def test_a_job_that_has_not_ended_is_in_the_phase_of_its_state(state: str, last: str, now_in: str) -> None:
    events = [phase(last, 0, 5)]
    *_, found = timeline(report(state=state, ended=None, restarts=0).state, events, START + 12)
    assert (found.phase, found.seconds, found.is_open) == (now_in, 7.0, True)


def test_a_lost_job_is_in_no_phase() -> None:
    found = timeline(report(state="LOST").state, [phase("queue", 0, 5)], START + 12)
    assert [one.phase for one in found] == ["queue"]


@pytest.mark.parametrize(
    "fields",
    [
        *({"phase": "lunch"}, {"phase": ["run"]}, {"verdict": None}, {"bytes": "9"}, {"attempt": None}),
        *({"start": "1"}, {"end": 0.0}, {"end": None}),
    ],
)
def test_a_phase_that_newer_code_wrote_or_a_rank_damaged_is_left_out(fields: dict[str, Any]) -> None:
    good = phase("run", 0, 5)
    bad = replace(good, fields={**good.fields, **fields})
    assert [one.phase for one in timeline(report().state, [bad, phase("end", 5, 6)], START)] == ["end"]


def test_time_in_phases_is_that_of_all_launches() -> None:
    assert facts().seconds_in("run") == 180.0
    assert facts().total_s == 275.0
