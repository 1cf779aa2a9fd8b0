"""Jobs on nodes that are looked at before their ranks start: this machine's, held to promises of a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launch.client import query, submit
from launch.client.events import LogLine
from launch.job.spec import JobSpec
from tests.launch.standin import Nodes

if TYPE_CHECKING:
    from launch.client.query import JobReport
    from launch.remote.base.health_records import HealthMode, Promise

CAPABLE: Promise = {
    "size": "Toy",
    "hcas": 0,
    "gpus": 0,
    "memory_gib": 1,
    "sources": {"memory_gib": "this test"},
}
LARGE: Promise = {**CAPABLE, "memory_gib": 1 << 20}
BOTH = pytest.mark.parametrize("kind", ["pytorch", "mpi"])


def run(
    nodes: Nodes, kind: str, promise: Promise, mode: HealthMode, **env: str
) -> tuple[JobReport, list[str]]:
    """A job of one rank a node, as its head reports it, and the launcher's lines."""
    spec = JobSpec("t", kind, ("true",), env=env)
    planned = replace(nodes.plan(spec), promise=promise, spec=replace(spec, health=mode))
    events: list[object] = []
    submit.submit_and_follow(planned, nodes.head, events.append)
    lines = [event.data.decode() for event in events if isinstance(event, LogLine) and event.rank is None]
    return query.show_job(planned.id, nodes.head, remote="hash"), lines


def found(report: JobReport) -> dict[str, list[str]]:
    """The rules that nodes break, by node."""
    events = [event.fields for event in report.events if event.event == "health"]
    return {str(fields["node"]): [one["rule"] for one in fields["findings"]] for fields in events}  # type: ignore[attr-defined]


@BOTH
def test_an_error_refuses_the_job_by_node_with_what_was_measured_and_expected(
    nodes: Nodes, kind: str
) -> None:
    report, _ = run(nodes, kind, LARGE, "strict")
    assert report.state.state == "FAILED"
    assert report.state.reason.startswith("no rank was started: node[000000-")
    assert "memory: " in report.state.reason
    assert (
        "; expected: 1048576 GiB, less 5 % at most (this test); `fab replace` the node" in report.state.reason
    )
    assert "`--health warn` starts the job anyway" in report.state.reason
    assert {name for name, rules in found(report).items() if "memory" in rules} == set(report.ranks)


@BOTH
def test_with_warn_an_error_is_shown_once_and_the_job_runs(nodes: Nodes, kind: str) -> None:
    report, lines = run(nodes, kind, LARGE, "warn")
    assert report.state.state == "SUCCEEDED"
    (line,) = [line for line in lines if "health error: memory: " in line]
    assert line.startswith("node[000000-")
    assert {name for name, rules in found(report).items() if "memory" in rules} == set(report.ranks)


def test_with_off_nobody_looks(nodes: Nodes) -> None:
    report, _ = run(nodes, "pytorch", LARGE, "off")
    assert (report.state.state, report.health, found(report)) == ("SUCCEEDED", "off", {})


def test_a_node_as_promised_starts(nodes: Nodes) -> None:
    report, _ = run(nodes, "pytorch", CAPABLE, "strict")
    assert report.state.state == "SUCCEEDED"
    assert {rule for rules in found(report).values() for rule in rules} <= {"clock"}


def test_a_size_without_figures_runs_and_is_said_to_be_unknown(nodes: Nodes) -> None:
    report, lines = run(nodes, "pytorch", {"size": "Standard_Toy_v9"}, "strict")
    assert report.state.state == "SUCCEEDED"
    assert all("size" in rules for rules in found(report).values())
    assert any(
        "health unknown: Standard_Toy_v9: the catalogue has no row of this size" in line for line in lines
    )


@pytest.mark.skipif(Path("/sys/class/infiniband").exists(), reason="this machine has RDMA devices")
def test_missing_infiniband_is_a_warning_to_a_job_that_does_without(nodes: Nodes) -> None:
    promise: Promise = {
        **CAPABLE,
        "hcas": 1,
        "hca_gbps": 100,
        "sources": {**CAPABLE["sources"], "hcas": "this test", "hca_gbps": "this test"},
    }
    refused, _ = run(nodes, "pytorch", promise, "strict")
    assert "/sys/class/infiniband: none; expected: 1 InfiniBand ports (this test)" in refused.state.reason
    report, lines = run(nodes, "pytorch", promise, "strict", NCCL_IB_DISABLE="1")
    assert report.state.state == "SUCCEEDED"
    assert any("health warning: /sys/class/infiniband: none" in line for line in lines)
