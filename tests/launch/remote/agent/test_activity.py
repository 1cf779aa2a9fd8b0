"""What a node's watch sees of jobs: locked slots, supervisors in the queue, and the time since."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from launch.remote.agent import activity
from launch.remote.agent.activity import Activity, end_jobs
from launch.remote.base import job_dir, processes
from launch.remote.head import cancel, queue
from launch.remote.node import slots
from tests.launch.remote.sample_records import sample_plan
from tests.launch.standin import until

if TYPE_CHECKING:
    from launch.remote.base.records import Plan, Process

ME: dict[str, Any] = {}
"""The process of a job's supervisor, while these tests run."""


@pytest.fixture(scope="module", autouse=True)
def supervised(supervisor: Process) -> None:
    ME.update(supervisor)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(queue, "identity", lambda _: ME)
    (tmp_path / ".ranklift/agent").mkdir(parents=True)
    return tmp_path / ".ranklift"


def write_queue(folder: Path, **other: Any) -> None:
    entry = {"job": "a-1", "process": ME, "slots": None, **other}
    (folder / "queue.json").write_text(json.dumps([entry]))


def plan(job: str = "a-1", grace_s: float = 30.0) -> Plan:
    nodes = [{"name": "node000000", "reserve": 1, "slots": 2}]
    return sample_plan(job, nodes=nodes, grace_s=grace_s)


