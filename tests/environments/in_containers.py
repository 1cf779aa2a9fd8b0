"""Jobs on stand-in nodes whose ranks run in an image."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.environments.debian_image import VARIABLES
from tests.launch.standin import Nodes

if TYPE_CHECKING:
    from pathlib import Path

    from launch.job.plan import JobPlan
    from launch.job.spec import JobSpec
    from launch.remote.base.records import EnvironmentRecord

__all__ = ["ContainerNodes", "folder_of"]

ID = "0123456789abcdef"


@dataclass
class ContainerNodes:
    """Stand-in nodes that hold an image, for one runtime."""

    nodes: Nodes
    runtime: str

    @property
    def record(self) -> EnvironmentRecord:
        """What a plan says of the image."""
        path = f"~/.ranklift/environments/{ID}"
        return {"kind": "image", "id": ID, "path": path, "runtime": self.runtime, "title": "debian:12"}

    def put(self, name: str, source: Path) -> None:
        """Gives every node the image's configuration, and ``source`` under a name beside it."""
        for node in self.nodes.nodes:
            folder = self.nodes.folder / node.name / ".ranklift/environments" / ID
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps({"config": {"Env": VARIABLES}}))
            (folder / name).symlink_to(source)

    def plan(self, spec: JobSpec) -> JobPlan:
        """The plan of a job in the image."""
        return replace(Nodes.plan(self.nodes, spec), runs_in=self.record)


def folder_of(nodes: Nodes, place: int, job: str) -> Path:
    """A job's folder on a node."""
    return nodes.folder / nodes.nodes[place].name / ".ranklift/jobs" / job
