"""Stages before a job, as its head records them."""

from __future__ import annotations

import pytest

from launch.job.stages import Stages


def test_stages_are_in_seconds_since_the_job_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.0, 160.0, 170.5, 175.0))
    monkeypatch.setattr("launch.job.stages.time.monotonic", lambda: next(times))
    stages = Stages()
    begun = stages.now()
    stages.add("stage-data", begun, 5 << 30)
    stages.add("stage-environment", 160.0)
    assert [(one["phase"], one["start"], one["end"], one["bytes"]) for one in stages.before_submit()] == [
        ("stage-data", -75.0, -15.0, 5 << 30),
        ("stage-environment", -15.0, -4.5, 0),
    ]


def test_a_job_that_brings_nothing_has_none() -> None:
    assert Stages().before_submit() == ()
