"""Private endpoints: an address in the nodes' subnet for a storage account, by the account's own name."""

from __future__ import annotations

import pulumi
from pulumi_azure_native.network._inputs import (
    PrivateDnsZoneConfigArgs,
    PrivateLinkServiceConnectionArgs,
    SubnetArgs,
)
from pulumi_azure_native.network.private_dns_zone_group import PrivateDnsZoneGroup
from pulumi_azure_native.network.private_endpoint import PrivateEndpoint
from pulumi_azure_native.privatedns._inputs import SubResourceArgs
from pulumi_azure_native.privatedns.private_zone import PrivateZone
from pulumi_azure_native.privatedns.virtual_network_link import VirtualNetworkLink

from infra.cluster.groups import Place
from infra.cluster.network import NodeNetwork

__all__ = ["build_private_endpoint"]


def build_private_endpoint(
    place: Place, network: NodeNetwork, service: str, account_id: pulumi.Output[str]
) -> list[pulumi.Resource]:
    """Make a private endpoint for one service (``blob`` or ``file``) of a storage account.

    A private zone linked to the network resolves the account's names to it. Azure links one zone of a name to
    a network: of two stacks in one existing network only the first can have an endpoint. Return what must
    exist before the name resolves.
    """
    endpoint = PrivateEndpoint(
        f"{service}-endpoint",
        private_endpoint_name=f"{place.name}-{service}",
        subnet=SubnetArgs(id=network.subnet_id),
        private_link_service_connections=[
            PrivateLinkServiceConnectionArgs(
                name=service, private_link_service_id=account_id, group_ids=[service]
            )
        ],
        **place.common,
    )
    everywhere = {**place.common, "location": "Global"}
    zone = PrivateZone(
        f"{service}-zone", private_zone_name=f"privatelink.{service}.core.windows.net", **everywhere
    )
    link = VirtualNetworkLink(
        f"{service}-zone-link",
        private_zone_name=zone.name,
        virtual_network_link_name=place.name,
        registration_enabled=False,
        virtual_network=SubResourceArgs(id=network.vnet_id),
        **everywhere,
    )
    records = PrivateDnsZoneGroup(
        f"{service}-records",
        private_endpoint_name=endpoint.name,
        private_dns_zone_group_name="default",
        private_dns_zone_configs=[PrivateDnsZoneConfigArgs(name=service, private_dns_zone_id=zone.id)],
        resource_group_name=place.group.name,
        opts=place.opts,
    )
    return [link, records]
