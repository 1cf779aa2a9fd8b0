"""What nodes are busy with is what they say themselves, and what the heads say of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.inventory import Inventory, Node
from infra.scale_plan import Use
from launch.code.node_code import remote_id
from launch.errors import NodeUnreachable
from launch.host import Completed
from launch.remote.base import frames
from playbooks.nodes.busy import ASK_DRAIN, COLLECTED, uses
from playbooks.project import Stack
from playbooks.ssh import connection
from playbooks.stack.losses import find_losses
from tests.launch.remote.sample_records import sample_state

STATE = sample_state(ranks=8)

DRAIN = "drained 2026-03-01T09:05:07Z by ann on desk"
LEFT = "1 file, 8 B, on node000009: last.ckpt (8 B)"
OWN, OTHERS = (f"`fab scale 3` of {who} on desk (process 7)" for who in ("me", "ann"))


def node(number: int, state: str = "running") -> Node:
    return Node(f"node{number:06x}", number, f"10.0.0.{4 + number}", "192.0.2.1", 50000 + number, 8, state)


class Double:
    """A node with these jobs on it; None: it does not answer."""

    def __init__(self, name: str, its: dict[str, Any] | None) -> None:
        self.name, self._its = name, its

    def __enter__(self) -> Double:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        if self._its is None:
            raise NodeUnreachable(self.name, "no route to host")
        if argv[-1] == ASK_DRAIN:
            drain = self._its.get("drain", b"")
            return Completed(0 if drain else 1, drain, b"")
        if argv[0] == "sh" and COLLECTED in argv[2]:
            return Completed(0, self._its["collected"], b"")
        if argv[0] == "sh":
            return Completed(0, b"" if self._its == {} else remote_id().encode(), b"")
        if argv[-1] == "list":
            answer = {"jobs": self._its.get("jobs", []), "left_out": 0}
            return Completed(0, frames.frame(frames.STATE, json.dumps(answer).encode()), b"")
        if argv[-1] == "left":
            largest = [["last.ckpt", 8]]
            left = {
                job: {"files": 1, "bytes": 8, "largest": largest, "whole": True}
                for job in self._its.get("left", [])
            }
            return Completed(0, frames.frame(frames.STATE, json.dumps({"jobs": left}).encode()), b"")
        assert argv[-2:] == ["slots", "8"], argv
        return Completed(0, json.dumps(self._its.get("slots", [])).encode(), b"")


def connect(monkeypatch: pytest.MonkeyPatch, there: Mapping[str, dict[str, Any] | None]) -> None:
    """Have the nodes of ``there`` answer, each by what is on it."""

    @contextmanager
    def cluster(*_: object) -> Any:
        class Hosts:
            def host(self, which: Node) -> Double:
                return Double(which.name, there[which.name])

        yield Hosts()

    monkeypatch.setattr(connection, "Cluster", cluster)


def test_a_node_is_busy_for_its_head_its_slots_and_all_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = {**STATE, "job": "running", "state": "RUNNING", "nodes": ["node000000", "node000002"]}
    queued = {**STATE, "job": "queued", "state": "QUEUED", "nodes": ["node000002", "node000005"]}
    ended = {**STATE, "job": "ended", "state": "FAILED", "nodes": ["node000000", "node000002", "node000009"]}
    collected = {**ended, "job": "collected"}
    other = {**STATE, "job": "other", "state": "SUCCEEDED", "nodes": ["node000004", "node000005"]}
    there: dict[str, dict[str, Any] | None] = {
        "node000000": {
            "jobs": [running, queued, ended, collected],
            "collected": b"collected\ncollected.work\n",
            "left": ["running"],
        },
        "node000001": None,
        "node000002": {"slots": [[0, "running"], [1, "other"]]},
        "node000004": {},
        "node000005": {"jobs": [other], "collected": b""},
        "node000006": {"slots": [[0, OWN], [1, OWN]]},
        "node000007": {"slots": [[0, OTHERS]]},
        "node000008": {"slots": [[0, "running"], [1, DRAIN]], "drain": f"{DRAIN}\n".encode()},
        "node000009": {"drain": f"{DRAIN}\n".encode(), "left": ["collected", "ended", "running"]},
    }

    connect(monkeypatch, there)
    nodes = (
        node(0),
        node(1),
        node(2),
        node(3, "stopped"),
        node(4),
        node(5),
        node(6),
        node(7),
        node(8),
        node(9),
    )
    found = uses(Stack("dev", tmp_path, {}), Inventory("dev", "size", "place", "me", nodes), OWN)
    assert found == {
        "node000000": Use(("running", "queued"), 2, ("ended",)),
        "node000001": Use(unknown="no route to host"),
        "node000002": Use(("running", "other", "queued"), uncollected=("ended",), held=("other",)),
        "node000003": Use(dead=True),
        "node000004": Use(uncollected=("other",)),
        "node000005": Use(("queued",), 1, ("other",)),
        "node000006": Use(),
        "node000007": Use(removal=OTHERS),
        "node000008": Use(("running",), held=("running",), drain=DRAIN),
        "node000009": Use(uncollected=("ended",), drain=DRAIN, left=(("ended", LEFT),)),
    }
    idle = [name for name, use in found.items() if use.is_idle]
    assert idle == ["node000003", "node000004", "node000006", "node000009"]
    assert str(found["node000009"]) == f"it is {DRAIN}"
    assert str(found["node000007"]) == f"it is being removed by {OTHERS}"


def test_of_a_drain_a_regular_file_is_read_and_never_a_pipe(tmp_path: Path) -> None:
    def said() -> bytes:
        return subprocess.run(
            ["sh", "-c", ASK_DRAIN], cwd=tmp_path, capture_output=True, check=True, timeout=60
        ).stdout

    (tmp_path / ".ranklift").mkdir()
    assert said() == b""
    drained = tmp_path / ".ranklift/drained"
    drained.write_text(DRAIN * 1000)
    assert said() == (DRAIN * 1000).encode()[:4096]
    drained.unlink()
    os.mkfifo(drained)
    assert said() == b""


def test_of_a_head_that_lists_another_heads_job_nothing_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = {**STATE, "job": "victim", "state": "RUNNING"}
    there: dict[str, dict[str, Any]] = {
        "node000000": {"jobs": [{**victim, "nodes": ["node000000"]}]},
        "node000001": {"jobs": [{**victim, "nodes": ["node000001", "node000002"]}]},
        "node000002": {"jobs": []},
    }

    connect(monkeypatch, {name: {"collected": b"", **its} for name, its in there.items()})
    stack = Stack("dev", tmp_path, {})
    stack.jobs.mkdir(parents=True)
    (stack.jobs / "victim.json").write_text('{"head": "node000001"}')
    found = uses(stack, Inventory("dev", "size", "place", "me", (node(0), node(1), node(2))), OWN)
    assert found["node000000"].jobs == ()
    assert "it lists job victim, whose head is node000001" in found["node000000"].unknown
    assert found["node000002"].jobs == ("victim",)


@pytest.mark.parametrize("noted", [True, False])
def test_another_node_cannot_mark_the_files_of_a_job_as_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, noted: bool
) -> None:
    """A job there writes the mark, and a record of the job so that it is listed."""
    ended = {**STATE, "job": "victim", "state": "SUCCEEDED", "nodes": ["node000001"]}
    there: dict[str, dict[str, Any]] = {
        "node000000": {"jobs": [{**ended, "nodes": ["node000000"]}], "collected": b"victim\nvictim.work\n"},
        "node000001": {"jobs": [ended], "collected": b"victim\n", "left": ["victim"]},
        "node000002": {"jobs": [{**ended, "job": "other"}], "collected": b"victim.work\nother\n"},
    }

    connect(monkeypatch, there)
    stack = Stack("dev", tmp_path, {})
    stack.jobs.mkdir(parents=True)
    if noted:
        (stack.jobs / "victim.json").write_text('{"head": "node000001"}')
    inventory = Inventory("dev", "size", "place", "me", (node(0), node(1), node(2)))
    files = LEFT.replace("000009", "000001")
    assert uses(stack, inventory, OWN)["node000001"].left == (("victim", files),)
    assert {job: str(left) for job, left in find_losses(stack, inventory).left.items()} == {"victim": files}
