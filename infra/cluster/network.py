"""The cluster's network: a private subnet, its NAT gateway, its security group and the load balancer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pulumi
from pulumi_azure_native.network._inputs import (
    AddressSpaceArgs,
    BackendAddressPoolArgs,
    FrontendIPConfigurationArgs,
    InboundNatRuleArgs,
    LoadBalancerSkuArgs,
    NatGatewaySkuArgs,
    PublicIPAddressArgs,
    PublicIPAddressSkuArgs,
    SecurityRuleArgs,
    ServiceEndpointPropertiesFormatArgs,
    SubResourceArgs,
)
from pulumi_azure_native.network._inputs import NetworkSecurityGroupArgs as SecurityGroupReferenceArgs
from pulumi_azure_native.network.load_balancer import LoadBalancer
from pulumi_azure_native.network.nat_gateway import NatGateway
from pulumi_azure_native.network.network_security_group import NetworkSecurityGroup
from pulumi_azure_native.network.public_ip_address import PublicIPAddress
from pulumi_azure_native.network.subnet import Subnet
from pulumi_azure_native.network.virtual_network import VirtualNetwork

from infra.cluster.groups import Place
from infra.config.arm_ids import split
from infra.config.cluster_config import ClusterConfig
from infra.naming import BACKEND_POOL, network_name, subnet_name

__all__ = ["Frontend", "NodeNetwork", "build_frontend", "build_network", "security_rules"]

SSH = 22
FIRST_PORT, LAST_PORT = 50000, 50499
"""Ports of the load balancer: one a node, with room for nodes that replace others."""


@dataclass(frozen=True, slots=True)
class Frontend:
    """The load balancer and its public address."""

    load_balancer_id: pulumi.Output[str]
    pool_id: pulumi.Output[str]
    address: pulumi.Output[str]


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The nodes' network and subnet."""

    vnet_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    guard_id: pulumi.Output[str] | None = None
    """The security group of the nodes' own network interfaces; ``None`` if the subnet has it."""
    dns_servers: pulumi.Output[list[str]] | None = None
    """DNS servers of an existing network's own, empty with Azure's; ``None`` for a network that is made."""

    @property
    def nic_guard(self) -> SecurityGroupReferenceArgs | None:
        """:attr:`guard_id` as network interfaces refer to it."""
        return SecurityGroupReferenceArgs(id=self.guard_id) if self.guard_id is not None else None


def security_rules(config: ClusterConfig) -> list[SecurityRuleArgs]:
    """Return the inbound rules of a node: the operator on port 22, other nodes on any port, nothing else but
    the metrics, which the stack's own virtual network may read.

    Nodes are recognised by their subnet: Azure's tag ``VirtualNetwork`` also covers peered networks and those
    on the premises (learn.microsoft.com service-tags-overview). With ``access: private`` all of those may try
    ssh, because the operator is in one of them.
    """
    ssh = partial(_rule, protocol="Tcp", port=str(SSH))
    rules = [
        _rule("allow-cluster", 200, "Allow", source=config.subnet_prefix),
        _rule("deny-rest", 4096, "Deny", source="*"),
    ]
    if config.metrics_port is not None and config.given_subnet_prefix is None:
        # Of an existing network only the nodes' subnet is known: its rule above has the port, too.
        port = str(config.metrics_port)
        rules.insert(
            1, _rule("allow-metrics", 300, "Allow", source=config.vnet_prefix, protocol="Tcp", port=port)
        )
    if config.access == "private":
        rules.insert(0, ssh("allow-network-ssh", 110, "Allow", source="VirtualNetwork"))
    if config.ssh_from:
        rules.insert(0, ssh("allow-ssh", 100, "Allow", sources=config.ssh_from))
    return rules


