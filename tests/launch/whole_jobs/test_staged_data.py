"""Jobs that read staged data: they start where every node has them, and keep them while they run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client import submit
from launch.client.events import Event, JobState
from launch.errors import NotPushed
from launch.remote.base.records import DataRecord
from launch.remote.store.store import DATA, Store
from tests.launch.standin import Nodes, left_of, lines, shell

pytestmark = pytest.mark.usefixtures("nothing_runs_on")
ID = "0123456789abcdef"
RECORD: DataRecord = {
    "name": "words",
    "id": ID,
    "path": f"~/.ranklift/data/{ID}",
    "bytes": 1,
    "files": 1,
    "url": "https://acme.blob.core.windows.net/data/words",
    "seconds": 0.0,
}


@pytest.fixture
def staged(nodes: Nodes) -> Nodes:
    """Nodes that hold the data, which their head knows."""
    for node in nodes.nodes:
        store = Store(str(nodes.folder / node.name / ".ranklift"), DATA)
        Path(store.path(ID)).mkdir()
        (Path(store.path(ID)) / "word").write_text("hello")
        Path(store.path(ID) + ".manifest").write_text("{}")
    head_of(nodes).confirm(ID, "", [node.name for node in nodes.nodes])
    return nodes


def head_of(nodes: Nodes) -> Store:
    return Store(str(nodes.folder / nodes.nodes[0].name / ".ranklift"), DATA)


def run(nodes: Nodes, script: str) -> tuple[JobState, list[Event]]:
    events: list[Event] = []
    planned = replace(nodes.plan(shell(script)), data=(RECORD,))
    return submit.submit_and_follow(planned, nodes.head, events.append), events


def test_ranks_read_the_data_of_their_node(staged: Nodes) -> None:
    state, events = run(staged, f"cat ~/.ranklift/data/{ID}/word")
    assert state.state == "SUCCEEDED", state.reason
    assert sorted(lines(events)) == [(0, "hello"), (1, "hello"), (2, "hello")]


def test_a_job_whose_nodes_are_not_known_to_hold_the_data_is_not_made(nodes: Nodes) -> None:
    with pytest.raises(NotPushed, match=f"not every node holds {ID}"):
        run(nodes, "true")
    assert nodes.jobs() == []


def test_a_node_that_lost_the_data_is_named_and_asked_by_the_next_launch(staged: Nodes) -> None:
    lost = staged.folder / "node000001/.ranklift/data" / ID
    subprocess.run(["rm", "-r", lost, f"{lost}.manifest"], check=True)
    state, _ = run(staged, "true")
    assert state.state == "FAILED"
    assert f"data {ID} is not on this node: its local disk was emptied" in state.reason
    assert "node000001" in state.reason
    assert head_of(staged).confirmed(ID, "") == []
    assert left_of(state.job) == []


def test_data_that_ranks_read_were_used_last(staged: Nodes) -> None:
    manifests = [staged.folder / node.name / f".ranklift/data/{ID}.manifest" for node in staged.nodes]
    for manifest in manifests:
        os.utime(manifest, (0, 0))
    state, _ = run(staged, "true")
    assert state.state == "SUCCEEDED", state.reason
    assert all(manifest.stat().st_mtime > 0 for manifest in manifests)


def test_ranks_hold_the_data(staged: Nodes) -> None:
    manifest = staged.folder / "node000001/.ranklift/data" / f"{ID}.manifest"
    held = f"flock --nonblock --exclusive {manifest} true; echo $?"
    state, events = run(staged, held)
    assert state.state == "SUCCEEDED", state.reason
    assert [text.strip() for rank, text in lines(events) if rank == 1] == ["1"]
    assert subprocess.run(["flock", "-n", manifest, "true"], check=False).returncode == 0
