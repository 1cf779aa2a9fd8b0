"""What a head that went down while it wrote leaves of a job's records, and what becomes of the job."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.client.events import JobState
from launch.remote import cli
from launch.remote.base import files, job_dir, processes
from launch.remote.base.payloads import JobListing
from launch.remote.head import cancel, job_state, query
from launch.remote.head.outcome import Outcome
from launch.remote.reading import read
from tests.launch.remote.sample_records import sample_plan, sample_state

PLAN = sample_plan("t-1", nodes=[{"name": "node000000", "ranks": [{"rank": 0}, {"rank": 1}]}])
_EDITS: list[dict[str, object]] = [
    {"job": "t-2"},
    {"job": "../t-1"},
    {"created": "x"},
    {"created": None},
    {"state": ["RUNNING"]},
    {"supervisor": {"pid": "1"}},
    {"supervisor": [1]},
    {"supervisor": {}},
    {"reason": {}},
    {"uploading": [1]},
    {"uploading": 1},
    {"pending": []},
    {"pending": {}},
    {"ranks": "x"},
    {"state": "SUCCEEDED", "ranks": "x"},
    {"state": "DONE"},
    {"created": 1e300},
    {"ended": -1},
    {"nodes": ["../x"]},
    {"tags": {"a": 1}},
    {"waits_for": ["a/b"]},
    {"failure": {"rank": 1}},
    {"node_price": 1},
]
EDITED = [json.dumps({**sample_state("t-1"), **fields}).encode() for fields in _EDITS]
"""States as a job can write its own."""
TORN = [b"", b'{"job": "t-1", "st', b"null", b"[]", b"{}", b"\0" * 512, b"[" * 100_000, b"\xff"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def folder() -> job_dir.Folder:
    made = job_dir.Folder("t-1")
    made.create(PLAN)
    return made


@pytest.fixture
def supervisor(folder: job_dir.Folder) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the supervisor's log open, as the job's has."""
    with (
        Path(folder.file("supervisor.log")).open("wb") as log,
        subprocess.Popen(["sleep", "60"], stderr=log) as process,
    ):
        yield process
        process.kill()


def tear(folder: job_dir.Folder, name: str, data: bytes) -> None:
    Path(folder.file(name)).write_bytes(data)


@pytest.mark.parametrize("data", [*TORN, *EDITED])
class TestState:
    def test_without_a_supervisor_the_job_is_lost_wherever_it_is_looked_at(
        self, folder: job_dir.Folder, data: bytes
    ) -> None:
        tear(folder, "state.json", data)
        (listed,) = query.list_jobs(None)["jobs"]
        state = JobState.from_dict(listed)
        assert (state.state, state.exit_status, state.nodes, state.ranks) == ("LOST", 255, ("node000000",), 2)
        assert state.reason.startswith("the job's records are damaged, by a crash of the head or by a job: ")
        tear(folder, "state.json", data)
        assert query.job_report("t-1")["state"]["state"] == "LOST"
        tear(folder, "state.json", data)
        assert cancel.cancel("t-1", None)["state"]["state"] == "LOST"

    def test_a_supervisor_that_lives_writes_it_again(
        self, folder: job_dir.Folder, data: bytes, supervisor: subprocess.Popen[bytes]
    ) -> None:
        tear(folder, "state.json", data)
        found = folder.state()
        assert (found["state"], found["supervisor"]) == ("RUNNING", processes.identity(supervisor.pid))
        assert JobState.from_dict(query.list_jobs(None)["jobs"][0]).state == "RUNNING"
        job_state.JobState(folder, PLAN).set_ended(Outcome("SUCCEEDED", 0, ""))
        assert folder.state()["state"] == "SUCCEEDED"

    def test_with_its_plan_torn_too_it_is_still_listed(self, folder: job_dir.Folder, data: bytes) -> None:
        tear(folder, "state.json", data)
        tear(folder, "job.json", data)
        (listed,) = query.list_jobs(None)["jobs"]
        assert (listed["job"], listed["state"], listed["nodes"]) == ("t-1", "LOST", [])


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to itself", "endless", "closed"])
def test_something_else_in_the_place_of_a_state_hides_no_job(folder: job_dir.Folder, kind: str) -> None:
    other = job_dir.Folder("t-2")
    other.create(PLAN)
    other.write_state(sample_state("t-2", state="SUCCEEDED"))
    path = Path(folder.file("state.json"))
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "closed":
        path.write_text("{}")
        path.chmod(0)
    else:
        path.symlink_to("state.json" if kind == "link to itself" else "/dev/zero")
    assert {state["job"]: state["state"] for state in query.list_jobs(None)["jobs"]} == {
        "t-1": "LOST",
        "t-2": "SUCCEEDED",
    }


@pytest.mark.parametrize("nodes", [[1], [{}], {"a": 1}, 7, [{"name": "n", "ranks": 3}], None])
def test_a_plan_with_other_nodes_hides_no_job(folder: job_dir.Folder, nodes: object) -> None:
    other = job_dir.Folder("t-2")
    other.create(PLAN)
    other.write_state(sample_state("t-2", state="SUCCEEDED"))
    tear(folder, "job.json", json.dumps({**PLAN, "nodes": nodes}).encode())
    tear(folder, "state.json", b"{}")
    assert {state["job"]: state["state"] for state in query.list_jobs(None)["jobs"]} == {
        "t-1": "LOST",
        "t-2": "SUCCEEDED",
    }


