"""Values of a job's variables on its head: there while its ranks may start, gone from job.json afterwards."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launch.remote import cli
from launch.remote.base import files, job_dir, processes, timing
from launch.remote.head import supervisor
from launch.remote.head.job_state import JobState
from launch.remote.head.outcome import Outcome
from tests.launch.remote.base.test_job_dir import APART, PROJECT
from tests.launch.remote.sample_records import sample_plan, sample_state

if TYPE_CHECKING:
    from launch.remote.base.records import Plan

SECRET = "s3cret-value"
PLAN = sample_plan(user_env={"WANDB_API_KEY": SECRET, "EMPTY": ""})
KEPT = {"WANDB_API_KEY": None, "EMPTY": None}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def running(**state: Any) -> job_dir.Folder:
    folder = job_dir.Folder("t-1")
    folder.create(PLAN)
    folder.write_state(sample_state(**{"supervisor": processes.identity(os.getpid()), **state}))
    return folder


def files_with_the_secret(folder: job_dir.Folder) -> list[str]:
    return [path.name for path in Path(folder.path).iterdir() if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("state", ["QUEUED", "STARTING", "RUNNING"])
def test_a_job_that_may_start_ranks_keeps_the_values(state: str) -> None:
    folder = running()
    folder.write_state(sample_state(state=state, supervisor=processes.identity(os.getpid())))
    assert folder.plan() == PLAN


@pytest.mark.parametrize("state", job_dir.TERMINAL)
def test_a_terminal_state_leaves_the_names_alone_in_a_file_for_the_user_alone(state: str) -> None:
    folder = running()
    folder.write_state(sample_state(state=state))
    assert folder.plan() == {**PLAN, "user_env": KEPT}
    assert files_with_the_secret(folder) == []
    assert stat.S_IMODE(Path(folder.file("job.json")).stat().st_mode) == 0o600


def test_the_signed_request_for_the_identity_is_forgotten_too() -> None:
    for values in ({}, {"KEY": "value"}):
        plan: Plan = {**PLAN, "user_env": values, "identity": f"identity t-2\n{SECRET}"}
        folder = job_dir.Folder(f"t-{len(values)}-i")
        folder.create(plan)
        assert json.loads(job_dir.shown_plan(json.dumps(plan).encode()))["identity"] is None
        folder.write_state(sample_state(state="CANCELLED"))
        assert (folder.plan()["identity"], files_with_the_secret(folder)) == (None, [])


def test_an_upload_after_the_last_rank_does_not_keep_the_values() -> None:
    folder = job_dir.Folder("t-1")
    folder.create(PLAN)
    state = JobState(folder, PLAN)
    state.set_uploading([{"name": "", "url": "azureml://outputs"}], Outcome("SUCCEEDED", 0, ""))
    assert files_with_the_secret(folder) == []


def test_a_job_whose_supervisor_was_killed_loses_them_with_the_next_query() -> None:
    folder = running(supervisor=None)
    assert files_with_the_secret(folder) == ["job.json"]
    assert [state["state"] for state in job_dir.all_jobs()] == ["LOST"]
    assert files_with_the_secret(folder) == []


def test_a_supervisor_killed_between_plan_and_state_leaves_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = running()
    real = files.replace_file

    def killed(path: str, *rest: Any, **more: Any) -> None:
        if path.endswith("state.json"):
            raise KeyboardInterrupt
        real(path, *rest, **more)

    monkeypatch.setattr(job_dir, "replace_file", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.write_state(sample_state(state="FAILED"))
    assert files_with_the_secret(folder) == []


def test_an_unfinished_copy_of_the_plan_is_removed() -> None:
    folder = running()
    Path(files.temporary_name(folder.file("job.json"))).write_text(SECRET)
    folder.write_state(sample_state(state="CANCELLED"))
    assert files_with_the_secret(folder) == []


@pytest.mark.parametrize("data", [b'{"user_env": {"KEY": "s3cret-value"', b'"s3cret-value"', b"[" * 100_000])
def test_a_torn_plan_is_emptied_since_its_values_may_be_anywhere(data: bytes) -> None:
    folder = running()
    Path(folder.file("job.json")).write_bytes(data)
    folder.write_state(sample_state(state="FAILED"))
    assert Path(folder.file("job.json")).read_bytes() == b""


@pytest.mark.parametrize("value", [SECRET, [SECRET], {"a": SECRET}])
def test_a_plan_of_another_version_loses_its_values_too(value: object) -> None:
    folder = running()
    Path(folder.file("job.json")).write_text(json.dumps({"version": 7, "user_env": {"KEY": value}}))
    folder.write_state(sample_state(state="LOST"))
    left = json.loads(Path(folder.file("job.json")).read_bytes())
    assert left == {"version": 7, "user_env": {"KEY": None}}


def test_values_that_cannot_be_removed_are_named_in_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = running()

    def refuse(path: str, data: bytes) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(job_dir, "shorten_file", refuse)
    state = folder.write_state(sample_state(state="FAILED", reason="rank 0 exited with 1"))
    assert state["reason"] == (
        f"rank 0 exited with 1; {folder.file('job.json')} still has the values of the job's variables, "
        "remove it: Read-only file system"
    )


class TestAJobThatNeverStarted:
    def test_a_supervisor_that_does_not_start_makes_it_lost(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse(folder: job_dir.Folder, plan: Plan) -> None:
            raise OSError(f"the supervisor of job {plan['id']} did not start")

        monkeypatch.setattr(supervisor, "detach", refuse)
        data = json.dumps(PLAN).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"%010d" % len(data) + data)))
        assert cli.main(["submit"]) == 1
        assert "the supervisor of job t-1 did not start" in capsys.readouterr().err
        folder = job_dir.Folder("t-1")
        assert (folder.state()["state"], files_with_the_secret(folder)) == ("LOST", [])

    def test_a_plan_without_any_state_is_lost_once_it_is_old(self) -> None:
        folder = job_dir.Folder("t-1")
        folder.create(PLAN)
        assert job_dir.all_jobs() == []
        old = time.time() - timing.FIRST_STATE_S - 1
        os.utime(folder.file("job.json"), (old, old))
        (state,) = job_dir.all_jobs()
        assert state["state"] == "LOST"
        assert state["reason"].endswith(f"{folder.file('state.json')} was never written")
        assert files_with_the_secret(folder) == []


def test_a_full_disk_does_not_keep_the_values(home: Path) -> None:
    program = f"""
import json
from pathlib import Path
from launch.remote.base import job_dir
folder = job_dir.Folder("t-1")
folder.create({{"id": "t-1", "user_env": {{"A": "", "B": "", "KEY": "{SECRET}" * 3000}}}})
state = {{**job_dir.first_state("t-1", {{"nodes": []}}, 1.0, None), "state": "RUNNING"}}
folder.write_state(state)
with open(folder.file("filler"), "ab", buffering=0) as file:
    size = 65536
    while size:
        try:
            file.write(bytes(size))
        except OSError:
            size //= 2
print(folder.write_state({{**state, "state": "FAILED"}}))
print(sorted(path.name for path in Path(folder.path).iterdir() if b"{SECRET}" in path.read_bytes()))
print(json.loads(Path(folder.file("job.json")).read_bytes())["user_env"])
"""
    jobs = home / ".ranklift/jobs"
    jobs.mkdir(parents=True)
    script = 'mount -t tmpfs -o size=1m none "$0" && "$@"'
    done = subprocess.run(
        [*APART, "sh", "-c", script, str(jobs), sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    state, secrets, left = done.stdout.splitlines()
    assert "'FAILED'" in state
    assert (secrets, left) == ("[]", "{'A': None, 'B': None, 'KEY': None}")
