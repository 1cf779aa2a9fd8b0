"""The metrics that a job names."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.job.spec import JobSpec


def spec(metrics: dict[str, str]) -> JobSpec:
    return JobSpec("t", "pytorch", ("train.py",), metrics=metrics)


def test_a_metric_has_one_group_and_others_do_not_count() -> None:
    assert spec({"psnr": r"(?:PSNR|psnr)[:=] ([0-9.]+)"}).metrics == {"psnr": r"(?:PSNR|psnr)[:=] ([0-9.]+)"}
    with pytest.raises(InputError, match="has 2 groups"):
        spec({"psnr": "(a)(b)"})


def test_metrics_are_bounded() -> None:
    with pytest.raises(InputError, match="metrics = 13: are more than 12"):
        spec({f"m{place}": "(x)" for place in range(13)})
    with pytest.raises(InputError, match="metrics a: has 502 characters; use at most 500"):
        spec({"a": "x" * 499 + "(y)"})
    with pytest.raises(InputError, match="is not a valid name for a metric"):
        spec({"a" * 33: "(x)"})
