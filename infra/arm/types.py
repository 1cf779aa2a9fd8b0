"""Azure's resource types: the API version of each, and those that the project may remove.

>>> api_version("Microsoft.Compute/disks"), api_version("microsoft.compute/virtualmachines")
('2024-03-02', '2024-11-01')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["REMOVABLE", "api_version", "resource_id"]

_API_VERSIONS = {
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.Compute": "2024-11-01",
    "Microsoft.Compute/disks": "2024-03-02",
    "Microsoft.Compute/locations/usages": "2024-07-01",
    "Microsoft.Compute/skus": "2021-07-01",
    "Microsoft.Impact": "2023-02-01-preview",
    "Microsoft.Insights": "2022-06-01",
    "Microsoft.ManagedIdentity": "2023-01-31",
    "Microsoft.MarketplaceOrdering": "2021-01-01",
    "Microsoft.Monitor": "2023-04-03",
    "Microsoft.Network": "2024-05-01",
    "Microsoft.Network/privateDnsZones": "2024-06-01",
    "Microsoft.Resources": "2021-04-01",
    "Microsoft.Resources/subscriptions": "2022-12-01",
    "Microsoft.Storage": "2024-01-01",
}
"""By provider, or by the beginning of a type where that has another version than its provider."""


REMOVABLE: Mapping[str, str] = {
    f"azure-native:{kind}": f"Microsoft.{path}"
    for kind, path in {
        "authorization:RoleAssignment": "Authorization/roleAssignments/{roleAssignmentName}",
        "authorization:RoleDefinition": "Authorization/roleDefinitions/{roleDefinitionId}",
        "compute:VirtualMachine": "Compute/virtualMachines/{vmName}",
        "compute:VirtualMachineScaleSet": "Compute/virtualMachineScaleSets/{vmScaleSetName}",
        "compute:Disk": "Compute/disks/{diskName}",
        "managedidentity:UserAssignedIdentity": "ManagedIdentity/userAssignedIdentities/{resourceName}",
        "monitor:AzureMonitorWorkspace": "Monitor/accounts/{azureMonitorWorkspaceName}",
        "monitor:DataCollectionEndpoint": "Insights/dataCollectionEndpoints/{dataCollectionEndpointName}",
        "monitor:DataCollectionRule": "Insights/dataCollectionRules/{dataCollectionRuleName}",
        "network:LoadBalancer": "Network/loadBalancers/{loadBalancerName}",
        "network:NatGateway": "Network/natGateways/{natGatewayName}",
        "network:NetworkInterface": "Network/networkInterfaces/{networkInterfaceName}",
        "network:NetworkSecurityGroup": "Network/networkSecurityGroups/{networkSecurityGroupName}",
        "network:PrivateEndpoint": "Network/privateEndpoints/{privateEndpointName}",
        "network:PrivateDnsZoneGroup": (
            "Network/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/{privateDnsZoneGroupName}"
        ),
        "network:PublicIPAddress": "Network/publicIPAddresses/{publicIpAddressName}",
        "network:Subnet": "Network/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
        "network:VirtualNetwork": "Network/virtualNetworks/{virtualNetworkName}",
        "privatedns:PrivateZone": "Network/privateDnsZones/{privateZoneName}",
        "privatedns:VirtualNetworkLink": (
            "Network/privateDnsZones/{privateZoneName}/virtualNetworkLinks/{virtualNetworkLinkName}"
        ),
        "storage:BlobContainer": (
            "Storage/storageAccounts/{accountName}/blobServices/default/containers/{containerName}"
        ),
        "storage:FileShare": "Storage/storageAccounts/{accountName}/fileServices/default/shares/{shareName}",
        "storage:StorageAccount": "Storage/storageAccounts/{accountName}",
    }.items()
}
"""The types that :func:`infra.arm.clients.remove` takes, by Pulumi's name: a resource's path, with Pulumi's
inputs for its names.

Resource groups are not among them: others may have put something into one."""

_EXTENSIONS = "Microsoft.Authorization/"
"""Resources of this provider extend a ``scope``; the others lie in a resource group."""


def api_version(azure_type: str) -> str:
    """Return the API version for a type, or for a path that begins with one, in any case of letters.

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
    path = REMOVABLE[kind]
    if path.startswith(_EXTENSIONS):
        scope = str(inputs["scope"])
    else:
        scope = f"/subscriptions/{subscription}/resourceGroups/{inputs['resourceGroupName']}"
    return f"{scope.rstrip('/')}/providers/{path.format_map(inputs)}"
