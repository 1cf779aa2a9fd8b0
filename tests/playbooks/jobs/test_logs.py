"""The output of a job that has none yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context

from infra.inventory import Inventory, Node
from launch.client import submit
from launch.client.events import JobState, StateChange
from playbooks.jobs import handle, logs
from playbooks.jobs.listing import JobList
from playbooks.jobs.location import Place
from playbooks.project import Stack
from playbooks.selection import NEWEST
from tests.playbooks.jobs.test_tables import QUEUED, at, state

JOB = "train-20260301-090507-0f3a"
WAITING = replace(QUEUED, job=JOB)


class _Cluster:
    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def host(self, _: Node) -> None:
        pass


def done() -> JobState:
    return state(JOB, "SUCCEEDED", exit_status=0, ended=at(9))


@contextmanager
def head_with(monkeypatch: pytest.MonkeyPatch, folder: Path, *states: JobState) -> Iterator[None]:
    """A head that reports these states of the job, one after the other."""
    node = Node("node000000", 0, "", "", 1, 8, "running")

    def follow(_: str, __: object, on_event: Any, **options: Any) -> JobState:
        for one in states:
            on_event(StateChange(one))
        return states[-1]

    with monkeypatch.context() as patch:
        patch.setattr(logs, "open_from", lambda *_: Stack("dev", folder, {}))
        patch.setattr(Stack, "saved", lambda _: Inventory("dev", "size", "place", "me", (node,)))
        patch.setattr(logs, "find_job", lambda *_: Place(node, "abc"))
        patch.setattr("playbooks.ssh.connection.Cluster", lambda *_: _Cluster())
        patch.setattr(submit, "follow", follow)
        patch.setattr(logs, "report_left", lambda *_, **__: None)
        yield


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (
            WAITING,
            "QUEUED: waits for t-2, other on node000001; it has not started, and with -f its output follows "
            "once it does",
        ),
        (
            replace(WAITING, state="STARTING", reason=""),
            "STARTING; it has not started, and with -f its output follows once it does",
        ),
        (
            replace(WAITING, state="CANCELLED", reason="cancel requested"),
            "CANCELLED: cancel requested; it never started",
        ),
    ],
)
def test_a_job_that_has_not_started_is_reported_with_its_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    job: JobState,
    words: str,
) -> None:
    with head_with(monkeypatch, tmp_path, job):
        logs.logs.body(Context(), JOB)
    assert capsys.readouterr() == ("", f"job {JOB} {words}\n")


def test_a_job_chosen_without_its_id_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = JobList([replace(WAITING, reason="waits for 0f3b")], 0, {}, {})
    monkeypatch.setattr(handle, "list_jobs", lambda *_: newest)
    with head_with(monkeypatch, tmp_path, newest.jobs[0]):
        logs.logs.body(Context(), NEWEST)
    shown = capsys.readouterr().err
    assert shown.count(JOB) == 1
    assert shown.startswith(f"job {JOB}\nQUEUED: waits for 0f3b; it has not started")
    with head_with(monkeypatch, tmp_path, newest.jobs[0], state(JOB, "RUNNING"), done()):
        logs.logs.body(Context(), NEWEST, follow=True)
    assert capsys.readouterr().err == (
        f"job {JOB}\nQUEUED: waits for 0f3b\njob {JOB} RUNNING\njob {JOB} SUCCEEDED\n"
    )


def test_a_job_that_runs_and_has_printed_nothing_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with head_with(monkeypatch, tmp_path, state(JOB, "RUNNING")):
        logs.logs.body(Context(), JOB)
    assert capsys.readouterr() == ("", "")


def test_following_a_job_that_waits_reports_its_reason_and_each_next_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with head_with(monkeypatch, tmp_path, WAITING, state(JOB, "RUNNING"), done()):
        logs.logs.body(Context(), JOB, follow=True)
    assert capsys.readouterr().err == (
        f"job {JOB} QUEUED: waits for t-2, other on node000001\njob {JOB} RUNNING\njob {JOB} SUCCEEDED\n"
    )
