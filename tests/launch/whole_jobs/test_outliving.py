"""Processes that outlive ranks which ended well: they may end by themselves within the job's grace."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.client.events import LogLine
from launch.job.spec import Kind
from tests.launch.standin import Nodes, Started, left_of, shell, start, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
UPLOAD = "(touch begun; until [ -e go ]; do sleep 0.05; done; echo all > outputs/uploaded) >/dev/null 2>&1 &"
ENDLESS = "(trap '' TERM; while :; do sleep 1; done) >/dev/null 2>&1 & sleep 300 >/dev/null 2>&1 &"


@pytest.fixture
def one(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, [1])


def said(job: Started) -> list[str]:
    """What the launcher says."""
    texts = (event.data.decode() for event in job.events if isinstance(event, LogLine) and event.rank is None)
    return [text.strip() for text in texts if "still ran" in text]


def has_exited(folder: Path) -> bool:
    """Whether the job's only rank has ended."""
    exits = folder / "exits.jsonl"
    return exits.exists() and "\n" in exits.read_text()


@KINDS
def test_an_upload_ends_by_itself_within_the_grace(one: Nodes, kind: Kind) -> None:
    job = start(one, shell(f"{UPLOAD} until [ -e begun ]; do sleep 0.05; done", kind, grace_s=60.0))
    folder = one.folder / "node000000/.ranklift/jobs" / job.job
    until(lambda: has_exited(folder))
    (folder / "work/go").touch()
    assert job.end().state == "SUCCEEDED"
    assert (folder / "outputs/uploaded").read_text() == "all\n"
    assert said(job) == []


@KINDS
def test_what_does_not_end_is_ended_and_named(one: Nodes, kind: Kind) -> None:
    job = start(one, shell(ENDLESS, kind, grace_s=0.5))
    assert job.end().state == "SUCCEEDED"
    (line,) = said(job)
    assert line.startswith("node000000: ")
    assert "sleep (2 processes)" in line and "sh (1 process)" in line
    assert line.endswith(
        "still ran 0.5 s after their ranks had ended well, and were ended: wait for them in the script, or "
        "give a longer --grace"
    )
    assert left_of(job.job) == []


@KINDS
def test_a_cancel_does_not_wait_for_the_grace(one: Nodes, kind: Kind) -> None:
    job = start(one, shell("sleep 600 >/dev/null 2>&1 &", kind, grace_s=600.0))
    folder = one.folder / "node000000/.ranklift/jobs" / job.job
    until(lambda: has_exited(folder))
    one.cancel(job.job)
    job.end()
    assert left_of(job.job) == []


@KINDS
def test_a_failed_ranks_processes_are_ended_at_once(one: Nodes, kind: Kind) -> None:
    job = start(one, shell("sleep 600 >/dev/null 2>&1 & exit 3", kind, grace_s=600.0))
    state = job.end()
    assert (state.state, state.exit_status, said(job)) == ("FAILED", 3, [])
    assert left_of(job.job) == []
