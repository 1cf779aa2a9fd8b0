"""Whatever a head answers within the bounds of its types is shown: no value ends a command in a traceback."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launch.client.debug import debug_job
from launch.client.query import report_of
from launch.client.samples import JobSamples
from launch.host import Completed
from launch.remote.base import frames
from launch.remote.base.payloads import JobReport
from launch.remote.debug.debug_records import DebugAnswer
from launch.remote.metrics.exposition import exposition
from launch.remote.metrics.metrics_records import HeadMetrics
from launch.remote.reading import Malformed, read
from launch.remote.sample.sample_records import SampleReport
from launch.report.cost import NodePrice
from launch.report.facts import collect_facts
from launch.report.page import report_page
from launch.report.summary import summary
from playbooks.cli import output
from playbooks.jobs.tables import job_rows, job_text
from playbooks.observe import top
from playbooks.observe.debug import debug_text
from playbooks.private_file import write_private
from tests.launch.remote.any_value import any_value

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SEEDS = range(40)


def a(kind: Any, seed: int) -> Any:
    return read(kind, any_value(kind, random.Random(seed)))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_samples_are_a_screen(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    output.result("\n".join(top._screen_text(JobSamples.from_answer(a(SampleReport, seed)))))
    assert "\x1b[2J" not in capsys.readouterr().out


@pytest.mark.parametrize("seed", SEEDS)
def test_any_report_is_a_text_a_row_and_a_page(seed: int, tmp_path: Path) -> None:
    try:
        report = report_of(a(JobReport, seed))
    except Malformed as error:
        assert "has no time" in str(error)  # the one field that an event needs though its type does without
        return
    samples = a(SampleReport, seed)
    assert job_text(report, NOW)
    assert job_rows([report.state], seen={report.state.job: NOW}, short=False)
    facts = collect_facts(
        report, samples["history"], [one["text"] for one in samples["flags"]], NOW.timestamp()
    )
    page = report_page(facts, NodePrice("Standard_ND40rs_v2", "spot", 1.0), NOW)
    assert "\x1b" not in page
    write_private(tmp_path / "report.html", page)
    assert isinstance(summary(facts), str)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_metrics_are_an_exposition(seed: int) -> None:
    assert exposition([a(HeadMetrics, seed)])


@pytest.mark.parametrize("seed", SEEDS)
def test_any_look_at_ranks_is_a_text(seed: int) -> None:
    answer = a(DebugAnswer, seed)

    class Head:
        name = "node000000"

        def run(self, _: Sequence[str], /, **_options: Any) -> Completed:
            return Completed(0, frames.frame(frames.STATE, json.dumps(answer).encode()), b"")

    assert debug_text(debug_job("t-1", Head(), remote="abc", py_spy=""))  # type: ignore[arg-type]
