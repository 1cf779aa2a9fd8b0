"""Azure's resource types: the API version of each, and those that the project may remove.

>>> api_version("Microsoft.Compute/disks"), api_version("microsoft.compute/virtualmachines")
('2024-03-02', '2024-11-01')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["REMOVABLE", "ResourceType", "api_version", "resource_id"]

_API_VERSIONS = {
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.Compute": "2024-11-01",
    "Microsoft.Compute/disks": "2024-03-02",
    "Microsoft.Compute/locations/usages": "2024-07-01",
    "Microsoft.Compute/skus": "2021-07-01",
    "Microsoft.ManagedIdentity": "2023-01-31",
    "Microsoft.Network": "2024-05-01",
    "Microsoft.Network/privateDnsZones": "2024-06-01",
    "Microsoft.Resources": "2021-04-01",
    "Microsoft.Resources/subscriptions": "2022-12-01",
    "Microsoft.Storage": "2024-01-01",
}
"""By provider, or by the beginning of a type where that has another version than its provider."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A type as Azure names it, and Pulumi's inputs that name one resource of it."""

    azure: str
    names: tuple[str, ...]
    """The group, or the scope that the resource extends, and the names; ``=name`` is a fixed name."""


REMOVABLE: Mapping[str, ResourceType] = {
    "azure-native:authorization:RoleAssignment": ResourceType(
        "Microsoft.Authorization/roleAssignments", ("scope", "roleAssignmentName")
    ),
    "azure-native:authorization:RoleDefinition": ResourceType(
        "Microsoft.Authorization/roleDefinitions", ("scope", "roleDefinitionId")
    ),
    "azure-native:compute:VirtualMachine": ResourceType(
        "Microsoft.Compute/virtualMachines", ("resourceGroupName", "vmName")
    ),
    "azure-native:compute:VirtualMachineScaleSet": ResourceType(
        "Microsoft.Compute/virtualMachineScaleSets", ("resourceGroupName", "vmScaleSetName")
    ),
    "azure-native:compute:Disk": ResourceType("Microsoft.Compute/disks", ("resourceGroupName", "diskName")),
    "azure-native:managedidentity:UserAssignedIdentity": ResourceType(
        "Microsoft.ManagedIdentity/userAssignedIdentities", ("resourceGroupName", "resourceName")
    ),
    "azure-native:network:LoadBalancer": ResourceType(
        "Microsoft.Network/loadBalancers", ("resourceGroupName", "loadBalancerName")
    ),
    "azure-native:network:NatGateway": ResourceType(
        "Microsoft.Network/natGateways", ("resourceGroupName", "natGatewayName")
    ),
    "azure-native:network:NetworkInterface": ResourceType(
        "Microsoft.Network/networkInterfaces", ("resourceGroupName", "networkInterfaceName")
    ),
    "azure-native:network:NetworkSecurityGroup": ResourceType(
        "Microsoft.Network/networkSecurityGroups", ("resourceGroupName", "networkSecurityGroupName")
    ),
    "azure-native:network:PrivateEndpoint": ResourceType(
        "Microsoft.Network/privateEndpoints", ("resourceGroupName", "privateEndpointName")
    ),
    "azure-native:network:PrivateDnsZoneGroup": ResourceType(
        "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
        ("resourceGroupName", "privateEndpointName", "privateDnsZoneGroupName"),
    ),
    "azure-native:network:PublicIPAddress": ResourceType(
        "Microsoft.Network/publicIPAddresses", ("resourceGroupName", "publicIpAddressName")
    ),
    "azure-native:network:Subnet": ResourceType(
        "Microsoft.Network/virtualNetworks/subnets", ("resourceGroupName", "virtualNetworkName", "subnetName")
    ),
    "azure-native:network:VirtualNetwork": ResourceType(
        "Microsoft.Network/virtualNetworks", ("resourceGroupName", "virtualNetworkName")
    ),
    "azure-native:privatedns:PrivateZone": ResourceType(
        "Microsoft.Network/privateDnsZones", ("resourceGroupName", "privateZoneName")
    ),
    "azure-native:privatedns:VirtualNetworkLink": ResourceType(
        "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
        ("resourceGroupName", "privateZoneName", "virtualNetworkLinkName"),
    ),
    "azure-native:storage:BlobContainer": ResourceType(
        "Microsoft.Storage/storageAccounts/blobServices/containers",
        ("resourceGroupName", "accountName", "=default", "containerName"),
    ),
    "azure-native:storage:FileShare": ResourceType(
        "Microsoft.Storage/storageAccounts/fileServices/shares",
        ("resourceGroupName", "accountName", "=default", "shareName"),
    ),
    "azure-native:storage:StorageAccount": ResourceType(
        "Microsoft.Storage/storageAccounts", ("resourceGroupName", "accountName")
    ),
}
"""The types that :func:`infra.arm.clients.remove` takes, by Pulumi's name.

Resource groups are not among them: others may have put something into one."""


def api_version(azure_type: str) -> str:
    """Return the API version for a type, in any case of letters.

    Raises ``KeyError`` for types of providers that the project does not use.
    """
    parts = azure_type.lower().split("/")
    known = {name.lower(): version for name, version in _API_VERSIONS.items()}
    while len(parts) > 1 and "/".join(parts) not in known:
        parts.pop()
    return known["/".join(parts)]


def resource_id(subscription: str, kind: str, inputs: Mapping[str, Any]) -> str:
    """Return the ARM id of the resource of a :data:`REMOVABLE` type that Pulumi's ``inputs`` name.

    >>> resource_id("s", "azure-native:network:Subnet",
    ...             {"resourceGroupName": "g", "virtualNetworkName": "v", "subnetName": "n"})
    '/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n'
    """
    names = REMOVABLE[kind].names
    namespace, *collections = REMOVABLE[kind].azure.split("/")
    where, *given = [name[1:] if name.startswith("=") else str(inputs[name]) for name in names]
    scope = where if names[0] == "scope" else f"/subscriptions/{subscription}/resourceGroups/{where}"
    path = "/".join(f"{collection}/{name}" for collection, name in zip(collections, given, strict=True))
    return f"{scope.rstrip('/')}/providers/{namespace}/{path}"
