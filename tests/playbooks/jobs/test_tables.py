"""Jobs as text, held by golden files."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from launch.client.events import Failure, JobState
from launch.client.query import Happening, JobReport, RankEnd
from launch.remote.base.records import EnvironmentRecord
from playbooks.cli import output
from playbooks.jobs.tables import ends_text, job_rows, job_text, waiting

GOLDEN = Path(__file__).parent / "golden"
NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NODES = ("node000000", "node000001")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def state(job: str, name: str, **fields: Any) -> JobState:
    given: dict[str, Any] = {
        **{"job": job, "name": "train", "kind": "pytorch", "state": name, "reason": "", "exit_status": None},
        **{"nodes": NODES, "ranks": 4, "port": 6105, "created": NOON, "started": at(0.3), "ended": None},
        **{"failure": None},
    }
    return JobState(**(given | fields))


def end(rank: int, status: int, *, stopped: bool = False, attempt: int = 0) -> RankEnd:
    signal = status - 128 if status > 128 else None
    return RankEnd(rank, NODES[rank // 2], status, signal, stopped, attempt, at(61))


QUEUED = state(
    "t-3",
    "QUEUED",
    reason="waits for t-2, other on node000001",
    started=None,
    port=None,
    place=2,
    waits_for=("t-2",),
)
FAILED = state(
    "t-1",
    "FAILED",
    reason="rank 2 on node000001 was ended by signal 9 (SIGKILL)",
    exit_status=137,
    created=at(-7300),
    ended=at(61.25),
    restarts=1,
    failure=Failure(2, "node000001", 137, ("loss is nan", "giving up")),
)
REPORT = JobReport(
    state=FAILED,
    command=("train.py", "--name", "a b"),
    code="48aa0fc66d8e2bb9",
    timeout_s=7200.0,
    grace_s=3.0,
    max_restarts=1,
    ranks={"node000000": (0, 1), "node000001": (2, 3)},
    ends=(end(0, 143, stopped=True, attempt=1), end(1, 0, attempt=1), end(2, 137, attempt=1)),
    events=(
        Happening(at(-7300), "state", {"state": "QUEUED", "reason": "waits for t-0"}),
        Happening(at(0.3), "state", {"state": "STARTING", "reason": ""}),
        Happening(at(2), "state", {"state": "RUNNING", "reason": ""}),
        Happening(at(40), "failure", {"rank": 1, "node": "node000000", "status": 3, "last_lines": []}),
        Happening(at(41), "restart", {"count": 1, "reason": "rank 1 on node000000 ended with exit status 3"}),
        Happening(
            at(41),
            "state",
            {"state": "STARTING", "reason": "restart 1 of 1: rank 1 on node000000 ended with exit status 3"},
        ),
        Happening(at(60), "lost-node", {"node": "node000001", "reason": "no sign of life for 12 s"}),
        Happening(at(61.25), "state", {"state": "FAILED", "reason": FAILED.reason}),
    ),
    folder="/home/azureuser/.ranklift/jobs/t-1",
)


@pytest.fixture(autouse=True)
def _in_new_york(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()


def test_a_job_that_failed_in_full() -> None:
    assert job_text(REPORT) == (GOLDEN / "job-failed.txt").read_text()


def test_a_lost_node_is_the_first_failure_and_none_of_its_ranks() -> None:
    lost = replace(FAILED, failure=Failure(None, "node000001", 255, ("no sign of life for 12 s",)))
    text = job_text(replace(REPORT, state=lost))
    assert text.endswith("\nfirst failure: node000001, exit status 255\n  no sign of life for 12 s\n")


def test_what_the_ranks_run_in_is_named_where_it_was_made() -> None:
    made = EnvironmentRecord(
        kind="python",
        id="5eed",
        path="~/.ranklift/environments/5eed",
        runtime="bare",
        title="requirements.txt",
    )
    assert "\nruns in   requirements.txt: python 5eed\n" in job_text(replace(REPORT, environment=made))
    image: EnvironmentRecord = {**made, "kind": "image", "runtime": "docker", "title": "python:3.12"}
    assert "\nruns in   python:3.12: image 5eed, by docker\n" in job_text(replace(REPORT, environment=image))


def test_a_job_that_waits_in_full() -> None:
    waits = replace(
        REPORT,
        state=QUEUED,
        command=("accelerate launch train.py | tee log",),
        code="",
        timeout_s=None,
        max_restarts=0,
        ends=(),
        events=(),
    )
    assert job_text(waits) == (GOLDEN / "job-queued.txt").read_text()


def test_the_list_shows_restarts_and_the_queue_where_there_are_such(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = state("t-2", "RUNNING", ranks=1)
    output.table(*job_rows([FAILED, running, QUEUED], now=at(3700)))
    output.table(*job_rows([running], now=at(10)))
    assert capsys.readouterr().out == (GOLDEN / "jobs.txt").read_text()


def test_a_job_that_is_being_cancelled_says_so() -> None:
    ending = state("t-2", "RUNNING", cancelling=True)
    assert job_rows([ending], now=at(10))[1][0][1] == "RUNNING, being cancelled"
    assert "state     RUNNING, being cancelled\n" in job_text(replace(REPORT, state=ending))


def test_a_cancelled_job_that_still_sends_its_outputs_says_so() -> None:
    sending = state("t-2", "CANCELLED", reason="uploading to https://h/results/t-2", uploading=True)
    assert job_rows([sending], now=at(10))[1][0][1] == "CANCELLED, uploading"
    shown = job_text(replace(REPORT, state=sending))
    assert "state     CANCELLED: uploading to https://h/results/t-2\n" in shown


def test_what_a_job_took_is_counted_to_when_its_head_answered() -> None:
    """Another node may be silent for many seconds after that."""
    jobs = [state("t-1", "RUNNING"), state("t-2", "RUNNING")]
    _, rows = job_rows(jobs, now=at(20), seen={"t-1": at(5.3)})
    assert [row[5] for row in rows] == ["5.0 s", "19.7 s"]


def test_a_row_of_the_list_is_made_of_the_beginning_of_a_reason_alone() -> None:
    nodes = tuple(f"node{number:06x}" for number in range(20_000))
    reason = "waits for train-20260301-080000-aaaa on node000001 on other, " * 20_000
    waits = replace(QUEUED, reason=reason, nodes=nodes)
    text = str(job_rows([waits], now=at(20), seen={}, short=True)[1][0])
    assert len(text) < 1000
    assert "aaaa on other" in text


def test_a_long_queue_is_cut_short_in_the_list() -> None:
    waits = replace(QUEUED, reason="waits for a, b, c on node000001, d", place=4)
    assert waiting(waits) == "a, b and 2 more (place 4)"
    assert waiting(replace(waits, state="RUNNING")) == ""


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((), ""),
        ([end(rank, 0) for rank in range(4)], "0-3 ended with 0"),
        ([end(0, 0), end(1, 0)], "0-1 ended with 0; 2-3 running"),
        ([end(0, 3), end(3, 3)], "0,3 on node[000000-000001] ended with 3; 1-2 running"),
        ([end(0, 1), end(1, 0, attempt=1)], "1 ended with 0; 0,2-3 running"),
        ([end(0, 128 + 63)], "0 on node000000 ended by signal 63; 1-3 running"),
    ],
)
def test_ranks_that_ended_alike_are_told_together(ends: list[RankEnd], expected: str) -> None:
    assert ends_text(replace(REPORT, state=state("t-1", "RUNNING"), ends=tuple(ends))) == expected


def test_an_upload_is_in_a_jobs_history() -> None:
    fields = {"urls": {"": "https://h/results/t-1"}, "files": 3, "kept": 1, "bytes": 2000, "seconds": 1.26}
    shown = Happening(at(61), "upload", {**fields, "errors": {}})
    partial = Happening(at(62), "upload", {**fields, "kept": 0, "errors": {"node000001": ["x"]}})
    text = job_text(replace(REPORT, events=(shown, partial)))
    assert "uploaded to https://h/results/t-1: 3 files and 2.0 kB in 1.3 s, 1 there already\n" in text
    assert "uploaded to https://h/results/t-1: 3 files and 2.0 kB in 1.3 s; not all of node000001\n" in text
