"""A job's folder: its last state is final, and there is room for it on a full disk."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launch.remote.base import job_dir, processes
from tests.launch.remote.sample_records import sample_plan, sample_state

if TYPE_CHECKING:
    from launch.remote.base.records import Plan, State

PROJECT = Path(job_dir.__file__).parents[3]
PLAN = sample_plan("job")
APART = ("unshare", "--user", "--map-root-user", "--mount")
"""What is mounted then is seen by nobody else."""
FULL = """
import json, os, sys
from launch.remote.base import job_dir, processes
from launch.remote.head import cancel

def fill():
    with open(job_dir.Folder("job").file("filler"), "ab", buffering=0) as file:
        size = 65536
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2

folder = job_dir.Folder("job")
folder.create({"id": "job"})
supervisor = processes.identity(os.getpid()) if sys.argv[1] != "lost" else None
state = {**job_dir.first_state("job", {"nodes": []}, 1.0, supervisor), "state": "RUNNING"}
folder.write_state(state)
fill()
if sys.argv[1] == "cancel":
    cancel.timing.CANCEL_ANSWER_S = 0
    print(json.dumps([cancel.cancel("job", 5.0)["before"], cancel.cancel_request(folder, 3.0)[0]]))
elif sys.argv[1] == "lost":
    print(json.dumps([job_dir.all_jobs()[0]["state"], folder.state()["state"]]))
else:
    folder.write_state(dict(state, state=sys.argv[1], reason="x" * 3000))
    folder.event("exit", rank=0, words="y" * 100000)
    print(json.dumps([folder.state()["state"], len(folder.state()["reason"])]))
for name in ("state.json", "events.jsonl"):
    with open(folder.file(name)) as file:
        for line in file:
            json.loads(line)
"""
"""Writes a state on a disk without room, and says what is there then."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def made(plan: Plan = PLAN, **state: Any) -> job_dir.Folder:
    folder = job_dir.Folder("job")
    folder.create(plan)
    folder.write_state(running(**state))
    return folder


def running(**state: Any) -> State:
    return sample_state("job", **{"supervisor": processes.identity(os.getpid()), **state})


def states(folder: job_dir.Folder) -> list[str]:
    lines = Path(folder.file("events.jsonl")).read_text().splitlines()
    return [event["state"] for event in map(json.loads, lines) if event["event"] == "state"]


