"""An operator who has environments made on the nodes of a cluster without a network."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.client.environments import Made, make_environment
from launch.code.node_code import remote_id
from launch.code.push import push
from launch.code.snapshot import Snapshot, plan_data, plan_snapshot
from launch.environment.environment_request import request_of
from launch.environment.environment_spec import PythonEnvironment
from tests.launch.cluster import ORDINARY, Cluster, LocalHost, Node
from tests.launch.wheels import make_wheel


class Desk:
    """An operator with a folder of wheels and a cluster that has the node code."""

    def __init__(self, folder: Path, size: int = 4) -> None:
        self.cluster = Cluster(folder / "nodes", size)
        self.wheels = folder / "wheels"
        make_wheel(self.wheels, "toolkit", "1.2", {"toolkit/__init__.py": b"ANSWER = 42\n"})
        code = folder / "code"
        code.mkdir()
        (code / "train.py").touch()
        push(plan_snapshot(code), self.cluster.head, self.cluster.nodes, ssh=self.cluster.ssh)
        self.sent: list[str] = []
        self.sent_to = self.cluster.nodes[0]
        self.shown: list[str] = []

    @property
    def snapshot(self) -> Snapshot:
        return plan_data(self.wheels)

    def send(self, snapshots: Sequence[str]) -> None:
        self.sent += snapshots
        push(self.snapshot, LocalHost(self.sent_to), [self.sent_to], ssh=self.cluster.ssh)

    def make(
        self,
        requirements: str = "toolkit",
        python: str = "",
        head: int = 0,
        *,
        sends: bool = True,
        on: Sequence[int] = range(4),
        fetch: Callable[[str], object] | None = None,
    ) -> Made:
        asked = PythonEnvironment(f"{requirements}\n--no-index", python=python, title="requirements.txt")
        request = request_of(asked, [], wheels=[self.snapshot.id] if sends else [])
        assert request is not None
        there = [self.cluster.nodes[number] for number in on]
        nodes = [*there[head:], *there[:head]]
        self.sent_to = nodes[0]
        host = self.cluster.head if nodes[0] is self.cluster.nodes[0] else LocalHost(nodes[0])
        return make_environment(
            request,
            host,
            nodes,
            remote_id(),
            self.send,
            lambda text, *_: self.shown.append(text),
            fetch=fetch,
            ssh=self.cluster.ssh,
        )


def environments(node: Node) -> Path:
    return node.home / ".ranklift" / "environments"


def folder(node: Node, made: Made) -> Path:
    return environments(node) / made.record["id"]


def left(node: Node) -> set[str]:
    """What a node has of environments, beside locks."""
    there = environments(node)
    return {path.name for path in there.iterdir() if "lock" not in path.name} if there.exists() else set()


def run_python(node: Node, made: Made, line: str, *options: str) -> str:
    argv = [*ORDINARY, str(folder(node, made) / "bin" / "python"), *options, "-c", line]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env={}).stdout.strip()