def build_network(place: Place, config: ClusterConfig) -> NodeNetwork:
    """Make the nodes' subnet, with a NAT gateway for outbound and a security group for inbound traffic.

    In an existing virtual network only that is made. An existing subnet is not changed: the security group is
    that of the nodes' own network interfaces; NAT and service endpoints are the subnet's.
    """
    guard = NetworkSecurityGroup(
        "guard",
        network_security_group_name=f"{place.name}-nsg",
        security_rules=security_rules(config),
        **place.common,
    )
    if config.subnet_id is not None:
        from infra.cluster.existing_network import checked_network

        given_id = config.subnet_id
        checked = checked_network(split(given_id).parent, config, "", place.opts)
        vnet = checked.vnet_id
        return NodeNetwork(vnet, vnet.apply(lambda _sound: given_id), guard.id, checked.dns_servers)
    outside = _address("way-out-address", f"{place.name}-nat-ip", place)
    way_out = NatGateway(
        "way-out",
        nat_gateway_name=f"{place.name}-nat",
        sku=NatGatewaySkuArgs(name="Standard"),
        public_ip_addresses=[SubResourceArgs(id=outside.id)],
        idle_timeout_in_minutes=10,
        **place.common,
    )
    own_name = subnet_name(place.stack, shared=config.vnet_id is not None)
    vnet_id: pulumi.Output[str]
    dns_servers = None
    if config.vnet_id is not None:
        from infra.cluster.existing_network import checked_network

        checked = checked_network(config.vnet_id, config, own_name, place.opts)
        vnet_id, dns_servers = checked.vnet_id, checked.dns_servers
        above = split(config.vnet_id)
        group: pulumi.Input[str] = above.group
        within: pulumi.Input[str] = vnet_id.apply(lambda _sound: above.names[0])
    else:
        network = VirtualNetwork(
            "network",
            virtual_network_name=network_name(place.stack),
            address_space=AddressSpaceArgs(address_prefixes=[config.vnet_prefix]),
            **place.common,
        )
        vnet_id = network.id
        group, within = place.group.name, network.name
    subnet = Subnet(
        "nodes",
        resource_group_name=group,
        virtual_network_name=within,
        subnet_name=own_name,
        address_prefix=config.subnet_prefix,
        default_outbound_access=False,
        network_security_group=SecurityGroupReferenceArgs(id=guard.id),
        nat_gateway=SubResourceArgs(id=way_out.id),
        service_endpoints=[ServiceEndpointPropertiesFormatArgs(service="Microsoft.Storage")]
        if config.needs_service_endpoint
        else None,
        opts=place.opts,
    )
    return NodeNetwork(vnet_id, subnet.id, dns_servers=dns_servers)


def build_frontend(place: Place) -> Frontend:
    """Make a load balancer that gives every node of its pool a port of one public address.

    Azure decides which port is whose as nodes come and go: query it, never compute it.
    """
    address = _address("address", f"{place.name}-lb-ip", place)
    name = f"{place.name}-lb"
    own_id = place.group.id.apply(lambda group: f"{group}/providers/Microsoft.Network/loadBalancers/{name}")
    balancer = LoadBalancer(
        "load-balancer",
        load_balancer_name=name,
        sku=LoadBalancerSkuArgs(name="Standard"),
        frontend_ip_configurations=[
            FrontendIPConfigurationArgs(name="public", public_ip_address=PublicIPAddressArgs(id=address.id))
        ],
        backend_address_pools=[BackendAddressPoolArgs(name=BACKEND_POOL)],
        inbound_nat_rules=[
            InboundNatRuleArgs(
                name="ssh",
                protocol="Tcp",
                backend_port=SSH,
                frontend_port_range_start=FIRST_PORT,
                frontend_port_range_end=LAST_PORT,
                frontend_ip_configuration=SubResourceArgs(
                    id=own_id.apply(lambda own: f"{own}/frontendIPConfigurations/public")
                ),
                backend_address_pool=SubResourceArgs(
                    id=own_id.apply(lambda own: f"{own}/backendAddressPools/{BACKEND_POOL}")
                ),
                enable_tcp_reset=True,
                idle_timeout_in_minutes=30,
            )
        ],
        **place.common,
    )
    return Frontend(
        load_balancer_id=balancer.id,
        pool_id=balancer.id.apply(lambda own: f"{own}/backendAddressPools/{BACKEND_POOL}"),
        address=address.ip_address.apply(lambda given: given or ""),
    )


def _rule(
    name: str,
    priority: int,
    access: str,
    *,
    source: str | None = None,
    sources: tuple[str, ...] | None = None,
    protocol: str = "*",
    port: str = "*",
) -> SecurityRuleArgs:
    return SecurityRuleArgs(
        name=name,
        priority=priority,
        direction="Inbound",
        access=access,
        protocol=protocol,
        source_port_range="*",
        source_address_prefix=source,
        source_address_prefixes=sources,
        destination_address_prefix="*",
        destination_port_range=port,
    )


def _address(name: str, azure_name: str, place: Place) -> PublicIPAddress:
    return PublicIPAddress(
        name,
        public_ip_address_name=azure_name,
        sku=PublicIPAddressSkuArgs(name="Standard"),
        public_ip_allocation_method="Static",
        public_ip_address_version="IPv4",
        **place.common,
    )
