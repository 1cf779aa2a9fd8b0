"""The screens that users see most, at three widths, with colours and without, held by golden files."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client.events import JobState
from playbooks.cli import output
from playbooks.jobs import show
from playbooks.jobs.listing import JobList
from playbooks.jobs.tables import job_text
from tests.playbooks.jobs.test_tables import FAILED, QUEUED, REPORT, at, state
from tests.playbooks.screen import hold, screen

GOLDEN = Path(__file__).parent / "golden"
FIRST, SECOND, THIRD = (
    "train-20260301-090507-0f3a",
    "train-20260301-110000-0aaa",
    "digits-20260301-110001-b1c2",
)
JOBS = [
    replace(FAILED, job=FIRST),
    state(SECOND, "RUNNING", ranks=16),
    replace(QUEUED, job=THIRD, reason=f"waits for {FIRST}, {SECOND} on node000001"),
]
LONG = f"{'x' * 40}-20260301-090507-0f3a"


@pytest.fixture(autouse=True)
def _in_new_york(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()


def listed(jobs: list[JobState], *, wide: bool = False) -> None:
    found = JobList(jobs, 0, {job.job: at(3700) for job in jobs}, {})
    show._print(found, wide=wide)


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "plain"])
def test_the_list_of_jobs_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, colours: bool
) -> None:
    terminal = screen(monkeypatch, columns, colours=colours)
    listed(JOBS)
    shown = terminal.getvalue()
    assert len(shown.splitlines()) == 2 + len(JOBS), "a row is wrapped"
    hold(shown, GOLDEN / f"jobs-{columns}-{'colours' if colours else 'plain'}.txt")
    if not colours:
        assert max(map(len, shown.splitlines())) <= columns
    assert all(job in shown for job in (FIRST, SECOND, THIRD))


def test_nodes_without_any_job_are_reported_instead_of_an_empty_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed([])
    assert capsys.readouterr() == ("", "no job was launched on these nodes\n")


def test_a_list_that_is_wide_has_every_column_and_wraps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = screen(monkeypatch, 40, colours=False)
    listed(JOBS, wide=True)
    assert terminal.getvalue() == (GOLDEN / "jobs-wide.txt").read_text()
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stdout", piped)
    listed(JOBS)
    assert piped.getvalue() == terminal.getvalue()


def test_jobs_with_longer_names_than_a_terminal_has_room_for_are_paragraphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = screen(monkeypatch, 70, colours=False)
    listed([replace(FAILED, job=LONG), QUEUED])
    shown = terminal.getvalue()
    assert shown.splitlines()[0] == LONG
    hold(shown, GOLDEN / "jobs-paragraphs.txt")


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "plain"])
def test_a_job_in_full_leaves_the_wrapping_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, colours: bool
) -> None:
    """Its commands and paths can be copied whole from there."""
    terminal = screen(monkeypatch, columns, colours=colours)
    output.result(job_text(REPORT).rstrip("\n"))
    assert terminal.getvalue() == (GOLDEN / "job-failed.txt").read_text()
