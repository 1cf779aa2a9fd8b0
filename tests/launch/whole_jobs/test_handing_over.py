"""A plan on its way to the head: there is the whole job afterwards, or none."""

from __future__ import annotations

import io
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launch.remote import cli
from launch.remote.cli import REFUSED
from launch.remote.head import supervisor
from tests.launch.remote.sample_records import sample_plan
from tests.launch.standin import Nodes, left_of, shell, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, [2])


def submitting(nodes: Nodes, *words: str) -> subprocess.Popen[bytes]:
    """The command on the head, its channel open."""
    home = nodes.folder / "node000000"
    return subprocess.Popen(
        ["python3", "-I", "-S", ".ranklift/remote/hash/__main__.py", "submit", *words],
        cwd=home,
        env=nodes.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_plan_that_was_cut_short_never_becomes_a_job(nodes: Nodes, share: float) -> None:
    data = json.dumps(nodes.plan(shell("true")).as_dict()).encode()
    message = b"%010d" % len(data) + data
    _, errors = (process := submitting(nodes)).communicate(message[: int(len(message) * share)], timeout=30)
    assert (process.returncode, errors) == (REFUSED, b"the plan was incomplete, so no job was created\n")
    assert not (nodes.folder / "node000000/.ranklift/jobs").exists()
    assert nodes.jobs() == []


def test_a_plan_that_arrived_is_a_job_although_whoever_sent_it_is_gone(nodes: Nodes) -> None:
    made = nodes.plan(shell("sleep 0.5; echo done"))
    data = json.dumps(made.as_dict()).encode()
    process = submitting(nodes, "--follow")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # nobody reads any more: the connection is closed
    process.stdin.write(b"%010d" % len(data) + data)
    process.stdin.close()
    assert process.wait(30) == 0
    process.stderr.close()
    until(lambda: [one.state for one in nodes.jobs()] == ["SUCCEEDED"], 30)
    assert left_of(made.id) == []


def test_a_head_that_dies_between_the_plan_and_the_supervisor_leaves_nothing_to_see(nodes: Nodes) -> None:
    home = nodes.folder / "node000000/.ranklift"
    made = nodes.plan(shell("true"))
    folder = home / "jobs" / made.id
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(made.as_dict()))
    assert nodes.jobs() == []
    again = nodes.run(shell("true"))[0]
    assert again.state == "SUCCEEDED"
    assert [one.job for one in nodes.jobs()] == [again.job]


def test_a_job_that_its_head_cannot_queue_has_failed_for_that(nodes: Nodes) -> None:
    made = nodes.plan(shell("true"))
    home = nodes.folder / "node000000/.ranklift"
    home.mkdir(exist_ok=True)
    shutil.copy("/bin/sleep", home / "queue.json.lock")
    data = json.dumps(made.as_dict()).encode()
    # nobody may write to a program that runs, man 2 open
    program = subprocess.Popen([home / "queue.json.lock", "60"])
    try:
        with submitting(nodes) as process:
            _, errors = process.communicate(b"%010d" % len(data) + data, timeout=30)
        until(lambda: [one.is_terminal for one in nodes.jobs()] == [True], 30)
    finally:
        program.kill()
        program.wait()
    assert (process.returncode, errors) == (0, b"")
    (job,) = nodes.jobs()
    assert (job.job, job.state) == (made.id, "FAILED")
    assert job.reason == f"the head cannot keep the job's records: Text file busy: {home}/queue.json.lock"


def test_a_job_without_a_port_has_failed_for_that(nodes: Nodes) -> None:
    with socket.create_server(("", 65535)):
        state = nodes.run(shell("true", port=65535))[0]
    assert (state.state, state.reason) == (
        "FAILED",
        "the head cannot run it: no free port from 65535 to 65535",
    )


def test_why_a_supervisor_did_not_come_up_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dies(*_: object) -> None:
        raise OSError("the supervisor did not come up")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(supervisor, "detach", dies)
    plan = json.dumps(sample_plan(nodes=[{"name": "a", "ranks": []}])).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"%010d" % len(plan) + plan)))
    assert cli.main(["submit"]) == 1
    assert capsys.readouterr().err == "the supervisor did not come up\n"
