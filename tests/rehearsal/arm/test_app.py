"""The endpoint as Microsoft's own clients and plain HTTP see it."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.operations import Fault
from tests.rehearsal import bodies
from tests.rehearsal.bodies import ADDRESS, BALANCER, SCALE_SET, VNET, build
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines, endpoint


def test_the_management_clients_list_vms_addresses_and_ports(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    build(azure)
    clients = azure.clients()
    vms = list(clients.compute.virtual_machine_scale_set_vms.list("lab", "nodes"))
    assert [(v.instance_id, v.os_profile.computer_name, v.provisioning_state) for v in vms] == [
        ("0", "node000000", "Succeeded"),
        ("1", "node000001", "Succeeded"),
        ("2", "node000002", "Succeeded"),
    ]
    nics = list(
        clients.network.network_interfaces.list_virtual_machine_scale_set_network_interfaces("lab", "nodes")
    )
    assert [n.ip_configurations[0].private_ip_address for n in nics] == ["10.0.0.4", "10.0.0.5", "10.0.0.6"]
    assert [n.virtual_machine.id.rpartition("/")[2] for n in nics] == ["0", "1", "2"]
    pool = clients.network.load_balancer_backend_address_pools.get("lab", "lb", "nodes")
    ports = {
        a.network_interface_ip_configuration.id.split("/")[10]: a.inbound_nat_rules_port_mapping[
            0
        ].frontend_port
        for a in pool.load_balancer_backend_addresses
    }
    assert ports == {"0": 50000, "1": 50001, "2": 50002}
    assert recorded.forwards == {
        (f"{BASE}/{VNET}", ("127.64.0.1", 50000 + n)): (f"10.0.0.{4 + n}", 22) for n in range(3)
    }
    assert clients.network.public_ip_addresses.get("lab", "ip").ip_address == "127.64.0.1"


def test_one_vms_port_is_told_by_query(azure: Endpoint) -> None:
    build(azure)
    answer = azure.clients().network.load_balancers.begin_list_inbound_nat_rule_port_mappings(
        "lab", "lb", "nodes", {"ipAddress": "10.0.0.5"}
    )
    (mapping,) = answer.result(30).inbound_nat_rule_port_mappings
    assert (mapping.inbound_nat_rule_name, mapping.frontend_port, mapping.backend_port) == ("ssh", 50001, 22)


def test_a_dead_vm_shows_as_stopped(azure: Endpoint, recorded: RecordingMachines) -> None:
    build(azure)
    recorded.dead.add("node000001")
    vms = azure.clients().compute.virtual_machine_scale_set_vms
    codes = [[s.code for s in vms.get_instance_view("lab", "nodes", str(n)).statuses] for n in range(2)]
    assert codes == [
        ["ProvisioningState/succeeded", "PowerState/running"],
        ["ProvisioningState/succeeded", "PowerState/stopped"],
    ]
    listed = list(vms.list("lab", "nodes", expand="instanceView"))
    assert listed[1].instance_view.statuses[1].code == "PowerState/stopped"


def test_the_group_poller_ends_when_everything_is_gone(azure: Endpoint, recorded: RecordingMachines) -> None:
    build(azure)
    groups = azure.clients().resources.resource_groups
    groups.begin_delete("lab").result(30)
    assert (recorded.forwards, recorded.networks) == ({}, {})
    with pytest.raises(ResourceNotFoundError, match="ResourceGroupNotFound"):
        groups.get("lab")


def test_the_clients_make_and_delete_too(azure: Endpoint) -> None:
    build(azure, 1)
    clients = azure.clients()
    made = clients.network.network_security_groups.begin_create_or_update(
        "lab", "nsg", {"location": "westeurope"}
    )
    assert made.result(30).provisioning_state == "Succeeded"
    clients.network.network_security_groups.begin_delete("lab", "nsg").result(30)
    grown = clients.compute.virtual_machine_scale_sets.begin_update("lab", "nodes", {"sku": {"capacity": 2}})
    assert grown.result(30).sku.capacity == 2
    clients.compute.virtual_machine_scale_sets.begin_delete_instances(
        "lab", "nodes", {"instanceIds": ["0"]}
    ).result(30)
    left = list(clients.compute.virtual_machine_scale_set_vms.list("lab", "nodes"))
    assert [v.instance_id for v in left] == ["1"]
    with pytest.raises(HttpResponseError, match="InvalidParameter"):
        clients.compute.virtual_machine_scale_sets.begin_delete_instances(
            "lab", "nodes", {"instanceIds": ["7"]}
        )


def test_growing_leaves_the_running_vms_alone_and_ids_are_never_used_twice(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    build(azure, 2)
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(3))["status"] == "Succeeded"
    assert recorded.booted() == ["node000000", "node000001", "node000002"]
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(1))["status"] == "Succeeded"
    assert recorded.calls[-1] == ("remove", f"{BASE}/{VNET}", ("node000001", "node000002"))
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(2))["status"] == "Succeeded"
    assert recorded.booted()[-1] == "node000003"
    # Address and port of the VM that left are free again.
    assert sorted(recorded.forwards.values()) == [("10.0.0.4", 22), ("10.0.0.5", 22)]
    assert sorted(port for _, (_, port) in recorded.forwards) == [50000, 50001]


def test_what_the_hypervisor_gets(azure: Endpoint, recorded: RecordingMachines) -> None:
    build(azure, 1)
    machine = recorded.up[f"{BASE}/{VNET}"]["node000000"]
    assert machine.user_data == "#cloud-config\n"
    assert (machine.admin_user, machine.authorized_keys) == ("azureuser", ("ssh-ed25519 AAAA u",))
    assert recorded.calls[0] == ("create_network", f"{BASE}/{VNET}", "10.0.0.0/16")


def test_secrets_are_never_given_back(azure: Endpoint) -> None:
    build(azure, 0)
    _, shown, _ = azure.ask("GET", SCALE_SET)
    assert "customData" not in shown["properties"]["virtualMachineProfile"]["osProfile"]


def test_a_vm_keeps_the_disk_that_its_scale_set_had_when_it_was_made(azure: Endpoint) -> None:
    def grown(capacity: int, gib: int) -> None:
        body = bodies.scale_set(capacity)
        disk = {"createOption": "FromImage", "diskSizeGB": gib}
        body["properties"]["virtualMachineProfile"]["storageProfile"] = {"osDisk": disk}
        assert azure.settle("PUT", SCALE_SET, body)["status"] == "Succeeded"

    build(azure, 0)
    grown(1, 256)
    grown(2, 512)
    vms = azure.ask("GET", f"{SCALE_SET}/virtualMachines")[1]["value"]
    assert [vm["properties"]["storageProfile"]["osDisk"]["diskSizeGB"] for vm in vms] == [256, 512]


def test_a_write_is_an_operation_that_is_asked_about(azure: Endpoint, recorded: RecordingMachines) -> None:
    build(azure, 0)
    recorded.boot_seconds = 0.3
    status, body, headers = azure.ask("PUT", SCALE_SET, bodies.scale_set(1))
    assert (status, body["properties"]["provisioningState"]) == (200, "Updating")
    assert azure.ask("PUT", SCALE_SET, bodies.scale_set(2))[1]["error"]["code"] == "Conflict"
    vms = azure.ask("GET", f"{SCALE_SET}/virtualMachines")[1]["value"]
    assert [v["properties"]["provisioningState"] for v in vms] == ["Creating"]
    while azure.ask("GET", headers["Azure-AsyncOperation"])[1]["status"] == "InProgress":
        pass
    assert azure.ask("GET", SCALE_SET)[1]["properties"]["provisioningState"] == "Succeeded"


def test_a_vm_that_does_not_come_up_fails_the_operation_and_the_next_write_mends_it(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    build(azure, 1)
    recorded.broken.add("node000001")
    ended = azure.settle("PUT", SCALE_SET, bodies.scale_set(2))
    assert (ended["status"], ended["error"]["code"]) == ("Failed", "OSProvisioningTimedOut")
    assert "node000001" in ended["error"]["message"]
    assert azure.ask("GET", SCALE_SET)[1]["properties"]["provisioningState"] == "Failed"
    states = [
        v["properties"]["provisioningState"]
        for v in azure.ask("GET", f"{SCALE_SET}/virtualMachines")[1]["value"]
    ]
    assert states == ["Succeeded", "Failed"]
    recorded.broken.clear()
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(2))["status"] == "Succeeded"
    assert recorded.booted() == ["node000000", "node000001", "node000001"]


def test_two_networks_do_not_see_each_other(azure: Endpoint, recorded: RecordingMachines) -> None:
    build(azure, 1)
    other = BASE.replace("lab", "lab2")
    azure.ask("PUT", other, {"location": "westeurope"})
    azure.settle("PUT", f"{other}/{VNET}", bodies.vnet())
    body = bodies.scale_set(1)
    nic = body["properties"]["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"][0]
    nic["properties"]["ipConfigurations"][0]["properties"] = {
        "subnet": {"id": f"{other}/{VNET}/subnets/nodes"}
    }
    assert azure.settle("PUT", f"{other}/{SCALE_SET}", body)["status"] == "Succeeded"
    assert [m.private_ip for up in recorded.up.values() for m in up.values()] == ["10.0.0.4", "10.0.0.4"]


def test_children_are_resources_too(azure: Endpoint) -> None:
    build(azure, 0)
    second = {"properties": {"addressPrefix": "10.0.16.0/24"}}
    assert azure.settle("PUT", f"{VNET}/subnets/more", second)["status"] == "Succeeded"
    names = [s["name"] for s in azure.ask("GET", f"{VNET}/subnets")[1]["value"]]
    assert names == ["nodes", "more"]
    assert (
        azure.settle(
            "PUT",
            VNET,
            {k: v for k, v in bodies.vnet().items() if k == "location"}
            | {"properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}},
        )["status"]
        == "Succeeded"
    )
    assert azure.ask("GET", f"{VNET}/subnets/more")[0] == 200
    assert azure.settle("DELETE", f"{VNET}/subnets/more")["status"] == "Succeeded"
    assert azure.ask("GET", f"{VNET}/subnets/more")[0] == 404


REFUSED: dict[str, tuple[str, str, Any, int, str]] = {
    "no group": ("PUT", f"{BASE}2/{VNET}", bodies.vnet(), 404, "ResourceGroupNotFound"),
    "no resource": ("GET", f"{VNET}x", None, 404, "ResourceNotFound"),
    "no child": ("GET", f"{VNET}/subnets/x", None, 404, "ResourceNotFound"),
    "no parent": ("PUT", f"{VNET}x/subnets/x", {}, 404, "ParentResourceNotFound"),
    "unknown namespace": ("PUT", "providers/Microsoft.Foo/bars/x", {}, 404, "InvalidResourceNamespace"),
    "unknown type": ("PUT", "providers/Microsoft.Network/bars/x", {}, 400, "InvalidResourceType"),
    "unknown member": (
        "PUT",
        SCALE_SET,
        {"location": "x", "properties": {"foo": 1}},
        400,
        "BadRequest",
    ),
    "unknown network member": (
        "PUT",
        VNET,
        {"location": "x", "properties": {"foo": 1}},
        400,
        "InvalidRequestFormat",
    ),
    "unknown group member": ("PUT", BASE, {"location": "westeurope", "foo": 1}, 400, "InvalidRequestContent"),
    "mistyped": (
        "PUT",
        SCALE_SET,
        {"location": "x", "sku": {"capacity": "4"}},
        400,
        "BadRequest",
    ),
    "no location": ("PUT", VNET, {}, 400, "LocationRequired"),
    "group elsewhere": ("PUT", BASE, {"location": "eastus"}, 409, "InvalidResourceGroupLocation"),
    "moved": ("PUT", VNET, {**bodies.vnet(), "location": "eastus"}, 409, "InvalidResourceLocation"),
    "subnet in use": ("DELETE", f"{VNET}/subnets/nodes", None, 400, "InUseSubnetCannotBeDeleted"),
    "network in use": ("DELETE", VNET, None, 400, "InUseSubnetCannotBeDeleted"),
    "address in use": ("DELETE", ADDRESS, None, 400, "PublicIPAddressCannotBeDeleted"),
    "balancer in use": ("DELETE", BALANCER, None, 400, "LoadBalancerInUseByVirtualMachineScaleSet"),
    "subnet left out": (
        "PUT",
        VNET,
        {**bodies.vnet(), "properties": {**bodies.vnet()["properties"], "subnets": []}},
        400,
        "InUseSubnetCannotBeDeleted",
    ),
    "dangling": (
        "PUT",
        VNET,
        bodies.vnet(natGateway={"id": f"{BASE}/{bodies.NETWORK}/natGateways/x"}),
        400,
        "InvalidResourceReference",
    ),
    "outside": (
        "PUT",
        f"{VNET}2",
        bodies.vnet(addressPrefix="10.1.0.0/24"),
        400,
        "NetcfgSubnetRangeOutsideVnet",
    ),
    "no prefix": (
        "PUT",
        f"{VNET}2",
        bodies.vnet(addressPrefix="10.1.0/33"),
        400,
        "InvalidAddressPrefixFormat",
    ),
    "crooked prefix": (
        "PUT",
        f"{VNET}2",
        bodies.vnet(addressPrefix="10.0.0.1/24"),
        400,
        "InvalidCIDRNotation",
    ),
    "overlap": (
        "PUT",
        f"{VNET}/subnets/more",
        {"properties": {"addressPrefix": "10.0.1.0/24"}},
        400,
        "NetcfgSubnetRangesOverlap",
    ),
    "address taken": ("PUT", f"{BALANCER}2", bodies.balancer(), 400, "PublicIPAddressInUse"),
    "too many VMs": ("PUT", SCALE_SET, bodies.scale_set(301), 400, "InvalidParameter"),
}


@pytest.fixture(scope="module")
def built() -> Any:
    with endpoint(RecordingMachines()) as azure:
        build(azure, 1)
        yield azure


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_come_in_azures_words(built: Endpoint, case: str) -> None:
    method, path, body, status, code = REFUSED[case]
    before = built.ask("GET", f"{BASE}/resources")[1]
    answered, printed, _ = built.ask(method, path, body)
    assert (answered, printed["error"]["code"]) == (status, code), printed
    assert printed["error"]["message"]
    assert built.ask("GET", f"{BASE}/resources")[1] == before


def test_an_api_version_is_needed(built: Endpoint) -> None:
    assert built.ask("GET", BASE, version=None)[1]["error"]["code"] == "MissingApiVersionParameter"
    assert built.ask("GET", BASE, version="latest")[1]["error"]["code"] == "InvalidApiVersionParameter"
    other = BASE.replace("0001", "0002")
    assert built.ask("GET", other)[1]["error"]["code"] == "SubscriptionNotFound"


def test_there_is_one_subscription(built: Endpoint) -> None:
    (listed,) = built.ask("GET", "/subscriptions")[1]["value"]
    assert listed == built.ask("GET", BASE.partition("/resourceGroups")[0])[1]
    assert listed["state"] == "Enabled"


def test_the_message_names_member_type_and_path(built: Endpoint) -> None:
    _, printed, _ = built.ask("PUT", SCALE_SET, {"location": "x", "properties": {"foo": 1}})
    assert printed["error"] == {
        "code": "BadRequest",
        "message": "Could not find member 'foo' on object of type 'VirtualMachineScaleSetProperties'. "
        "Path 'properties.foo'.",
        "target": "properties.foo",
    }


def test_small_subnets_and_small_port_ranges_bound_the_scale_set(azure: Endpoint) -> None:
    build(azure, 0)
    body = bodies.balancer(50000, 50001)
    assert azure.settle("PUT", BALANCER, body)["status"] == "Succeeded"
    refused = azure.settle("PUT", SCALE_SET, bodies.scale_set(3))
    assert refused["error"]["code"] == "InboundNatRuleFrontendPortRangeTooSmall"
    small = bodies.vnet(addressPrefix="10.0.0.0/29")
    assert azure.settle("PUT", VNET, small)["status"] == "Succeeded"
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(4))["error"]["code"] == "SubnetIsFull"


def test_faults_refuse_delay_or_fail_an_operation(recorded: RecordingMachines) -> None:
    quota = ArmError(409, "OperationNotAllowed", "exceeding approved standardNDSv2Family Cores quota")
    allocation = ArmError(409, "AllocationFailed", "Allocation failed.")
    found = {"natGateways": Fault(error=quota, at_request=True), "publicIPAddresses": Fault(0.1, allocation)}
    with endpoint(recorded, lambda verb, rid: found.get(rid.parts[0] if rid.parts else "")) as azure:
        azure.ask("PUT", BASE, {"location": "westeurope"})
        gateway = azure.settle(
            "PUT", "providers/Microsoft.Network/natGateways/nat", {"location": "westeurope"}
        )
        assert (gateway["http"], gateway["error"]["code"]) == (409, "OperationNotAllowed")
        public = azure.settle("PUT", ADDRESS, bodies.address())
        assert (public["status"], public["error"]["code"]) == ("Failed", "AllocationFailed")
        assert azure.ask("GET", ADDRESS)[1]["properties"]["provisioningState"] == "Failed"
