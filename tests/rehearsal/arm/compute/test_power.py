"""VMs of a scale set, switched off and on, installed anew, taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from tests.rehearsal import bodies
from tests.rehearsal.bodies import SCALE_SET, build
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines


def power_of(azure: Endpoint, number: int) -> str:
    view = azure.clients().compute.virtual_machine_scale_set_vms.get_instance_view(
        "lab", "nodes", str(number)
    )
    return str(view.statuses[-1].code)


@pytest.fixture
def sets(azure: Endpoint) -> Any:
    """Microsoft's client, over three VMs."""
    build(azure)
    return azure.clients().compute.virtual_machine_scale_sets


def test_a_vm_that_is_deallocated_says_so_until_it_is_started(
    azure: Endpoint, recorded: RecordingMachines, sets: Any
) -> None:
    sets.begin_deallocate("lab", "nodes", {"instanceIds": ["1"]}).result(30)
    assert [power_of(azure, n) for n in range(3)] == [
        "PowerState/running",
        "PowerState/deallocated",
        "PowerState/running",
    ]
    assert sets.get("lab", "nodes").sku.capacity == 3
    sets.begin_start("lab", "nodes", {"instanceIds": ["1"]}).result(30)
    assert power_of(azure, 1) == "PowerState/running"
    assert recorded.booted()[3:] == ["node000001"]


def test_a_vm_that_is_stopped_keeps_its_disk_and_one_that_is_reimaged_does_not(
    azure: Endpoint, recorded: RecordingMachines, sets: Any
) -> None:
    sets.begin_power_off("lab", "nodes", {"instanceIds": ["0"]}).result(30)
    assert power_of(azure, 0) == "PowerState/stopped"
    assert not [call for call in recorded.calls if call[0] == "remove"]
    sets.begin_reimage("lab", "nodes", {"instanceIds": ["2"]}).result(30)
    assert [call[2] for call in recorded.calls if call[0] == "remove"] == [("node000002",)]
    assert recorded.booted()[-1] == "node000002"
    address = recorded.up[f"{BASE}/{bodies.VNET}"]["node000002"].private_ip
    assert address == "10.0.0.6"


def test_without_ids_all_are_meant(recorded: RecordingMachines, sets: Any) -> None:
    sets.begin_restart("lab", "nodes").result(30)
    assert recorded.booted()[3:] == ["node000000", "node000001", "node000002"]


def test_an_id_that_is_none_is_refused(sets: Any) -> None:
    with pytest.raises(HttpResponseError, match="instanceId 9 is not an active"):
        sets.begin_reimage("lab", "nodes", {"instanceIds": ["9"]})


def test_a_scale_set_tells_since_when_it_is_there(sets: Any) -> None:
    assert sets.get("lab", "nodes").time_created.year >= 2024


def test_only_a_spot_vm_can_be_evicted(azure: Endpoint, sets: Any) -> None:
    vms = azure.clients().compute.virtual_machine_scale_set_vms
    with pytest.raises(HttpResponseError, match="not a Spot VM"):
        vms.simulate_eviction("lab", "nodes", "0")


def test_a_spot_vm_that_is_evicted_has_a_notice_first(azure: Endpoint, recorded: RecordingMachines) -> None:
    build(azure, 0)
    body = bodies.scale_set(2)
    body["properties"]["virtualMachineProfile"]["priority"] = "Spot"
    azure.settle("DELETE", SCALE_SET)
    assert azure.settle("PUT", SCALE_SET, body)["status"] == "Succeeded"
    compute = azure.clients().compute
    (_, last) = compute.virtual_machine_scale_set_vms.list("lab", "nodes")
    compute.virtual_machine_scale_set_vms.simulate_eviction("lab", "nodes", last.instance_id)
    events = azure.shared.events
    scope = f"{BASE}/{SCALE_SET}".lower()
    (event,) = azure.run(_until(lambda: events.document(scope, "x")["Events"]))
    assert (event["EventType"], event["Resources"]) == ("Preempt", [f"nodes_{last.instance_id}"])
    events.approve(scope, event["EventId"])
    azure.run(_until(lambda: len(azure.subscription.scale_sets[scope].instances) == 1))
    assert compute.virtual_machine_scale_sets.get("lab", "nodes").sku.capacity == 1


async def _until(what: Any) -> Any:
    async with asyncio.timeout(20):
        while not (found := what()):
            await asyncio.sleep(0.01)
    return found
