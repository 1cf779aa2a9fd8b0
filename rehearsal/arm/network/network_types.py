"""The resource types of Microsoft.Network that the emulation knows."""

from __future__ import annotations

from rehearsal.arm.core.resource_type import Kind, embedded

__all__ = ["ENDPOINTS", "INTERFACES", "NETWORK", "ZONES", "ZONE_GROUPS", "ZONE_LINKS", "ZONE_RECORDS"]

INTERFACES = "Microsoft.Network/networkInterfaces"
ENDPOINTS = "Microsoft.Network/privateEndpoints"
ZONE_GROUPS = f"{ENDPOINTS}/privateDnsZoneGroups"
ZONES = "Microsoft.Network/privateDnsZones"
ZONE_LINKS = f"{ZONES}/virtualNetworkLinks"
ZONE_RECORDS = f"{ZONES}/A"

_BALANCER = ("loadBalancerName",)
_LB_IN_USE = "LoadBalancerInUseByVirtualMachineScaleSet"
NETWORK = (
    Kind(
        "Microsoft.Network/virtualNetworks",
        "network.VirtualNetwork",
        "azure-native:network:VirtualNetwork",
        ("virtualNetworkName",),
        children={"subnets": "Microsoft.Network/virtualNetworks/subnets"},
        immutable=("extendedLocation",),
        in_use="InUseSubnetCannotBeDeleted",
    ),
    embedded(
        "virtualNetworks",
        "subnets",
        "Subnet",
        ("virtualNetworkName", "subnetName"),
        "InUseSubnetCannotBeDeleted",
    ),
    Kind(
        "Microsoft.Network/networkSecurityGroups",
        "network.NetworkSecurityGroup",
        "azure-native:network:NetworkSecurityGroup",
        ("networkSecurityGroupName",),
        children={"securityRules": "Microsoft.Network/networkSecurityGroups/securityRules"},
        in_use="InUseNetworkSecurityGroupCannotBeDeleted",
    ),
    embedded(
        "networkSecurityGroups",
        "securityRules",
        "SecurityRule",
        ("networkSecurityGroupName", "securityRuleName"),
    ),
    Kind(
        "Microsoft.Network/natGateways",
        "network.NatGateway",
        "azure-native:network:NatGateway",
        ("natGatewayName",),
        immutable=("sku.name", "zones"),
        in_use="InUseNatGatewayCannotBeDeleted",
    ),
    Kind(
        "Microsoft.Network/publicIPAddresses",
        "network.PublicIPAddress",
        "azure-native:network:PublicIPAddress",
        ("publicIpAddressName",),
        immutable=("sku.name", "publicIPAddressVersion", "publicIPPrefix", "extendedLocation", "zones"),
        in_use="PublicIPAddressCannotBeDeleted",
    ),
    Kind(
        "Microsoft.Network/loadBalancers",
        "network.LoadBalancer",
        "azure-native:network:LoadBalancer",
        _BALANCER,
        children={
            c: f"Microsoft.Network/loadBalancers/{c}"
            for c in (
                "frontendIPConfigurations",
                "backendAddressPools",
                "inboundNatRules",
                "probes",
                "loadBalancingRules",
                "outboundRules",
            )
        },
        immutable=("sku.name", "extendedLocation"),
        in_use=_LB_IN_USE,
    ),
    embedded(
        "loadBalancers",
        "frontendIPConfigurations",
        "FrontendIPConfiguration",
        (*_BALANCER, "frontendIPConfigurationName"),
    ),
    embedded(
        "loadBalancers",
        "backendAddressPools",
        "BackendAddressPool",
        (*_BALANCER, "backendAddressPoolName"),
        _LB_IN_USE,
    ),
    embedded("loadBalancers", "inboundNatRules", "InboundNatRule", (*_BALANCER, "inboundNatRuleName")),
    embedded("loadBalancers", "probes", "Probe", (*_BALANCER, "probeName"), _LB_IN_USE),
    embedded(
        "loadBalancers", "loadBalancingRules", "LoadBalancingRule", (*_BALANCER, "loadBalancingRuleName")
    ),
    embedded("loadBalancers", "outboundRules", "OutboundRule", (*_BALANCER, "outboundRuleName")),
    Kind(
        INTERFACES,
        "network.NetworkInterface",
        "azure-native:network:NetworkInterface",
        ("networkInterfaceName",),
        children={"ipConfigurations": f"{INTERFACES}/ipConfigurations"},
        immutable=("extendedLocation",),
        in_use="NicInUse",
    ),
    Kind(
        ENDPOINTS,
        "network.PrivateEndpoint",
        "azure-native:network:PrivateEndpoint",
        ("privateEndpointName",),
        # Azure changes neither where an endpoint is nor what it leads to.
        immutable=("subnet.id", "privateLinkServiceConnections", "customNetworkInterfaceName"),
        loose=("privateLinkServiceConnections", "manualPrivateLinkServiceConnections"),
    ),
    Kind(
        ZONE_GROUPS,
        "network.PrivateDnsZoneGroup",
        "azure-native:network:PrivateDnsZoneGroup",
        ("privateEndpointName", "privateDnsZoneGroupName"),
        tracked=False,
    ),
    Kind(
        ZONES,
        "privatedns.PrivateZone",
        "azure-native:privatedns:PrivateZone",
        ("privateZoneName",),
        patch_model="privatedns.PrivateZone",
        version="2024-06-01",
    ),
    Kind(
        ZONE_LINKS,
        "privatedns.VirtualNetworkLink",
        "azure-native:privatedns:VirtualNetworkLink",
        ("privateZoneName", "virtualNetworkLinkName"),
        patch_model="privatedns.VirtualNetworkLink",
        immutable=("virtualNetwork.id",),
        version="2024-06-01",
        before_parent=True,
        # A network goes without regard to the zones it is linked to.
        loose=("virtualNetwork",),
    ),
    Kind(
        ZONE_RECORDS,
        "privatedns.RecordSet",
        "",
        ("privateZoneName", "relativeRecordSetName"),
        tracked=False,
        sync=True,
        version="2024-06-01",
    ),
)
