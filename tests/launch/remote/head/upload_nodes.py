"""Nodes that upload what a job left, as processes of this machine with a home each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base import job_dir, processes
from launch.remote.base.records import Plan, UploadEvent, UploadRecord
from launch.remote.head import uploads
from launch.remote.head.uploads import upload_outputs
from tests.launch.remote.data.storage_server import Storage
from tests.launch.remote.data.test_upload import JOB, NODE, ROOT
from tests.launch.remote.sample_records import sample_plan

__all__ = ["Nodes"]

HEAD = """
import json, os, subprocess, sys
from launch.remote import cli
from launch.remote.head import uploads
nodes = json.loads(os.environ["NODES"])
def start(plan, index, command, **pipes):
    env = {**os.environ, "HOME": nodes[index]["home"]}
    return subprocess.Popen(nodes[index]["argv"], env=env, stdout=subprocess.PIPE, **pipes)
uploads.start_on_node = start
sys.exit(cli.main(["upload-job", sys.argv[1]]))
"""
"""The head's command, with nodes of this test."""


class Nodes:
    """Homes of nodes, each with its part of the job; the first is the head's."""

    def __init__(
        self, folder: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch, count: int = 3
    ) -> None:
        self._folder, self._storage = folder, storage
        self.instead: dict[int, list[str]] = {}
        """Commands of nodes that do something else."""
        self.head = [sys.executable, "-c", HEAD]
        monkeypatch.setenv("HOME", str(self.home(0)))
        monkeypatch.setattr(uploads, "start_on_node", self._start)
        for number in range(count):
            (self.home(number) / ".ranklift/jobs" / JOB / "outputs").mkdir(parents=True)
        nodes = [{"name": name, "ranks": [], "reserve": 1, "slots": 4} for name in self.names(count)]
        self.uploads: list[UploadRecord] = [{"name": "", "url": f"{storage.url}/results/{JOB}"}]
        self.plan = sample_plan(JOB, nodes=nodes, uploads=self.uploads)
        self.folder = job_dir.Folder(JOB)
        Path(self.folder.file("job.json")).write_text(json.dumps(self.plan))
        state = job_dir.first_state(JOB, self.plan, 0.0, processes.identity(os.getpid()))
        Path(self.folder.file("state.json")).write_text(json.dumps({**state, "state": "RUNNING"}))
        storage.containers.add("results")

    @staticmethod
    def names(count: int) -> list[str]:
        return [f"node{number:06}" for number in range(count)]

    def home(self, number: int) -> Path:
        return self._folder / f"node{number:06}"

    def write(self, number: int, name: str, content: bytes = b"") -> None:
        (self.home(number) / ".ranklift/jobs" / JOB / "outputs" / name).write_bytes(content)

    def _start(self, _plan: Plan, index: int, command: str, **pipes: Any) -> subprocess.Popen[bytes]:
        env = {**os.environ, "HOME": str(self.home(index)), "SSL_CERT_FILE": str(self._storage.certificate)}
        argv = self._argv(index)
        if command.startswith("upload-job"):
            count = range(len(self.plan["nodes"]))
            found = [{"home": str(self.home(number)), "argv": self._argv(number)} for number in count]
            argv, env["NODES"] = [*self.head, JOB], json.dumps(found)
        return subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, **pipes)

    def _argv(self, index: int) -> list[str]:
        return self.instead.get(index, [sys.executable, "-c", NODE, JOB])

    def upload(
        self, is_cancelled: Callable[[], bool] = lambda: False, slots: dict[str, list[int]] | None = None
    ) -> UploadEvent:
        return upload_outputs(self.folder, self.plan, self.uploads, is_cancelled, slots)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.folder.file("events.jsonl")).read_text().splitlines()]
