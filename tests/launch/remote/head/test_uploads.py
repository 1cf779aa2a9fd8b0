"""The head's part in an upload: paths that several nodes have, and nodes that do not send."""

from __future__ import annotations

import io
import json
import resource
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.remote import cli
from launch.remote.base import timing
from launch.remote.head.uploads import PeriodicUpload, note_kept
from tests.launch.remote.data.storage_server import Storage, serve
from tests.launch.remote.data.test_upload import JOB, NODE
from tests.launch.remote.head.upload_nodes import Nodes

DONE = '{"t": "uploaded", "files": 0, "kept": 0, "bytes": 0, "errors": []}'
LISTED = '{"t": "listed"}'
EMPTY = ["sh", "-c", f"read request; echo '{LISTED}'; read names; echo '{DONE}'"]
STUCK = ["sh", "-c", f"read request; echo '{LISTED}'; exec sleep 60"]
NAMES = Nodes.names(3)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with serve(tmp_path) as served:
        yield served


@pytest.fixture
def nodes(tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(tmp_path, storage, monkeypatch)


def test_the_first_node_has_the_path_and_the_others_their_names(nodes: Nodes, storage: Storage) -> None:
    for number in range(3):
        nodes.write(number, "same", b"%d" % number)
        nodes.write(number, f"rank-{number}", b"")
    event = nodes.upload()
    base = f"results/{JOB}"
    assert (event["files"], event["errors"]) == (6, {})
    assert storage.blobs[f"{base}/outputs/same"] == b"0"
    assert storage.blobs[f"{base}/node000001/outputs/same"] == b"1"
    assert storage.blobs[f"{base}/node000002/outputs/same"] == b"2"
    assert f"{base}/outputs/rank-2" in storage.blobs
    assert nodes.events()[-1]["event"] == "upload"
    assert nodes.upload()["kept"] == 6


def test_a_node_that_is_gone_keeps_no_other_from_its_upload(nodes: Nodes, storage: Storage) -> None:
    nodes.instead[1] = ["sh", "-c", "echo No route to host >&2; exit 255"]
    for number in range(3):
        nodes.write(number, f"rank-{number}", b"")
    event = nodes.upload()
    assert event["errors"] == {"node000001": ["No route to host"]}
    assert set(storage.blobs) == {f"results/{JOB}/outputs/rank-{number}" for number in (0, 2)}


def test_what_a_lost_node_has_sent_is_not_replaced_by_another_nodes_file(
    nodes: Nodes, storage: Storage
) -> None:
    for number in (1, 2):
        nodes.write(number, "checkpoint", b"%d" % number)
    nodes.upload()
    nodes.instead[1] = ["sh", "-c", "echo No route to host >&2; exit 255"]
    nodes.write(2, "checkpoint", b"newer")
    nodes.upload()
    base = f"results/{JOB}"
    assert storage.blobs == {
        f"{base}/outputs/checkpoint": b"1",
        f"{base}/node000002/outputs/checkpoint": b"newer",
    }


def test_a_node_in_place_of_another_takes_over_its_paths(nodes: Nodes, storage: Storage) -> None:
    nodes.write(1, "checkpoint", b"1")
    nodes.upload()
    nodes.plan["nodes"][1]["name"] = "node000007"
    nodes.write(1, "checkpoint", b"newer")
    nodes.upload()
    assert storage.blobs == {f"results/{JOB}/outputs/checkpoint": b"newer"}


def test_a_silent_node_is_given_up(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "COLLECT_SILENT_S", 1.5)
    nodes.instead[2] = ["sleep", "60"]
    nodes.write(0, "a", b"")
    event = nodes.upload()
    assert event["errors"] == {"node000002": ["sent nothing for 1.5 s"]}
    assert event["files"] == 1


def test_a_node_that_falls_silent_while_it_sends_is_given_up(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "COLLECT_SILENT_S", 1.5)
    nodes.instead[2] = STUCK
    assert nodes.upload()["errors"] == {"node000002": ["sent nothing for 1.5 s"]}


def test_what_a_nodes_shell_prints_is_not_its_answer(nodes: Nodes, storage: Storage) -> None:
    command = shlex.join([sys.executable, "-c", NODE, JOB])
    nodes.instead[1] = ["sh", "-c", f"echo Welcome to node000001; exec {command}"]
    nodes.write(1, "rank-1", b"")
    assert nodes.upload()["errors"] == {}
    assert f"results/{JOB}/outputs/rank-1" in storage.blobs


def test_a_cancel_ends_it(nodes: Nodes) -> None:
    nodes.instead[0] = STUCK
    until = time.monotonic() + 2
    event = nodes.upload(is_cancelled=lambda: time.monotonic() > until)
    assert event["errors"] == {"node000000": ["the upload was cancelled"]}


def test_a_node_that_has_lost_its_outputs_leaves_the_job_uncollected(nodes: Nodes) -> None:
    shutil.rmtree(nodes.home(1) / ".ranklift/jobs" / JOB)
    (why,) = nodes.upload(slots={})["errors"]["node000001"]
    assert why.startswith(f"~/.ranklift/jobs/{JOB} is not there")


def test_only_a_whole_in_storage_counts_as_collected(nodes: Nodes) -> None:
    nodes.write(0, "a", b"")
    event = nodes.upload()
    note = nodes.home(0) / ".ranklift/collected" / JOB
    record = Path(nodes.folder.file("state.json"))
    record.touch()
    note_kept(JOB, [{"name": "model", "url": "https://h/results/m"}], event)
    note_kept(JOB, nodes.uploads, {**event, "errors": {"node000001": ["x"]}})
    assert not note.exists()
    note_kept(JOB, nodes.uploads, event)
    assert note.stat().st_mtime_ns > record.stat().st_mtime_ns


LACKS = f"not all of its outputs are in storage, `fab upload {JOB}` goes on: node000001: AuthorizationFailure"


@pytest.mark.parametrize(
    ("before", "status", "reason", "after"),
    [
        ("INCOMPLETE", 74, LACKS, ("SUCCEEDED", 0, "outputs in {url}")),
        (
            "INCOMPLETE",
            74,
            f"without node000002; {LACKS}",
            ("SUCCEEDED", 0, "without node000002; outputs in {url}"),
        ),
        ("FAILED", 3, f"rank 0 failed; {LACKS}", ("FAILED", 3, "rank 0 failed; outputs in {url}")),
        ("FAILED", 3, "rank 0 failed", ("FAILED", 3, "rank 0 failed")),
        ("CANCELLED", 130, "", ("CANCELLED", 130, "")),
    ],
    ids=["incomplete", "incomplete with a remark", "failed", "failed and uploaded", "cancelled"],
)
class TestAnUploadByHand:
    """Of a job that has ended."""

    def test_makes_a_job_succeed_that_lacked_nothing_else(
        self, nodes: Nodes, before: str, status: int, reason: str, after: tuple[str, int, str]
    ) -> None:
        path = end_as(nodes, before, status, reason)
        ended = path.stat().st_mtime_ns
        nodes.write(0, "model")
        assert cli.main(["upload-job", JOB]) == 0
        found = nodes.folder.state()
        shown = found["reason"].replace(nodes.uploads[0]["url"], "{url}")
        assert (found["state"], found["exit_status"], shown) == after
        assert path.stat().st_mtime_ns == ended
        assert (nodes.home(0) / ".ranklift/collected" / JOB).exists()

    def test_changes_nothing_while_something_is_missing(
        self, nodes: Nodes, before: str, status: int, reason: str, after: tuple[str, int, str]
    ) -> None:
        path = end_as(nodes, before, status, reason)
        record = path.read_text()
        (nodes.home(0) / ".ranklift/jobs" / JOB / "outputs/latest").symlink_to("model")
        assert cli.main(["upload-job", JOB]) == 0
        assert path.read_text() == record


def test_an_upload_of_a_job_that_runs_does_not_end_it(nodes: Nodes) -> None:
    nodes.write(0, "checkpoint")
    assert cli.main(["upload-job", JOB]) == 0
    assert nodes.folder.state()["state"] == "RUNNING"


def end_as(nodes: Nodes, state: str, status: int, reason: str) -> Path:
    """Let the job have ended; return the path of its record."""
    path = Path(nodes.folder.file("state.json"))
    fields = {"state": state, "exit_status": status, "reason": reason, "supervisor": None}
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return path


def test_a_job_that_runs_is_uploaded_every_so_often(nodes: Nodes, storage: Storage) -> None:
    nodes.plan["upload_every_s"] = 0.1
    with PeriodicUpload(nodes.folder, nodes.plan):
        nodes.write(0, "checkpoint", b"1")
        until = time.monotonic() + 20
        while f"results/{JOB}/outputs/checkpoint" not in storage.blobs:
            assert time.monotonic() < until
            time.sleep(0.05)
    with PeriodicUpload(nodes.folder, {**nodes.plan, "upload_every_s": None}):
        pass


def test_uploads_of_a_running_job_need_no_pipes_of_its_supervisor(nodes: Nodes) -> None:
    count = 40
    node = nodes.plan["nodes"][0]
    nodes.plan["nodes"] = [{**node, "name": f"node{number:06}"} for number in range(count)]
    Path(nodes.folder.file("job.json")).write_text(json.dumps(nodes.plan))
    nodes.instead = dict.fromkeys(range(count), EMPTY)
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + count, most))
    try:
        with PeriodicUpload(nodes.folder, {**nodes.plan, "upload_every_s": 0.1}):
            (event,) = wait_for_events(nodes, 1)[:1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
    assert event["errors"] == {}


def test_an_upload_whose_process_is_killed_is_recorded(nodes: Nodes) -> None:
    nodes.head = ["sh", "-c", "kill -9 $$"]
    with PeriodicUpload(nodes.folder, {**nodes.plan, "upload_every_s": 0.1}):
        event = wait_for_events(nodes, 1)[0]
    assert event["errors"] == {"node000000": ["its process ended with exit status -9"]}


def wait_for_events(nodes: Nodes, count: int) -> list[dict[str, Any]]:
    until = time.monotonic() + 30
    while not Path(nodes.folder.file("events.jsonl")).exists() or len(nodes.events()) < count:
        assert time.monotonic() < until
        time.sleep(0.05)
    return nodes.events()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({NAMES[0]: [1, 2], NAMES[1]: []}, [([1, 2], 2), ([3, 2, 1, 0], 1), ([3, 2, 1, 0], 1)]),
        ({}, [([3, 2, 1, 0], 1)] * 3),
        (None, [([], 0)] * 3),
    ],
    ids=["those of the job", "any one by hand", "those of its runners"],
)
def test_nodes_hold_slots_while_they_upload(
    nodes: Nodes, given: dict[str, list[int]] | None, asked: list[tuple[list[int], int]]
) -> None:
    script = f"read request; echo \"$request\" > ~/request; echo '{LISTED}'; read names; echo '{DONE}'"
    nodes.instead = {number: ["sh", "-c", script] for number in range(3)}
    nodes.upload(slots=given)
    found = [json.loads((nodes.home(number) / "request").read_text()) for number in range(3)]
    assert [(one["slots"], one["need"]) for one in found] == asked


def test_by_hand_the_place_is_that_of_the_job_file(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack without storage sends no place in its request."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[]\n")))
    nodes.write(0, "a", b"")
    assert cli.main(["upload-job", JOB]) == 0
    assert nodes.events()[-1]["urls"] == {"": nodes.uploads[0]["url"]}


def test_by_hand_a_job_without_any_place_is_refused(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(nodes.folder.file("job.json")).write_text(json.dumps({**nodes.plan, "uploads": []}))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[]\n")))
    assert cli.main(["upload-job", JOB]) == cli.REFUSED
    assert f"job {JOB} has nowhere to send its outputs: " in capsys.readouterr().err
