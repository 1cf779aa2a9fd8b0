"""The rights of the nodes' identity."""

from __future__ import annotations

from infra.cluster.identity import watcher_actions
from infra.config.schema import parse
from tests.infra.cluster.test_component import PUBLIC


def test_the_right_to_stop_idle_nodes_is_that_of_the_agent_that_they_booted_with() -> None:
    settings = {f"ranklift:{key}": value for key, value in PUBLIC.items()}
    config = parse(settings | {"ranklift:idleStopMinutes": "30"})
    scale_sets = "Microsoft.Compute/virtualMachineScaleSets"
    reads = [f"{scale_sets}/read", f"{scale_sets}/virtualMachines/read"]
    assert watcher_actions(config, {"ranklift-agent": "2"}) == [*reads, f"{scale_sets}/delete/action"]
    assert watcher_actions(config, {}) == watcher_actions(config, None) == [*reads, f"{scale_sets}/write"]
    assert watcher_actions(parse(settings), {}) == reads
