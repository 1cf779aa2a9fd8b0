"""Values of a job's variables: every launch has them, and nothing on any node has them after the job."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from launch.client.submit import submit
from launch.job.spec import Kind
from tests.launch.remote.sample_records import sample_state
from tests.launch.standin import Nodes, lines, shell, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

SECRET = "s3cret-value"
ONCE = "echo ${#KEY}; [ $NODE_RANK$RANKLIFT_RESTART_COUNT = 10 ] && exit 3; true"
"""Node 1 fails the first time."""


def files_with_the_secret(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("kind", ["mpi", "pytorch", "tensorflow"])
def test_a_restart_has_the_values_and_no_file_after_the_job(nodes: Nodes, kind: Kind) -> None:
    script = ONCE.replace("NODE_RANK", "RANK") if kind == "mpi" else ONCE
    state, events = nodes.run(shell(script, kind, max_restarts=1, env={"KEY": SECRET, "OMPI_MCA_a": SECRET}))
    assert (state.state, state.restarts) == ("SUCCEEDED", 1)
    assert {text for _, text in lines(events)} == {f"{len(SECRET)}"}
    assert len(lines(events)) == 6
    assert files_with_the_secret(nodes.folder) == []


@pytest.mark.parametrize("kind", ["mpi", "pytorch"])
def test_no_file_has_the_values_once_the_runners_of_a_killed_supervisor_have_ended(
    nodes: Nodes, kind: Kind
) -> None:
    job = submit(nodes.plan(shell("sleep 60", kind, env={"KEY": SECRET})), nodes.head)
    record = nodes.folder / f"node000000/.ranklift/jobs/{job}/state.json"
    until(lambda: json.loads(record.read_text())["state"] == "RUNNING")
    os.kill(json.loads(record.read_text())["supervisor"]["pid"], signal.SIGKILL)
    until(lambda: json.loads(record.read_text())["state"] == "LOST", 30)
    assert files_with_the_secret(nodes.folder) == []


def test_no_later_job_finds_the_values_of_one_that_nobody_was_left_to_end(nodes: Nodes) -> None:
    plan = nodes.plan(shell("true", env={"KEY": SECRET}))
    folder = nodes.folder / f"node000000/.ranklift/jobs/{plan.id}"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(plan.as_dict()))
    gone = {"pid": 1, "started": 1, "boot": "another"}
    (folder / "state.json").write_text(json.dumps(sample_state(plan.id, supervisor=gone)))
    assert nodes.run(shell("true"))[0].state == "SUCCEEDED"
    assert files_with_the_secret(nodes.folder) == []
