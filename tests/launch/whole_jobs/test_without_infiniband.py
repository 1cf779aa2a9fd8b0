"""A job of a size with InfiniBand on nodes that have none: this machine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client import submit
from launch.client.events import JobState
from launch.job.spec import JobSpec, Kind
from tests.launch.standin import Nodes

pytestmark = pytest.mark.skipif(
    Path("/sys/class/infiniband").exists(), reason="this machine has RDMA devices"
)

BOTH = pytest.mark.parametrize("kind", ["pytorch", "mpi"])


def run(nodes: Nodes, kind: Kind, env: Mapping[str, str]) -> JobState:
    planned = nodes.plan(JobSpec("t", kind, ("true",), env=dict(env)))
    return submit.submit_and_follow(replace(planned, infiniband=True), nodes.head, lambda _: None)


@BOTH
def test_it_starts_no_rank_and_names_every_node_with_what_it_has(nodes: Nodes, kind: Kind) -> None:
    state = run(nodes, kind, {})
    assert state.state == "FAILED"
    assert (
        "no active InfiniBand port in /sys/class/infiniband, and its VM size has InfiniBand" in state.reason
    )
    assert "found: no device; `fab replace` the node" in state.reason
    assert state.reason.startswith("no rank was started: node[000000-")


@BOTH
def test_it_runs_where_that_is_wanted(nodes: Nodes, kind: Kind) -> None:
    assert run(nodes, kind, {"NCCL_IB_DISABLE": "1"}).state == "SUCCEEDED"
