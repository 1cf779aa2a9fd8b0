"""Interfaces, private endpoints and the zones that name them; VMs in no scale set, and their disks."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.rehearsal import bodies
from tests.rehearsal.arm.storage.test_accounts import ACCOUNT, account, settled
from tests.rehearsal.bodies import SUBNET_ID, VNET
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines

NETWORK, COMPUTE = "providers/Microsoft.Network", "providers/Microsoft.Compute"
NIC, ENDPOINT = f"{NETWORK}/networkInterfaces/nic", f"{NETWORK}/privateEndpoints/pe"
ZONE = f"{NETWORK}/privateDnsZones/privatelink.blob.core.windows.net"
VM, DISK = f"{COMPUTE}/virtualMachines/nfs", f"{COMPUTE}/disks/d0"
HERE: dict[str, Any] = {"location": "westeurope"}


def nic(**configuration: Any) -> dict[str, Any]:
    own = {"subnet": {"id": SUBNET_ID}, **configuration}
    return {**HERE, "properties": {"ipConfigurations": [{"name": "ip", "properties": own}]}}


def endpoint(group: str = "blob", target: str = f"{BASE}/{ACCOUNT}") -> dict[str, Any]:
    link = {"name": "x", "properties": {"privateLinkServiceId": target, "groupIds": [group]}}
    return {**HERE, "properties": {"subnet": {"id": SUBNET_ID}, "privateLinkServiceConnections": [link]}}


def disk(size: int = 512) -> dict[str, Any]:
    properties = {"creationData": {"createOption": "Empty"}, "diskSizeGB": size}
    return {**HERE, "sku": {"name": "Premium_LRS"}, "properties": properties}


def vm(name: str = "nfs", nic_id: str = f"{BASE}/{NIC}", **deletes: str) -> dict[str, Any]:
    key = {"path": "/home/azureuser/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA u"}
    disks = [{"lun": 0, "createOption": "Attach", "managedDisk": {"id": f"{BASE}/{DISK}"}}]
    return {
        **HERE,
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_E8s_v5"},
            "networkProfile": {"networkInterfaces": [{"id": nic_id}]},
            "osProfile": {
                "computerName": name,
                "adminUsername": "azureuser",
                "customData": base64.b64encode(b"#cloud-config\n").decode(),
                "linuxConfiguration": {"ssh": {"publicKeys": [key]}},
            },
            "storageProfile": {"osDisk": {"createOption": "FromImage", **deletes}, "dataDisks": disks},
        },
    }


@pytest.fixture
def network(azure: Endpoint) -> Endpoint:
    """A network with a storage account beside it."""
    assert azure.ask("PUT", BASE, HERE)[0] == 201
    assert azure.settle("PUT", VNET, bodies.vnet())["status"] == "Succeeded"
    assert settled(azure, ACCOUNT, account())[0] == 200
    return azure


def made(azure: Endpoint, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What is there after a write that has to succeed."""
    assert azure.settle("PUT", path, body)["status"] == "Succeeded"
    shown: dict[str, Any] = azure.ask("GET", path)[1]["properties"]
    return shown


def address_of(properties: dict[str, Any]) -> str:
    return str(properties["ipConfigurations"][0]["properties"]["privateIPAddress"])


def test_an_interface_takes_an_address_that_no_other_has(network: Endpoint) -> None:
    assert address_of(made(network, NIC, nic())) == "10.0.0.4"
    assert address_of(made(network, f"{NIC}2", nic())) == "10.0.0.5"
    fixed = nic(privateIPAllocationMethod="Static", privateIPAddress="10.0.0.9")
    assert address_of(made(network, f"{NIC}3", fixed)) == "10.0.0.9"
    again = network.settle("PUT", f"{NIC}4", fixed)
    assert again["error"]["code"] == "PrivateIPAddressNotAvailable"
    assert network.settle("DELETE", SUBNET_ID)["error"]["code"] == "InUseSubnetCannotBeDeleted"
    assert network.settle("DELETE", NIC)["status"] == "Succeeded"
    assert address_of(made(network, f"{NIC}5", nic())) == "10.0.0.4"


def test_a_private_endpoint_has_an_interface_and_a_name(network: Endpoint) -> None:
    properties = made(network, ENDPOINT, endpoint())
    (interface,) = properties["networkInterfaces"]
    assert address_of(network.ask("GET", interface["id"])[1]["properties"]) == "10.0.0.4"
    assert properties["customDnsConfigs"] == [
        {"fqdn": "labstore1.blob.core.windows.net", "ipAddresses": ["10.0.0.4"]}
    ]
    assert network.settle("DELETE", interface["id"])["error"]["code"] == "NicInUseWithPrivateEndpoint"
    assert network.settle("DELETE", SUBNET_ID)["error"]["code"] == "InUseSubnetCannotBeDeleted"
    assert network.settle("DELETE", ENDPOINT)["status"] == "Succeeded"
    assert network.ask("GET", interface["id"])[0] == 404


def test_an_endpoint_leads_to_a_service_that_is_there(network: Endpoint) -> None:
    refused = network.settle("PUT", ENDPOINT, endpoint("vault"))
    assert (refused["http"], refused["error"]["code"]) == (400, "PrivateLinkServiceGroupIdInvalid")
    gone = endpoint(target=f"{BASE}/{ACCOUNT}x")
    assert network.settle("PUT", ENDPOINT, gone)["error"]["code"] == "InvalidResourceReference"


