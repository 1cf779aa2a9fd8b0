"""The head's answer about a job's samples, as the operator's side reads it."""

from __future__ import annotations

import json
import time

import pytest

from launch.client.samples import job_samples
from launch.errors import NoSuchJob
from launch.remote.sample import stored_samples
from tests.launch.remote.sample_records import sample_state
from tests.launch.standin import Nodes, shell

JOB = "t-20260301-090507-0f3a"


@pytest.fixture
def nodes(nodes: Nodes) -> Nodes:
    """Nodes whose head has the records of a job with one rank that went silent."""
    folder = nodes.folder / "node000000/.ranklift/jobs" / JOB
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(nodes.plan(shell("true")).as_dict()))
    (folder / "state.json").write_text(json.dumps(sample_state(JOB)))
    now = time.time()
    node = dict.fromkeys(("cpu_permille", "memory_used", "memory_total", "net_rx", "net_tx"), 1)
    rank = {"time": now, "node": "node000000", "cpu_permille": 0, "memory": 0, "metrics": {}, "ended": False}
    live = {
        "time": now,
        "attempt": 0,
        "nodes": {"node000000": {**node, "ib_rx": 0, "ib_tx": 0, "gpus": [], "time": now}},
        "ranks": {"0": {**rank, "silent_since": now - 50}},
    }
    steps = dict.fromkeys(("ended", "first_step", "first_step_at", "last_step", "last_step_at"))
    steps |= dict.fromkeys(("epoch_steps", "first_epoch", "last_epoch"))
    counts = {"has_epochs": False, "checkpoints": 0, "checkpoint_s": 0.0}
    attempt = {**steps, **counts, "attempt": 0, "started": now - 60}
    history = {"start": now - 60, "interval_s": 2.0, "nodes": {}, "attempts": [attempt]}
    (folder / stored_samples.LIVE).write_text(json.dumps(live))
    (folder / stored_samples.HISTORY).write_text(json.dumps(history))
    return nodes


def change(nodes: Nodes, **fields: object) -> None:
    """Changes the job's state."""
    file = nodes.folder / "node000000/.ranklift/jobs" / JOB / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_job_that_has_ended_keeps_its_samples_and_has_no_flags(nodes: Nodes) -> None:
    change(nodes, state="SUCCEEDED")
    found = job_samples(JOB, nodes.head, "hash")
    assert found.state.state == "SUCCEEDED"
    assert found.live is not None
    assert found.history is not None
    assert found.flags == ()
    assert abs(found.now - time.time()) < 10


def test_samples_of_the_launch_before_are_not_the_newest(nodes: Nodes) -> None:
    change(nodes, state="FAILED", restarts=1)
    found = job_samples(JOB, nodes.head, "hash")
    assert found.live is None
    assert found.history is not None


def test_a_job_that_the_head_does_not_have_is_refused(nodes: Nodes) -> None:
    with pytest.raises(NoSuchJob):
        job_samples("t-20260301-090507-ffff", nodes.head, "hash")