class TestLooking:
    def test_a_node_that_was_never_looked_at_counts_from_now(self, folder: Path) -> None:
        one = Activity(str(folder))
        assert one.look() == 0.0
        time.sleep(0.05)
        # what is kept is rounded
        assert 0.04 <= one.look() < 1
        assert 0.04 <= Activity(str(folder)).look() < 1

    @pytest.mark.parametrize("pid", [1, os.getpid()], ids=["init", "this one"])
    def test_a_process_that_supervises_no_job_waits_for_nothing(self, folder: Path, pid: int) -> None:
        write_queue(folder, process=processes.identity(pid))
        one = Activity(str(folder))
        one.look()
        time.sleep(0.05)
        assert one.look() >= 0.04
        assert one.jobs() == []

    def test_a_slot_that_a_runner_holds(self, folder: Path) -> None:
        held = slots.take_slots({"job": "a-1", "slots": [1], "of": 2, "restarts": 0})
        one = Activity(str(folder))
        assert (one.look(), one.is_busy) == (0.0, True)
        for slot in held:
            os.close(slot)
        time.sleep(0.02)
        assert (one.look() > 0, one.is_busy) == (True, False)

    def test_a_folder_of_many_files_does_not_hold_the_agent_up(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "slots").mkdir()
        for name in ("guard", *map(str, range(50))):
            (folder / "slots" / name).touch()
        looked_at = Mock(wraps=activity._is_held)
        monkeypatch.setattr(activity, "_MOST_FILES", 10)
        monkeypatch.setattr(activity, "_is_held", looked_at)
        Activity(str(folder)).look()
        assert looked_at.call_count == 10

    def test_a_slot_that_is_held_for_the_nodes_removal_is_no_jobs(self, folder: Path) -> None:
        """Azure would wait for the end of its notice, five minutes, before it takes a node that is idle."""
        held = slots.hold(2, "`fab scale 3` of ann on desk (process 7)")
        one = Activity(str(folder))
        one.look()
        assert not one.is_busy
        for slot in held:
            os.close(slot)

    def test_a_look_takes_no_slot_from_a_runner(self, folder: Path) -> None:
        held = slots.take_slots({"job": "a-1", "slots": [0], "of": 2, "restarts": 0})
        Activity(str(folder)).look()
        held += slots.take_slots({"job": "b-1", "slots": [1], "of": 2, "restarts": 0})
        for slot in held:
            os.close(slot)

    def test_somebody_who_is_taking_slots_now(self, folder: Path) -> None:
        for slot in slots.take_slots({"job": "a-1", "slots": [0], "of": 1, "restarts": 0}):
            os.close(slot)
        with (folder / "slots/guard").open("r+") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            one = Activity(str(folder))
            assert (one.look(), one.is_busy) == (0.0, True)

    def test_a_supervisor_here_whose_job_runs(self, folder: Path) -> None:
        queue.enter(plan())
        assert queue.admit("a-1", 6105)
        one = Activity(str(folder))
        assert (one.look(), one.is_busy, one.jobs()) == (0.0, True, ["a-1"])
        queue.leave("a-1")
        assert one.look() == 0.0  # it was here a moment ago
        time.sleep(0.02)
        assert (one.look() > 0, one.is_busy, one.jobs()) == (True, False, [])

    def test_one_whose_job_waits_does_not_need_the_node(self, folder: Path) -> None:
        write_queue(folder)
        one = Activity(str(folder))
        assert (one.look(), one.is_busy) == (0.0, False)

    def test_one_that_is_gone(self, folder: Path) -> None:
        ended = subprocess.Popen(["sleep", "60"])
        gone = processes.identity(ended.pid)
        ended.kill()
        write_queue(folder, process=gone)
        one = Activity(str(folder))
        until(lambda: one.jobs() == [])  # a zombie until it is waited for
        ended.wait()
        one.look()
        time.sleep(0.02)
        assert one.look() > 0
        write_queue(folder, process={**ME, "started": ME["started"] + 1})
        assert one.jobs() == []

    def test_a_job_that_came_and_went_between_two_looks(self, folder: Path) -> None:
        one = Activity(str(folder))
        one.look()
        time.sleep(0.05)
        (folder / "queue.json").write_text("[]")
        assert one.look() == 0.0

    @pytest.mark.parametrize(
        "text", ["", "{", "[1]", "{}", '[{"process": null}]', '[{"process": {"pid": "x"}}]']
    )
    def test_a_queue_that_is_none(self, folder: Path, text: str) -> None:
        (folder / "queue.json").write_text(text)
        assert Activity(str(folder)).jobs() == []

    def test_a_time_from_before_this_boot(self, folder: Path) -> None:
        (folder / "agent/active").write_text(f"{time.monotonic() + 1e6}")
        assert abs(Activity(str(folder)).look() - time.monotonic()) < 1

    def test_a_full_disk_takes_a_jobs_end_in_the_place_of_the_last(
        self, folder: Path, full_disk: Callable[[], None]
    ) -> None:
        (folder / "agent/active").write_text("0.0")
        full_disk()
        for slot in slots.take_slots({"job": "a-1", "slots": [0], "of": 1, "restarts": 0}):
            Activity(str(folder)).look()
            os.close(slot)
        time.sleep(0.05)
        assert 0.04 <= Activity(str(folder)).look() < 1, "files' times are coarser than clocks"

    def test_what_cannot_be_written_counts_as_activity_and_is_known_to_who_saw_it(
        self, folder: Path, full_disk: Callable[[], None]
    ) -> None:
        full_disk()
        one = Activity(str(folder))
        assert one.look() == 0.0
        time.sleep(0.05)
        assert 0.05 <= one.look() < 1
        assert Activity(str(folder)).look() == 0.0
        assert list(folder.glob("agent/*")) == []

    @pytest.mark.parametrize("name", ["queue.json", "slots/0", "slots/guard"])
    @pytest.mark.parametrize("trap", ["pipe", "link"])
    def test_files_that_a_job_put_there_do_not_hold_the_agent_up(
        self, folder: Path, name: str, trap: str
    ) -> None:
        (folder / "slots").mkdir()
        for usual in ("guard", "0"):
            (folder / "slots" / usual).touch()
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / "trap")
        os.mkfifo(folder / name) if trap == "pipe" else (folder / name).symlink_to(folder / "trap")
        code = f"from launch.remote.agent.activity import Activity; Activity({str(folder)!r}).look()"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=10)

    def test_a_time_that_fails_to_be_replaced_goes(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "agent/active").write_text("0.0")
        write_queue(folder)

        def opened(path: str, mode: str = "r", **other: Any) -> Any:
            if mode in ("w", "r+"):
                raise OSError("no room")
            return open(path, mode, **other)  # noqa: PTH123  in its place

        monkeypatch.setattr(activity, "open", opened, raising=False)
        assert Activity(str(folder)).look() == 0.0
        assert not (folder / "agent/active").exists()


