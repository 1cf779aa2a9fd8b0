"""The head's part in an upload: paths that several nodes have, and nodes that do not send."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base import job_dir, timing
from launch.remote.base.records import Plan, UploadEvent, UploadRecord
from launch.remote.head import uploads
from launch.remote.head.uploads import PeriodicUpload, note_kept, upload_outputs
from tests.launch.remote.data.storage_server import Storage, serve
from tests.launch.remote.data.test_upload import JOB, NODE, ROOT
from tests.launch.remote.sample_records import sample_plan

STUCK = ["sh", "-c", 'read request; echo \'{"t": "files", "files": []}\'; exec sleep 60']
NAMES = ["node000000", "node000001", "node000002"]


class Nodes:
    """Homes of nodes, each with its part of the job; the first is the head's."""

    def __init__(self, folder: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._storage = folder, storage
        self.instead: dict[int, list[str]] = {}
        """Commands of nodes that do something else."""
        monkeypatch.setenv("HOME", str(self.home(0)))
        monkeypatch.setattr(uploads, "start_on_node", self._start)
        for number in range(len(NAMES)):
            (self.home(number) / ".ranklift/jobs" / JOB / "outputs").mkdir(parents=True)
        nodes = [{"name": name} for name in NAMES]
        self.uploads: list[UploadRecord] = [{"name": "", "url": f"{storage.url}/results/{JOB}"}]
        self.plan = sample_plan(JOB, nodes=nodes, uploads=self.uploads)
        self.folder = job_dir.Folder(JOB)
        storage.containers.add("results")

    def home(self, number: int) -> Path:
        return self._folder / NAMES[number]

    def write(self, number: int, name: str, content: bytes = b"") -> None:
        (self.home(number) / ".ranklift/jobs" / JOB / "outputs" / name).write_bytes(content)

    def _start(self, _plan: Plan, index: int, _command: str, **pipes: Any) -> subprocess.Popen[bytes]:
        env = {**os.environ, "HOME": str(self.home(index)), "SSL_CERT_FILE": str(self._storage.certificate)}
        argv = self.instead.get(index, [sys.executable, "-c", NODE, JOB])
        return subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, **pipes)

    def upload(self, **more: Any) -> UploadEvent:
        return upload_outputs(self.folder, self.plan, self.uploads, more.get("is_cancelled", lambda: False))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.folder.file("events.jsonl")).read_text().splitlines()]


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