@pytest.mark.parametrize(
    "fields", [{"name": 1}, {"tags": {"a": 1}}, {"nodes": [{"name": "../x", "ranks": []}]}]
)
@pytest.mark.parametrize("since", [-86_400, 2**40])
def test_whatever_a_job_makes_of_its_records_the_head_has_a_list_that_can_be_read(
    folder: job_dir.Folder, fields: dict[str, object], since: int
) -> None:
    tear(folder, "job.json", json.dumps({**PLAN, **fields}).encode())
    tear(folder, "state.json", b"{}")
    os.utime(folder.path, (since, since))
    listed = read(JobListing, query.list_jobs(None))
    assert [state["state"] for state in listed["jobs"]] == ["LOST"]
    assert query.list_jobs(None) == {**listed}


def test_a_folder_whose_name_is_no_id_is_no_job(folder: job_dir.Folder) -> None:
    other = job_dir.Folder("a b")
    other.create(PLAN)
    other.write_state(sample_state("a b", state="SUCCEEDED"))
    assert query.list_jobs(None)["jobs"] == []


@pytest.mark.parametrize("data", TORN)
class TestPlan:
    def test_it_is_named_by_who_needs_it(
        self, folder: job_dir.Folder, data: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job_state.JobState(folder, PLAN).set_ended(Outcome("SUCCEEDED", 0, ""))
        tear(folder, "job.json", data)
        for command in (["show", "t-1"], ["follow", "t-1"]):
            assert cli.main(command) == cli.TORN
            assert capsys.readouterr().err == (
                f"{folder.file('job.json')} is damaged: the head went down while it was written; "
                "`fab collect` copies what the nodes have of the job, `fab cancel` ends what still runs; "
                "then its folder may be removed\n"
            )

    def test_the_job_is_listed_and_can_be_ended(self, folder: job_dir.Folder, data: bytes) -> None:
        job_state.JobState(folder, PLAN).set_ended(Outcome("SUCCEEDED", 0, ""))
        tear(folder, "job.json", data)
        assert query.list_jobs(None)["jobs"][0]["state"] == "SUCCEEDED"
        printed = cancel.cancel("t-1", None)
        assert (printed["state"]["state"], printed["grace"]) == ("SUCCEEDED", 10.0)


class TestEvents:
    def test_what_is_torn_is_passed_over_and_takes_nothing_with_it(self, folder: job_dir.Folder) -> None:
        job_state.JobState(folder, PLAN).set_ended(Outcome("SUCCEEDED", 0, ""))
        end = {"rank": 0, "node": "node000000", "status": 0, "signal": None, "stopped": False, "attempt": 0}
        with Path(folder.file("events.jsonl")).open("ab") as file:
            file.write(
                b'null\n7\n[]\n{}\n{"event": "exit", "time": 1.0}\n{"event": "lost-node", "time": 1.0}\n'
            )
            file.write(b"\xff\n" + b"[" * 100_000 + b'\n{"event": "exit", "ra')
        folder.event("exit", **end)
        printed = query.job_report("t-1")
        assert [(one["rank"], one["status"]) for one in printed["ends"]] == [(0, 0)]
        assert [event["event"] for event in printed["events"]] == ["state", "lost-node"]
        assert query.lost_nodes(folder) == []

    def test_a_torn_record_of_ends_does_not_take_the_next(self, folder: job_dir.Folder) -> None:
        tear(folder, "exits.jsonl", b'{"rank": 0, "sta')
        folder.append("exits.jsonl", {"rank": 1})
        assert Path(folder.file("exits.jsonl")).read_bytes().splitlines()[1:] == [b'{"rank": 1}']


def test_a_torn_cancel_request_is_a_request(folder: job_dir.Folder) -> None:
    tear(folder, "cancel", b"1\x00")
    assert cancel.cancel_request(folder, 7.0) == (7.0, "")


def test_a_file_has_its_name_only_when_its_contents_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        done.append(f"sync {kind(fd)}")
        real_sync(fd)

    def rename(old: str, new: str) -> None:
        done.append("rename")
        real_rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    files.replace_file(str(tmp_path / "a"), b"x")
    assert done == ["sync file of 1", "rename"]
    assert (tmp_path / "a").read_bytes() == b"x"
    folder = job_dir.Folder("t-2")
    for change, expected in (
        (lambda: folder.create(PLAN), ["sync file", "rename"]),
        (lambda: folder.write_state(sample_state("t-2")), ["sync file", "rename"]),
        (
            lambda: folder.write_state(sample_state("t-2", state="FAILED")),
            ["sync file", "rename", "sync folder"],
        ),
    ):
        done.clear()
        change()
        assert [one.partition(" of")[0] for one in done] == expected
    assert sorted(path.name for path in Path(folder.path).iterdir()) == [
        "events.jsonl",
        "job.json",
        "state.json",
    ]
    assert json.loads(Path(folder.file("job.json")).read_bytes()) == PLAN


def kind(fd: int) -> str:
    entry = os.fstat(fd)
    return "folder" if stat.S_ISDIR(entry.st_mode) else f"file of {entry.st_size}"