class TestTheLastState:
    @pytest.mark.parametrize("last", job_dir.TERMINAL)
    @pytest.mark.parametrize("later", ["RUNNING", "SUCCEEDED", "LOST"])
    def test_it_never_changes(self, last: str, later: str) -> None:
        folder = made()
        folder.write_state(running(state=last))
        assert folder.write_state(running(state=later))["state"] == last
        assert folder.state()["state"] == last
        assert states(folder) == ["RUNNING", last]

    @pytest.mark.parametrize("last", job_dir.TERMINAL)
    def test_the_room_reserved_for_it_is_given_back(self, last: str) -> None:
        folder = made()
        before = set(Path(folder.path).iterdir())
        folder.write_state(running(state=last))
        assert before - set(Path(folder.path).iterdir()) == {Path(folder.path, "reserve")}

    def test_a_supervisor_that_is_gone_without_an_end_is_lost_once(self) -> None:
        folder = made(supervisor=None)
        seen = [folder.state(), folder.state()]
        assert seen[0] == seen[1]
        assert (seen[0]["state"], seen[0]["exit_status"]) == ("LOST", 255)
        assert states(folder) == ["RUNNING", "LOST"]

    @pytest.mark.parametrize("restarts", [0, 2])
    def test_a_lost_job_with_restarts_says_that_its_working_folders_stay_and_until_when(
        self, restarts: int
    ) -> None:
        folder = made(sample_plan("job", max_restarts=restarts), supervisor=None)
        stays = "; its working folders stay on its nodes until `fab cancel job`"
        assert folder.state()["reason"].endswith(stays) == bool(restarts)

    def test_of_many_that_write_at_once_one_is_believed_by_all(self) -> None:
        folder = made()
        answers: list[str] = []
        together = threading.Barrier(8)

        def end(state: str) -> None:
            together.wait()
            answers.append(folder.write_state(running(state=state))["state"])

        threads = [threading.Thread(target=end, args=(job_dir.TERMINAL[i % 5],)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(answers)) == 1
        assert states(folder) == ["RUNNING", answers[0]]

    def test_a_supervisor_that_cannot_be_looked_for_counts_as_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = made()

        def refuse(pid: int) -> dict[str, Any]:
            raise OSError(24, os.strerror(24))

        monkeypatch.setattr(job_dir, "identity", refuse)
        assert folder.state()["state"] == "RUNNING"


def test_what_is_no_job_in_the_folder_of_jobs_is_passed_over(home: Path) -> None:
    made()
    (home / ".ranklift/jobs/notes.txt").touch()
    (home / ".ranklift/jobs/half-made").mkdir()
    assert [state["job"] for state in job_dir.all_jobs()] == ["job"]


class TestAFullDisk:
    @pytest.mark.parametrize(
        ("write", "found"),
        [
            ("SUCCEEDED", ["SUCCEEDED", 3000]),
            ("FAILED", ["FAILED", 3000]),
            ("QUEUED", ["RUNNING", 0]),
            ("lost", ["LOST", "LOST"]),
            ("cancel", ["RUNNING", 3.0]),
        ],
    )
    def test_takes_the_last_state_and_keeps_what_was_told_whole(
        self, home: Path, write: str, found: list[object]
    ) -> None:
        assert on_a_small_disk(home, write, "1m") == found

    def test_without_room_for_a_job_nothing_is_left_of_it(self, home: Path) -> None:
        with pytest.raises(subprocess.CalledProcessError) as failed:
            on_a_small_disk(home, "SUCCEEDED", "32k", then="ls")
        assert "No space left on device" in failed.value.stderr
        assert failed.value.stdout == ""


def on_a_small_disk(home: Path, write: str, size: str, then: str = "true") -> Any:
    folder = home / ".ranklift/jobs"
    folder.mkdir(parents=True)
    script = f'mount -t tmpfs -o size={size} none "$0" && {{ "$@"; status=$?; {then} "$0"; exit $status; }}'
    done = subprocess.run(
        [*APART, "sh", "-c", script, str(folder), sys.executable, "-c", FULL, write],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def test_only_the_user_may_read_the_plan_which_holds_values_of_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    before = os.umask(0)
    try:
        folder = job_dir.Folder("job")
        folder.create(sample_plan("job", user_env={"KEY": "secret"}))
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(folder.path).stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(folder.file("job.json")).stat().st_mode) == 0o600
    assert folder.plan()["user_env"] == {"KEY": "secret"}


def test_a_job_that_took_the_mode_of_its_folder_away_hides_no_job() -> None:
    program = """
import os, sys
from launch.remote.base import job_dir, processes
from launch.remote.head import cancel
if os.getuid() == 0:
    os.setuid(65534)  # root may read whatever the mode is
os.environ["HOME"] = os.getcwd()
for name in ("a", "b"):
    folder = job_dir.Folder(name)
    folder.create({"id": name, "nodes": []})
    supervisor = processes.identity(os.getpid())
    state = {**job_dir.first_state(name, {"nodes": []}, 1.0, supervisor), "state": "RUNNING"}
    folder.write_state(state)
    os.chmod(folder.path, 0)
    print(cancel.cancel_request(folder, 1.0))
    os.chmod(folder.path, 0)
print([state["job"] for state in job_dir.all_jobs()])
os.chmod(folder.path, 0)
print(folder.write_state(dict(state, state="FAILED"))["state"])
"""
    with tempfile.TemporaryDirectory() as home:  # others do not reach what pytest makes
        Path(home).chmod(0o777)
        code = str(Path(job_dir.__file__).parents[3])
        argv = [sys.executable, "-c", program]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": code}
        done = subprocess.run(argv, cwd=home, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("None\nNone\n['a', 'b']\nFAILED\n", "")
