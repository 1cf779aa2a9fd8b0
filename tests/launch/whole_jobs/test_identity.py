"""A job with the nodes' identity, on nodes whose agent grants none: no rank starts, and the job says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.client import submit
from launch.client.events import Event
from launch.job.spec import Kind
from tests.launch.standin import Nodes, lines, shell

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

REFUSED = "the job may not use the nodes' identity here: "


@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_a_job_starts_on_no_node_where_one_has_no_agent_that_grants(nodes: Nodes, kind: Kind) -> None:
    events: list[Event] = []
    plan = replace(nodes.plan(shell("echo started", kind, identity=True)), identity="identity t\n")
    state = submit.submit_and_follow(plan, nodes.head, events.append)
    assert (state.state, lines(events)) == ("FAILED", [])
    assert f"{REFUSED}/run/ranklift/metadata: " in state.reason


@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_a_job_that_nobody_signed_starts_no_rank(nodes: Nodes, kind: Kind) -> None:
    state, events = nodes.run(shell("echo started", kind, identity=True))
    assert (state.state, lines(events)) == ("FAILED", [])
    assert f"{REFUSED}the runner of this node's first rank was not granted it" in state.reason
