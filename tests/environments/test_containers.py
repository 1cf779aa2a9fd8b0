"""Ranks in Charliecloud's containers: what they see, how they end, and what is left of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.job.spec import JobSpec
from tests.environments.in_containers import ContainerNodes
from tests.launch.standin import Nodes, lines

pytestmark = [
    pytest.mark.environments,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("nothing_runs_on"),
]


@pytest.fixture
def nodes(nodes: Nodes, image_root: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = ContainerNodes(nodes, "charliecloud")
    made.put("root", image_root)
    monkeypatch.setattr(nodes, "plan", made.plan)
    return nodes


def test_ranks_run_in_the_image(nodes: Nodes) -> None:
    state, events = nodes.run(
        JobSpec("t", "pytorch", ("sh", "-c", "tool; echo $GREETING; pwd"), snapshot="code")
    )
    print(lines(events), state)
    assert state.state == "SUCCEEDED"
