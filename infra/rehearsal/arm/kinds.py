"""The resource types the emulation knows, as data: model, children, Pulumi's names, what cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.rehearsal.arm.models import model

__all__ = ["GROUP", "KINDS", "Kind", "kind_of", "kind_of_token", "known_tokens"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource type, or a child type such as subnets, which lives in a list of its parent's body."""

    type: str
    """E.g. ``Microsoft.Network/virtualNetworks``."""
    model_name: str
    """For :func:`~infra.rehearsal.arm.models.model`."""
    token: str
    """Pulumi's type token."""
    names: tuple[str, ...]
    """Pulumi's input for each name in the id, outermost first."""
    patch_model: str = "network.TagsObject"
    children: Mapping[str, str] = field(default_factory=dict)
    """List under ``properties`` to the type of what it holds."""
    immutable: tuple[str, ...] = ()
    """Paths, as Pulumi's inputs have them, that Azure never changes on a resource that exists."""
    in_use: str = ""
    """Azure's code for deleting one that something else refers to."""
    tracked: bool = True
    """Has a location and tags of its own."""

    @property
    def model(self) -> Any:
        """Microsoft's model of it."""
        return model(self.model_name)

    @property
    def collection(self) -> str:
        """The last part of the type."""
        return self.type.rpartition("/")[2]

    @property
    def is_child(self) -> bool:
        """Lives in its parent's body."""
        return self.type.count("/") > 1


def _child(parent: str, collection: str, name: str, names: tuple[str, ...], in_use: str = "") -> Kind:
    return Kind(
        type=f"Microsoft.Network/{parent}/{collection}",
        model_name=f"network.{name}",
        token=f"azure-native:network:{name}",
        names=names,
        in_use=in_use,
        tracked=False,
    )


_BALANCER = ("loadBalancerName",)
_LB_IN_USE = "LoadBalancerInUseByVirtualMachineScaleSet"
GROUP = Kind(
    "Microsoft.Resources/resourceGroups",
    "resources.ResourceGroup",
    "azure-native:resources:ResourceGroup",
    ("resourceGroupName",),
    patch_model="resources.ResourceGroupPatchable",
    immutable=("managedBy",),
)
_ALL = (
    GROUP,
    Kind(
        "Microsoft.Network/virtualNetworks",
        "network.VirtualNetwork",
        "azure-native:network:VirtualNetwork",
        ("virtualNetworkName",),
        children={"subnets": "Microsoft.Network/virtualNetworks/subnets"},
        immutable=("extendedLocation",),
        in_use="InUseSubnetCannotBeDeleted",
    ),
    _child(
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
    _child(
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
    _child(
        "loadBalancers",
        "frontendIPConfigurations",
        "FrontendIPConfiguration",
        (*_BALANCER, "frontendIPConfigurationName"),
    ),
    _child(
        "loadBalancers",
        "backendAddressPools",
        "BackendAddressPool",
        (*_BALANCER, "backendAddressPoolName"),
        _LB_IN_USE,
    ),
    _child("loadBalancers", "inboundNatRules", "InboundNatRule", (*_BALANCER, "inboundNatRuleName")),
    _child("loadBalancers", "probes", "Probe", (*_BALANCER, "probeName"), _LB_IN_USE),
    _child("loadBalancers", "loadBalancingRules", "LoadBalancingRule", (*_BALANCER, "loadBalancingRuleName")),
    _child("loadBalancers", "outboundRules", "OutboundRule", (*_BALANCER, "outboundRuleName")),
    Kind(
        "Microsoft.Compute/virtualMachineScaleSets",
        "compute.VirtualMachineScaleSet",
        "azure-native:compute:VirtualMachineScaleSet",
        ("vmScaleSetName",),
        patch_model="compute.VirtualMachineScaleSetUpdate",
        immutable=(
            "orchestrationMode",
            "extendedLocation",
            "virtualMachineProfile.priority",
            "virtualMachineProfile.osProfile.adminUsername",
            "virtualMachineProfile.osProfile.computerNamePrefix",
        ),
    ),
)
KINDS: Mapping[str, Kind] = {k.type.lower(): k for k in _ALL}
_STANDALONE = {"subnets", "securityRules", "inboundNatRules"}
_TOKENS = {k.token: k for k in _ALL if not k.is_child or k.collection in _STANDALONE}


def kind_of(resource_type: str) -> Kind | None:
    """The kind of an ARM type, in any case of letters.

    >>> kind_of("microsoft.network/NATGATEWAYS").token
    'azure-native:network:NatGateway'
    """
    return KINDS.get(resource_type.lower())


def kind_of_token(token: str) -> Kind | None:
    """The kind of a Pulumi type token; None for what the emulation does not offer as a resource."""
    return _TOKENS.get(token)


def known_tokens() -> tuple[str, ...]:
    """Every Pulumi type the emulation offers, sorted."""
    return tuple(sorted(_TOKENS))
