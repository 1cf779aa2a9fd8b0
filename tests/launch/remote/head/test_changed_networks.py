"""A proof of InfiniBand ends where a node's own settings of networks change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.remote.head.test_probe import results, run
from tests.launch.standin import Nodes, lines, remarks, shell

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("nothing_runs_on")]


def node_file(nodes: Nodes, name: str) -> Path:
    return nodes.folder / "node000001" / name


@pytest.mark.parametrize("falls_back", [False, True])
def test_a_proof_ends_where_a_nodes_own_settings_change(
    nodes: Nodes, torch: dict[str, str], falls_back: bool
) -> None:
    first, _ = run(nodes, shell("true", env=torch), "auto")
    node_file(nodes, ".nccl.conf").write_text("NCCL_NET=Socket\n")
    env = {**torch, "TORCH_FALLS_BACK": "1"} if falls_back else torch
    second, events = run(nodes, shell("echo trains", env=env), "auto")
    assert "node000001: what decides which network is used" in remarks(events)
    assert "is not as it was when InfiniBand was proven: it is proven again" in remarks(events)
    verdicts = [one["verdict"] for one in results(nodes, second.job)]
    if falls_back:
        assert (second.state, lines(events)) == ("FAILED", [])
        assert verdicts == ["proven", "refused"]
        return
    assert (second.state, len(lines(events))) == ("SUCCEEDED", 3)
    assert verdicts == ["proven", "proven"]
    assert results(nodes, second.job)[0]["reason"] == f"by job {first.job}"
    third, _ = run(nodes, shell("true", env=torch), "auto")
    assert [one["reason"] for one in results(nodes, third.job)] == [f"by job {second.job}"]


def test_a_setup_line_that_changes_them_is_proven_with(nodes: Nodes, torch: dict[str, str]) -> None:
    spec = shell("echo trains", env=torch, setup="echo NCCL_DEBUG=WARN > ~/.nccl.conf")
    state, events = run(nodes, spec, "auto")
    assert (state.state, len(lines(events))) == ("SUCCEEDED", 3)
    assert [one["verdict"] for one in results(nodes, state.job)] == ["proven", "proven"]


def test_settings_that_change_with_each_launch_refuse_the_job(nodes: Nodes, torch: dict[str, str]) -> None:
    spec = shell("echo trains", env=torch, setup="date +%N > ~/.nccl.conf")
    state, events = run(nodes, spec, "auto")
    assert (state.state, lines(events)) == ("FAILED", [])
    assert "is not as it was when InfiniBand was proven" in state.reason
