"""Stand-in nodes whose jobs run in an image."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch.job.plan import JobPlan
from launch.job.spec import JobSpec
from launch.remote.base.records import BARE, EnvironmentRecord
from tests.environments.debian_image import VARIABLES
from tests.launch.standin import Nodes, left_of

__all__ = ["ID", "TAG", "ContainerNodes", "assert_nothing_left", "record", "runners_of"]

ID = "0123456789abcdef"
TAG = f"ranklift/{ID}"


def record(runtime: str, name: str = ID) -> EnvironmentRecord:
    """What a plan says of an image."""
    path = f"~/.ranklift/environments/{name}"
    return {"kind": "image", "id": name, "path": path, "runtime": runtime, "title": "debian:12"}


class ContainerNodes(Nodes):
    """Stand-in nodes that hold an image, for one runtime; ``in_image`` is False for bare jobs there."""

    def __init__(self, folder: Path, slots: Sequence[int], runtime: str) -> None:
        super().__init__(folder, slots)
        self.runtime, self.in_image = runtime, True

    def image(self, place: int) -> Path:
        """The image's folder on a node."""
        return self.folder / self.nodes[place].name / ".ranklift/environments" / ID

    def put(self, name: str, source: Path) -> None:
        """Gives every node the image's configuration, and ``source`` beside it; the head notes that."""
        known = {"code": "hash", "nodes": [node.name for node in self.nodes]}
        for place in range(len(self.nodes)):
            folder = self.image(place)
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps({"config": {"Env": VARIABLES}}))
            (folder / name).symlink_to(source)
            folder.with_suffix(".manifest").write_text("[]")
            folder.with_suffix(".nodes").write_text(json.dumps(known))

    def set_variables(self, **variables: str) -> None:
        """Changes what the image sets, on every node."""
        given = {**dict(one.split("=", 1) for one in VARIABLES), **variables}
        for place in range(len(self.nodes)):
            config = {"config": {"Env": [f"{name}={value}" for name, value in given.items()]}}
            (self.image(place) / "config.json").write_text(json.dumps(config))

    def plan(self, spec: JobSpec) -> JobPlan:
        """The plan of a job in the image."""
        return replace(super().plan(spec), runs_in=record(self.runtime) if self.in_image else BARE)

    def job_folder(self, place: int, job: str) -> Path:
        """A job's folder on a node."""
        return self.folder / self.nodes[place].name / ".ranklift/jobs" / job


def runners_of(job: str) -> list[int]:
    """Runners of a job, by the file that each has open."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            is_runner = b"node" in words or b"rank" in words
            folders = [str(one.readlink()) for one in (entry / "fd").iterdir()] if is_runner else []
        except OSError:
            continue
        if any(f"/jobs/{job}/" in one for one in folders):
            found.append(int(entry.name))
    return found


def assert_nothing_left(job: str) -> None:
    """Find no process of the job, by its environment or by its working folder; kill what is there."""
    left = left_of(job)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"/jobs/{job}/" in f"{(entry / 'cwd').readlink()}/":
                left.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
    assert left == []