class TestEndingJobs:
    def job(self, grace_s: float = 30.0) -> job_dir.Folder:
        folder = job_dir.Folder("a-1")
        folder.create(plan(grace_s=grace_s))
        queue.enter(plan())
        return folder

    def test_each_is_asked_in_its_own_grace_but_in_time(self, folder: Path) -> None:
        of_job = self.job()
        assert end_jobs(str(folder), 55.0, "time is over") == 1
        assert cancel.cancel_request(of_job, 1.0) == (30.0, "time is over")

    def test_a_long_grace_is_cut(self, folder: Path) -> None:
        of_job = self.job(300.0)
        end_jobs(str(folder), 55.0, "time is over")
        assert cancel.cancel_request(of_job, 1.0) == (55.0, "time is over")

    def test_one_that_is_ending_is_left_to_it(self, folder: Path) -> None:
        of_job = self.job()
        Path(of_job.file("cancel")).write_text("3")
        assert end_jobs(str(folder), 55.0, "time is over") == 0
        assert cancel.cancel_request(of_job, 1.0) == (3.0, "")

    def test_one_that_has_ended_is_left_alone(self, folder: Path) -> None:
        of_job = self.job()
        queue.leave("a-1")
        assert end_jobs(str(folder), 55.0, "time is over") == 0
        assert cancel.cancel_request(of_job, 1.0) is None


class TestDamagedRecords:
    """A job of the nodes' user can put anything there; the agent outlives it."""

    @pytest.mark.parametrize(
        "entry",
        [
            {"process": ME},
            {"job": ["a-1"], "process": ME},
            {"job": "../a-1", "process": ME},
            {"job": "a\0", "process": ME},
            {"job": "\ud800", "process": ME},
            {"job": "a" * 300, "process": ME},
            {"job": "a-1", "process": {"pid": float("inf"), "started": 1}},
            {"job": "a-1", "process": 7},
            7,
        ],
    )
    def test_a_damaged_entry_of_the_queue_hides_no_other(self, folder: Path, entry: object) -> None:
        good = {"job": "good", "process": ME, "slots": None}
        (folder / "queue.json").write_text(json.dumps([entry, good]))
        assert Activity(str(folder)).jobs() == ["good"]
        assert Activity(str(folder)).look() == 0.0

    @pytest.mark.timeout(20)
    def test_a_pipe_in_place_of_the_agents_own_file_holds_nothing_up(self, folder: Path) -> None:
        os.mkfifo(folder / "agent/active")
        assert Activity(str(folder)).look() >= 0.0

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("record", [None, '{"grace_s": null}', "[]", "[" * 100_000, '{"grace_s": 1e999}'])
    def test_a_damaged_job_is_asked_to_end_and_so_is_the_next(self, folder: Path, record: str | None) -> None:
        listed = [{"job": job, "process": ME, "slots": None} for job in ("bad", "good")]
        (folder / "queue.json").write_text(json.dumps(listed))
        for job in ("bad", "good"):
            (folder / f"jobs/{job}").mkdir(parents=True)
            (folder / f"jobs/{job}/job.json").write_text(json.dumps(plan(job, 7.0)))
        if record is None:
            (folder / "jobs/bad/job.json").unlink()
            os.mkfifo(folder / "jobs/bad/job.json")
        else:
            (folder / "jobs/bad/job.json").write_text(record)
        assert end_jobs(str(folder), 60, "why") == 2
        assert (folder / "jobs/bad/cancel").read_text() == "60\nwhy"
        assert (folder / "jobs/good/cancel").read_text() == "7\nwhy"
