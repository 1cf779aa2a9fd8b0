"""A job can put anything in place of a record: that spoils no other job, and holds no head up."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base import job_dir, processes
from launch.remote.base.names import drained_at
from launch.remote.head import cancel, query, queue
from launch.remote.node import slots
from launch.remote.sample import stored_samples
from launch.remote.store import removal
from tests.launch.remote.sample_records import sample_plan, sample_state

pytestmark = pytest.mark.timeout(20)  # a pipe without a writer holds up whoever opens it as a file

Spoil = Callable[[Path], object]


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def full_folder(path: Path) -> None:
    folder(path)
    (path / "kept").write_text("a job's")


def link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("elsewhere")


def endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def listener(path: Path) -> None:
    path.unlink(missing_ok=True)
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def not_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a head's jobs ``bad`` and ``good``, which run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for job in ("bad", "good"):
        made = job_dir.Folder(job)
        made.create(sample_plan(job))
        made.write_state(
            sample_state(job, state="RUNNING", created=1.0, supervisor=processes.identity(os.getpid()))
        )
    return tmp_path / ".ranklift/jobs"


@pytest.mark.parametrize("spoil", [pipe, folder, deep, not_text])
@pytest.mark.parametrize("name", ["job.json", "state.json"])
def test_unfinished_jobs_are_listed_beside_a_damaged_one(
    jobs: Path, tmp_path: Path, name: str, spoil: Spoil
) -> None:
    spoil(jobs / "bad" / name)
    found = removal.unfinished_jobs(str(tmp_path / ".ranklift"))
    assert json.loads(found["good"])["id"] == "good"
    assert "bad" in found  # what cannot be read may be of a job that runs


@pytest.mark.parametrize(
    "end", [None, {}, {"reason": 1}, {"state": ["RUNNING"]}, {"job": "good"}, {"created": "x"}]
)
def test_the_end_to_come_of_a_job_sets_nothing_but_its_end(jobs: Path, end: dict[str, Any] | None) -> None:
    state = json.loads((jobs / "bad/state.json").read_text())
    whole = {"state": "FAILED", "reason": "", "exit_status": 1, "failure": None}
    pending = None if end is None else {**whole, **end} if end else {}
    (jobs / "bad/state.json").write_text(json.dumps({**state, "supervisor": None, "pending": pending}))
    listed = {state["job"]: state["state"] for state in job_dir.all_jobs()}
    assert listed == {"bad": "LOST", "good": "RUNNING"}


@pytest.mark.parametrize("spoil", [deep, not_text])
def test_a_job_enters_a_queue_whose_record_is_damaged(jobs: Path, spoil: Spoil) -> None:
    spoil(jobs.parent / "queue.json")
    queue.enter(sample_plan("next"))
    assert [entry["job"] for entry in json.loads((jobs.parent / "queue.json").read_text())] == ["next"]
    assert query.list_jobs(None).get("aside") == []


KINDS = (pipe, folder, full_folder, link, endless, listener)
NO_FILES = pytest.mark.parametrize("spoil", KINDS)


@NO_FILES
@pytest.mark.parametrize("name", ["queue.json", "queue.json.lock"])
def test_what_is_no_file_in_place_of_the_queue_is_moved_aside_and_named(
    jobs: Path, name: str, spoil: Spoil
) -> None:
    path = jobs.parent / name
    spoil(path)
    before = path.lstat()
    queue.enter(sample_plan("next", nodes=[{"name": "n", "reserve": 1, "slots": 2}]))
    given = queue.admit("next", 45_000)
    assert given is not None
    assert given.slots == {"n": [0]}
    (aside,) = query.list_jobs(None)["aside"]
    assert aside.startswith(f"{name}.damaged-")
    assert os.path.samestat(before, (jobs.parent / aside).lstat())
    assert not (jobs.parent / "elsewhere").exists()


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        *(("slots", spoil) for spoil in (pipe, link, endless, listener)),
        *((f"slots/{name}", spoil) for name in ("guard", "1") for spoil in KINDS),
    ],
)
def test_what_is_no_file_in_place_of_slots_is_moved_aside_and_named(
    jobs: Path, name: str, spoil: Spoil
) -> None:
    path = jobs.parent / name
    path.parent.mkdir(exist_ok=True)
    spoil(path)
    before = path.lstat()
    held = slots.hold(2, "somebody")
    assert slots.taken_slots(2) == [(0, "somebody"), (1, "somebody")]
    for descriptor in held:
        os.close(descriptor)
    (aside,) = query.list_jobs(None)["aside"]
    assert aside.startswith(f"{name}.damaged-")
    assert os.path.samestat(before, (jobs.parent / aside).lstat())


@NO_FILES
def test_a_drain_whose_record_is_no_file_holds_on(jobs: Path, spoil: Spoil) -> None:
    spoil(jobs.parent / "drained")
    ((_, holder),) = slots.taken_slots(1)
    assert drained_at(holder) == 0.0


def test_of_processes_that_find_a_damaged_lock_one_moves_it_aside(jobs: Path) -> None:
    path = jobs.parent / "queue.json.lock"
    path.mkdir()
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(slots.open_lock, [str(path)] * 32))
    assert len({os.fstat(descriptor).st_ino for descriptor in opened}) == 1
    for descriptor in opened:
        os.close(descriptor)
    assert len(query.list_jobs(None)["aside"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"slots": {"n": [[1]]}},
        {"slots": {"n": [-1]}},
        {"nodes": {"n": {"need": "1", "of": 2}}},
        {"nodes": {"n": {"need": 1, "of": 10**9}}},
        {"nodes": {"n": [1]}},
        {"foreign": {"n": [[0, 7]]}},
    ],
)
def test_a_damaged_entry_of_the_queue_takes_no_slot(jobs: Path, change: dict[str, Any]) -> None:
    plan = sample_plan("next", nodes=[{"name": "n", "reserve": 2, "slots": 2}])
    queue.enter(plan)
    path = jobs.parent / "queue.json"
    (entry,) = json.loads(path.read_text())
    path.write_text(json.dumps([{**entry, "job": "bad", **change}, entry]))
    given = queue.admit("next", 45_000)
    assert given is not None
    assert given.slots == {"n": [0, 1]}


@pytest.mark.parametrize("answer", ["{}", "7", '{"abc": 1}', "[[0, 7]]", '[["0", "a"]]', "[" * 50_000])
def test_a_nodes_damaged_answer_about_its_slots_is_none(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "answer"
    said.write_text(answer)

    def start(*_: object, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["cat", said], stdout=subprocess.PIPE, **options)

    monkeypatch.setattr(queue, "start_on_node", start)
    asked = queue.SlotQuery(sample_plan("next", nodes=[{"name": "n", "reserve": 1, "slots": 2}]), ["n"])
    for process in asked._queries.values():
        process.wait()
    assert asked.result() == {}


EXIT = {"time": 1.0, "event": "exit", "node": "n", "status": 1, "signal": 0, "stopped": False, "attempt": 0}


@pytest.mark.parametrize("rank", [[1], "a", None])
def test_a_damaged_event_is_left_out_of_the_report(jobs: Path, rank: object) -> None:
    lines = [json.dumps({**EXIT, "rank": one}) for one in (rank, 0)]
    (jobs / "bad/events.jsonl").write_text("\n".join([*lines, ""]))
    assert [end["rank"] for end in query.job_report("bad")["ends"]] == [0]


@pytest.mark.parametrize("spoil", [pipe, folder, not_text])
def test_a_report_has_no_events_where_their_record_is_damaged(jobs: Path, spoil: Spoil) -> None:
    spoil(jobs / "bad/events.jsonl")
    assert query.job_report("bad")["events"] == []
    assert query.lost_nodes(job_dir.Folder("bad")) == []


@pytest.mark.parametrize("spoil", [pipe, folder, not_text])
def test_a_damaged_request_ends_its_job_in_the_jobs_own_grace(jobs: Path, spoil: Spoil) -> None:
    spoil(jobs / "bad/cancel")
    found = cancel.cancel_request(job_dir.Folder("bad"), 3.0)
    assert found is not None
    assert found[0] == 3.0


@pytest.mark.parametrize("grace", ["inf", "nan", "-1", "1e300"])
def test_a_grace_that_no_user_can_give_is_the_jobs_own(jobs: Path, grace: str) -> None:
    (jobs / "bad/cancel").write_text(f"{grace}\nwhy")
    assert cancel.cancel_request(job_dir.Folder("bad"), 3.0) == (3.0, "why")


@pytest.mark.parametrize("spoil", [pipe, folder])
def test_a_job_is_cancelled_whatever_it_put_in_place_of_the_request(jobs: Path, spoil: Spoil) -> None:
    spoil(jobs / "bad/cancel")
    cancel._request(job_dir.Folder("bad"), 7.0)
    assert (jobs / "bad/cancel").read_text() == "7"


@pytest.mark.parametrize("spoil", [pipe, folder, deep, not_text])
def test_a_damaged_history_is_none(jobs: Path, spoil: Spoil) -> None:
    path = jobs / "bad/history.json"
    spoil(path)
    assert stored_samples._read(str(path), ()) is None
