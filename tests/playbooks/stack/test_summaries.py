"""The lines with which tasks end: whole at every width, so that ids and commands in them can be copied."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launch.client.events import JobState
from launch.results.download import CollectReport, NodeFiles
from playbooks.check.first_day_report import summary
from playbooks.cli import output
from playbooks.jobs.cancel import Cancelled, format_cancelled
from playbooks.jobs.collect import format_report, remarks
from playbooks.stack.losses import Losses
from tests.playbooks.jobs.test_tables import QUEUED, state
from tests.playbooks.nodes.test_first_day import made
from tests.playbooks.screen import hold, screen
from tests.playbooks.stack.test_scale import Cluster

GOLDEN = Path(__file__).parent / "golden"
JOB = "train-20260301-090507-0f3a"


def print_summaries(cluster: Cluster) -> None:
    output.result(summary(made(), Path(".ranklift/dev/first-day.json")))
    cluster.scale(3)
    waiting: JobState = QUEUED
    losses = Losses((waiting,), (JOB, "t-1"), {"node000001": "no route", "node000002": "no route"})
    for line in losses.lines():
        output.progress(line)
    output.result(losses.summary())
    output.result(format_cancelled(Cancelled(JOB, state(JOB, "CANCELLED"), "RUNNING", {})))
    files = NodeFiles(2, 0, 1500, renamed={f"outputs/{JOB}/model.pt": f"outputs/{JOB}/model.pt.~2~"})
    report = CollectReport(Path("results") / JOB, {"node000000": files})
    output.result(format_report(report))
    for line in remarks(report):
        output.progress(line)


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "plain"])
def test_the_last_lines_of_a_task_leave_the_wrapping_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, colours: bool
) -> None:
    cluster = Cluster(tmp_path, monkeypatch)
    terminal = screen(monkeypatch, columns, colours=colours)
    monkeypatch.setattr(sys, "stderr", terminal)
    print_summaries(cluster)
    hold(terminal.getvalue(), GOLDEN / f"summaries-{'colours' if colours else 'plain'}.txt")
