"""A job that changes what is stored of its code or data: the next job is not started with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client import submit
from launch.client.events import Event, JobState
from launch.errors import NotPushed
from launch.job.plan import JobPlan
from launch.job.spec import Kind
from tests.launch.sealed import manifest_of, snapshot_id
from tests.launch.standin import Nodes, lines, shell

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
REWRITE = (
    "[ $NODE = node000001 ] || exit 0; cd ~/.ranklift/snapshots/{folder}; "
    "touch -r {file} stamp; chmod u+w {file}; sed -i s/hello/jello/ {file}; "
    "chmod 444 {file}; touch -r stamp {file}; rm stamp"
).replace("$NODE", "$(basename ~)")
"""As many other bytes, with times and mode as before, on one node of three."""


def pushed(nodes: Nodes, **data: str) -> str:
    """The id of data that every node was given."""
    for node in nodes.nodes:
        snapshots = nodes.folder / node.name / ".ranklift/snapshots"
        (snapshots / "data").mkdir()
        for name, text in data.items():
            (snapshots / "data" / name).write_text(text)
            (snapshots / "data" / name).chmod(0o444)
        manifest = manifest_of(snapshots / "data")
        (snapshots / snapshot_id(manifest)).symlink_to("data")
        (snapshots / f"{snapshot_id(manifest)}.manifest").write_bytes(manifest)
    return snapshot_id(manifest)


def with_snapshots(nodes: Nodes, plan: JobPlan, *ids: str) -> JobPlan:
    """The plan of a job for which these were pushed, as its head has noted."""
    known = {"code": "hash", "nodes": [node.name for node in nodes.nodes[1:]]}
    for one in ids:
        note = nodes.folder / nodes.nodes[0].name / f".ranklift/snapshots/{one}.nodes"
        note.write_text(json.dumps(known))
    return replace(plan, snapshots=ids)


def run(nodes: Nodes, plan: JobPlan) -> tuple[JobState, list[Event]]:
    events: list[Event] = []
    return submit.submit_and_follow(plan, nodes.head, events.append), events


@KINDS
def test_rewritten_code_is_found_by_the_next_job_and_pushed_again(nodes: Nodes, kind: Kind) -> None:
    nodes.code("train.py", "print('hello')\n")
    made = nodes.plan(shell("python3 train.py", kind))
    code = made.spec.snapshot
    rewrite = nodes.plan(shell(REWRITE.format(folder="code", file="train.py"), kind))
    assert run(nodes, with_snapshots(nodes, rewrite, code))[0].state == "SUCCEEDED"
    state, events = run(nodes, with_snapshots(nodes, made, code))
    assert state.reason == (
        f"no rank was started: node000001: a job changed train.py of the pushed {code} on this node: "
        "launch again, which pushes it again"
    )
    assert lines(events) == []
    with pytest.raises(NotPushed):
        submit.submit(replace(made, id="t-again", snapshots=(code,)), nodes.head)


@KINDS
def test_rewritten_data_is_found_by_the_next_job_and_pushed_again(nodes: Nodes, kind: Kind) -> None:
    data = pushed(nodes, **{"set.csv": "hello\n"})
    scripts = (REWRITE.format(folder="data", file="set.csv"), f"cat ~/.ranklift/snapshots/{data}/set.csv")
    plans = [nodes.plan(shell(script, kind)) for script in scripts]
    assert run(nodes, with_snapshots(nodes, plans[0], data))[0].state == "SUCCEEDED"
    changed = nodes.folder / "node000001/.ranklift/snapshots/data/set.csv"
    assert Path(changed).read_text() == "jello\n"
    state, events = run(nodes, with_snapshots(nodes, plans[1], data))
    assert f"node000001: a job changed set.csv of the pushed {data} on this node" in state.reason
    assert lines(events) == []
    with pytest.raises(NotPushed):
        submit.submit(replace(plans[1], id="t-again", snapshots=(data,)), nodes.head)
