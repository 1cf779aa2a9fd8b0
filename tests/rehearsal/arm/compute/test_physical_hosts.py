"""VMs come to hosts, and reports of unhealthy ones are taken as Azure takes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from infra.arm.impact import Impact, report
from playbooks.nodes.host_report import CATEGORIES
from rehearsal.arm.compute import physical_hosts
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from tests.rehearsal import bodies
from tests.rehearsal.bodies import SCALE_SET, build
from tests.rehearsal.doubles import BASE, SUBSCRIPTION_ID, Endpoint, RecordingMachines, endpoint

VERSION = "2023-02-01-preview"


def impact(number: int = 1) -> Impact:
    vm = f"{BASE}/{SCALE_SET}/virtualMachines/{number}"
    return Impact(vm, "guid", "RHRSL0000001", "Resource.Hpc.Unhealthy.IBPortDown", "mlx5_ib0:1: 1: DOWN")


def host_of(recorded: RecordingMachines, name: str) -> str:
    return recorded.up[f"{BASE}/{bodies.VNET}"][name].host


def replaced(azure: Endpoint, number: int) -> None:
    sets = azure.clients().compute.virtual_machine_scale_sets
    sets.begin_delete_instances("lab", "nodes", {"instanceIds": [str(number)]}).result(30)
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(3))["status"] == "Succeeded"


def test_a_report_is_kept_under_the_subscription(azure: Endpoint) -> None:
    build(azure)
    sent = impact()
    report(azure.clients().resources, sent)
    report(azure.clients().resources, sent)  # the same again
    assert sent.id.startswith(f"/subscriptions/{SUBSCRIPTION_ID}/providers/Microsoft.Impact/workloadImpacts/")
    found = azure.clients().resources.resources.get_by_id(sent.id, api_version=VERSION)
    properties: Any = found.properties
    assert properties["impactedResourceId"] == sent.vm
    assert properties["additionalProperties"] == {"PhysicalHostName": "RHRSL0000001", "VmUniqueId": "guid"}


def test_a_node_in_place_of_another_comes_to_the_host_that_this_one_left_unless_it_was_reported(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    build(azure)
    assert [host_of(recorded, f"node00000{n}") for n in range(3)] == [f"RHRSL000000{n}" for n in range(3)]
    replaced(azure, 1)
    assert host_of(recorded, "node000003") == "RHRSL0000001"
    report(azure.clients().resources, impact(3))
    replaced(azure, 3)
    assert host_of(recorded, "node000004") == "RHRSL0000003"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"impactCategory": None}, "InvalidRequest"),
        ({"additionalProperties": {}}, "InvalidRequest"),
        ({"impactCategory": "Resource.Hpc.Unhealthy.Bad"}, "InvalidImpactCategory"),
        ({"impactedResourceId": f"{BASE}/{SCALE_SET}/virtualMachines/7"}, "InvalidImpactedResource"),
        (
            {"impactedResourceId": f"{BASE}/providers/Microsoft.Compute/virtualMachines/x"},
            "InvalidImpactedResource",
        ),
    ],
)
def test_a_report_that_azure_cannot_use_is_refused(
    azure: Endpoint, changed: dict[str, Any], code: str
) -> None:
    build(azure)
    body = impact().body(datetime.now(UTC))
    body["properties"].update(changed)
    with pytest.raises(HttpResponseError, match=code):
        azure.clients().resources.resources.begin_create_or_update_by_id(
            impact().id, body, api_version=VERSION
        )


def test_without_the_provider_no_report_is_taken(recorded: RecordingMachines) -> None:
    faults = ArmFaults()
    with endpoint(recorded, faults) as azure:
        build(azure)
        faults.set(fault_spec("impact"))
        with pytest.raises(HttpResponseError, match="MissingSubscriptionRegistration") as refused:
            report(azure.clients().resources, impact())
        assert refused.value.status_code == 409


def test_every_category_that_is_reported_is_one_of_azures() -> None:
    known = physical_hosts._CATEGORIES
    assert {f"Resource.Hpc.Unhealthy.{one}" for one in CATEGORIES.values()} <= known
