"""The end of a job whose outputs go to storage: its record meanwhile, and when its nodes are free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base import job_dir
from launch.remote.base.records import UploadEvent
from launch.remote.head import cancel, queue, supervisor
from launch.remote.head.job_state import JobState
from launch.remote.head.outcome import Outcome
from tests.launch.remote.sample_records import sample_plan

JOB = "t-1"
URL = "https://acme.blob.core.windows.net/results/t-1"
DONE: UploadEvent = {
    "event": "upload",
    "urls": {"": URL},
    "files": 2,
    "kept": 0,
    "bytes": 10,
    "seconds": 0.1,
    "errors": {},
}


class Job:
    """A job that is about to end; ``seen`` are its states while its outputs are sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = [{"name": "node000000", "ranks": [], "reserve": 1, "slots": 1}]
        self.plan = sample_plan(JOB, nodes=nodes, uploads=[{"name": "", "url": URL}])
        self.folder = job_dir.Folder(JOB)
        self.folder.create(self.plan)
        self.state = JobState(self.folder, self.plan)
        queue.enter(self.plan)
        self.event, self.seen, self.queued = DONE, list[tuple[str, str]](), list[bool]()
        self.slots = list[dict[str, list[int]]]()
        monkeypatch.setattr(supervisor, "upload_outputs", self._upload)

    def _upload(self, *given: Any) -> UploadEvent:
        self.slots.append(given[4])
        found = self.record()
        self.seen.append((found["state"], found["reason"]))
        self.queued.append(self.is_queued())
        return self.event

    def record(self) -> dict[str, Any]:
        path = Path(self.folder.file("state.json"))
        return dict(json.loads(path.read_text())) if path.exists() else {"state": "", "reason": ""}

    def is_queued(self) -> bool:
        path = Path("~/.ranklift/queue.json").expanduser()
        return any(one["job"] == JOB for one in json.loads(path.read_text()))

    def is_kept(self) -> bool:
        return Path(f"~/.ranklift/collected/{JOB}").expanduser().exists()

    def end(self, state: Any, reason: str = "", *, status: int = 0, ran: bool = True) -> dict[str, Any]:
        result = Outcome(state, status, reason)
        result.ran = ran
        supervisor._end(self.folder, self.plan, self.state, result)
        return self.record()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("HOME", str(tmp_path))
    return Job(monkeypatch)


def test_a_job_ends_when_its_outputs_are_in_storage(job: Job) -> None:
    ended = job.end("SUCCEEDED")
    assert [reason for _, reason in job.seen] == [f"uploading to {URL}"]
    assert job.queued == [True]
    assert (ended["state"], ended["reason"]) == ("SUCCEEDED", f"outputs in {URL}")
    assert job.is_kept()


@pytest.mark.parametrize(
    ("state", "status", "reason", "last"),
    [
        ("SUCCEEDED", 0, "", ("INCOMPLETE", 74)),
        ("SUCCEEDED", 0, "without node000001, lost before", ("INCOMPLETE", 74)),
        ("FAILED", 3, "rank 0 failed", ("FAILED", 3)),
    ],
)
class TestOutputsThatAreNotInStorage:
    WHY = f"not all of its outputs are in storage, `fab upload {JOB}` goes on: "

    def test_a_job_that_lacks_nothing_else_is_incomplete(
        self, job: Job, state: Any, status: int, reason: str, last: tuple[str, int]
    ) -> None:
        job.event = {**DONE, "errors": {"node000001": ["AuthorizationFailure", "more"]}}
        ended = job.end(state, reason, status=status)
        assert (ended["state"], ended["exit_status"]) == last
        why = f"{self.WHY}node000001: AuthorizationFailure"
        assert ended["reason"] == "; ".join(filter(None, (reason, why)))
        assert not job.is_kept()

    def test_so_does_a_job_end_whose_supervisor_is_killed_meanwhile(
        self, job: Job, state: Any, status: int, reason: str, last: tuple[str, int]
    ) -> None:
        job.state.set_uploading(job.plan["uploads"], Outcome(state, status, reason))
        record = job.record()
        assert (record["exit_status"], record["ended"]) == (None, None)
        Path(job.folder.file("state.json")).write_text(json.dumps({**record, "supervisor": None}))
        ended = job.folder.state()
        assert (ended["state"], ended["exit_status"]) == last
        why = f"{self.WHY}the job's supervisor exited"
        assert ended["reason"].startswith("; ".join(filter(None, (reason, why))))
        assert "pending" not in ended


def test_a_job_that_was_cancelled_stays_cancelled_whatever_its_upload_lacks(job: Job) -> None:
    job.event = {**DONE, "errors": {"node000001": ["AuthorizationFailure"]}}
    assert job.end("CANCELLED")["state"] == job.folder.state()["state"] == "CANCELLED"


def test_nothing_is_pending_once_the_upload_has_ended(job: Job) -> None:
    assert "pending" not in job.end("SUCCEEDED")


def test_a_cancelled_job_has_ended_before_its_upload_whose_addresses_its_record_has(job: Job) -> None:
    ended = job.end("CANCELLED")
    assert job.seen == [("CANCELLED", "")]
    assert ended["uploading"] == [URL]


def test_a_cancel_ends_the_upload_of_a_cancelled_job(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def upload(*given: Any) -> UploadEvent:
        is_cancelled = given[3]
        assert not is_cancelled()
        cancel._request(job.folder, None)
        assert is_cancelled()
        return {**DONE, "errors": {"node000000": ["the upload was cancelled"]}}

    monkeypatch.setattr(supervisor, "upload_outputs", upload)
    cancel._request(job.folder, None)
    job.end("CANCELLED")
    assert not job.is_kept()


def test_nodes_hold_the_jobs_slots_while_they_upload(job: Job) -> None:
    queue.admit(JOB, 29500)
    job.end("SUCCEEDED")
    assert job.slots == [{"node000000": [0]}]


def test_a_cancelled_job_has_ended_before_its_upload(job: Job) -> None:
    job.end("CANCELLED")
    assert [state for state, _ in job.seen] == ["CANCELLED"]
    assert job.queued == [True]
    assert job.is_kept()


def test_a_job_without_a_rank_has_nothing_to_send(job: Job) -> None:
    assert job.end("FAILED", "no such script", ran=False)["reason"] == "no such script"
    assert job.seen == []
    assert not job.is_queued()


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (OSError(24, "Too many open files"), "[Errno 24] Too many open files"),
        (KeyError("files"), "the upload failed: KeyError('files')"),
    ],
    ids=["of the machine", "of the program"],
)
def test_an_upload_that_cannot_go_on_ends_the_job_too(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: Exception, shown: str
) -> None:
    def refuse(*_: object) -> UploadEvent:
        raise error

    monkeypatch.setattr(supervisor, "upload_outputs", refuse)
    ended = job.end("SUCCEEDED")
    assert ended["state"] == "INCOMPLETE"
    assert f"node000000: {shown}" in ended["reason"]
