"""A cluster with an Azure Monitor workspace from its first day on: what is made, billed, and left."""

from __future__ import annotations

import pytest

from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(900)]

STACK = "rehearsal"
OWN = "/resourceGroups/ranklift-rehearsal/providers"
SET = f"{OWN}/Microsoft.Compute/virtualMachineScaleSets/ranklift-rehearsal"
RULE = f"{OWN}/Microsoft.Insights/dataCollectionRules/ranklift-rehearsal"


def test_a_cluster_with_a_workspace_comes_is_billed_and_goes(workplace: Workplace) -> None:
    workplace.configure(STACK, nodeCount=1, metricsPort=9500, monitor="true")
    workplace.fab("up", "--stack", STACK)
    tags = workplace.azure(SET)["tags"]
    rule = workplace.azure(RULE)["properties"]
    assert tags["ranklift-monitor"].endswith(f"/dataCollectionRules/{rule['immutableId']}")
    workplace.pulumi("preview", "--stack", STACK, "--expect-no-changes")
    account = workplace.fab("account", "--stack", STACK, "--json").json()["things"]
    found = {one["type"]: (one["per_hour"], one["note"]) for one in account}
    assert found["Microsoft.Monitor/accounts"] == (None, "by samples sent and by queries")
    assert found["Microsoft.Insights/dataCollectionRules"][0] == 0.0
    workplace.fab("down", "--stack", STACK, "--yes")
    assert workplace.groups() == set()
    assert workplace.azure("/resources")["value"] == []


def test_without_a_port_for_the_metrics_nothing_is_asked_of_azure(workplace: Workplace) -> None:
    workplace.configure(STACK, nodeCount=1, monitor="true")
    refused = workplace.fab("up", "--stack", STACK, status=None)
    assert refused.status != 0
    shown = " ".join(f"{refused.out} {refused.err}".split())
    assert "ranklift:monitor" in shown
    assert "set ranklift:metricsPort as well" in shown
    assert workplace.groups() == set()