def test_a_zone_group_writes_the_address_into_the_zone(network: Endpoint) -> None:
    made(network, ENDPOINT, endpoint())
    made(network, ZONE, {"location": "global"})
    group = {"properties": {"privateDnsZoneConfigs": [{"name": "blob", "properties": {}}]}}
    group["properties"]["privateDnsZoneConfigs"][0]["properties"] = {"privateDnsZoneId": f"{BASE}/{ZONE}"}
    made(network, f"{ENDPOINT}/privateDnsZoneGroups/default", group)
    record = network.ask("GET", f"{ZONE}/A/labstore1")[1]["properties"]
    assert record["aRecords"] == [{"ipv4Address": "10.0.0.4"}]
    assert network.ask("GET", ZONE)[1]["properties"]["numberOfRecordSets"] == 2
    assert network.settle("DELETE", ENDPOINT)["status"] == "Succeeded"
    assert network.ask("GET", f"{ZONE}/A/labstore1")[0] == 404


def test_a_network_has_one_zone_of_a_name_and_a_zone_is_held_by_its_links(network: Endpoint) -> None:
    made(network, ZONE, {"location": "global"})
    link = {"location": "global", "properties": {"virtualNetwork": {"id": f"{BASE}/{VNET}"}}}
    properties = made(network, f"{ZONE}/virtualNetworkLinks/one", link)
    assert properties["virtualNetworkLinkState"] == "Completed"
    again = network.settle("PUT", f"{ZONE}/virtualNetworkLinks/two", link)
    assert "overlapping namespaces" in again["error"]["message"]
    assert network.settle("DELETE", ZONE)["error"]["code"] == "CannotDeleteResource"
    assert network.settle("DELETE", f"{ZONE}/virtualNetworkLinks/one")["status"] == "Succeeded"
    assert network.settle("DELETE", ZONE)["status"] == "Succeeded"


def test_a_vm_boots_with_the_address_of_its_interface(network: Endpoint, recorded: RecordingMachines) -> None:
    made(network, NIC, nic())
    assert settled(network, DISK, disk())[1]["properties"]["diskState"] == "Unattached"
    properties = made(network, VM, vm())
    assert "customData" not in properties["osProfile"]
    (machine,) = recorded.up[f"{BASE}/{VNET}"].values()
    assert (machine.name, machine.private_ip, machine.admin_user) == ("nfs", "10.0.0.4", "azureuser")
    assert machine.authorized_keys == ("ssh-ed25519 AAAA u",)
    attached = network.ask("GET", DISK)[1]
    assert (attached["properties"]["diskState"], attached["managedBy"]) == ("Attached", f"{BASE}/{VM}")
    assert network.ask("GET", NIC)[1]["properties"]["virtualMachine"]["id"] == f"{BASE}/{VM}"
    assert network.settle("DELETE", NIC)["error"]["code"] == "NicInUse"
    assert network.settle("DELETE", DISK)["error"]["code"] == "OperationNotAllowed"
    view = network.ask("GET", f"{VM}/instanceView")[1]
    assert view["statuses"][-1]["code"] == "PowerState/running"


@pytest.mark.parametrize(("deletes", "left"), [({}, 2), ({"deleteOption": "Delete"}, 1)])
def test_a_vm_leaves_its_disks_unless_it_is_told_otherwise(
    network: Endpoint, recorded: RecordingMachines, deletes: dict[str, str], left: int
) -> None:
    made(network, NIC, nic())
    settled(network, DISK, disk())
    made(network, VM, vm(**deletes))
    assert network.settle("DELETE", VM)["status"] == "Succeeded"
    assert recorded.up[f"{BASE}/{VNET}"] == {}
    disks = network.ask("GET", f"{COMPUTE}/disks")[1]["value"]
    assert [d["properties"]["diskState"] for d in disks] == ["Unattached"] * left


def test_a_second_vm_takes_nothing_of_the_first(network: Endpoint) -> None:
    made(network, NIC, nic())
    made(network, f"{NIC}2", nic())
    settled(network, DISK, disk())
    made(network, VM, vm())
    assert network.settle("PUT", f"{VM}2", vm("other"))["error"]["code"] == "NicInUse"
    taken = network.settle("PUT", f"{VM}2", vm("other", f"{BASE}/{NIC}2"))
    assert taken["error"]["code"] == "AttachDiskWhileBeingDetached"


def test_a_disk_only_grows(network: Endpoint) -> None:
    settled(network, DISK, disk())
    assert settled(network, DISK, disk(1024))[1]["properties"]["diskSizeGB"] == 1024
    assert settled(network, DISK, disk(256))[1]["error"]["code"] == "OperationNotAllowed"


def test_a_vm_is_switched_off_and_on(network: Endpoint, recorded: RecordingMachines) -> None:
    made(network, NIC, nic())
    settled(network, DISK, disk())
    made(network, VM, vm())
    machines = network.clients().compute.virtual_machines
    machines.begin_deallocate("lab", "nfs").result(30)
    assert machines.instance_view("lab", "nfs").statuses[-1].code == "PowerState/deallocated"
    machines.begin_start("lab", "nfs").result(30)
    assert machines.instance_view("lab", "nfs").statuses[-1].code == "PowerState/running"
    assert recorded.booted() == ["nfs", "nfs"]


def test_a_group_with_all_of_it_goes_at_once(network: Endpoint, recorded: RecordingMachines) -> None:
    made(network, NIC, nic())
    settled(network, DISK, disk())
    made(network, VM, vm())
    made(network, ENDPOINT, endpoint())
    network.clients().resources.resource_groups.begin_delete("lab").result(30)
    assert (network.subscription.resources, recorded.networks) == ({}, {})
