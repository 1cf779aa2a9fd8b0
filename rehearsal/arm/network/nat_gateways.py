"""NAT gateways, which only exist: nodes reach nothing outside their network."""

from __future__ import annotations

from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.resource_type import InUse, ResourceType

__all__ = ["ENTRIES"]

ENTRIES = (
    (
        ResourceType(
            "Microsoft.Network/natGateways",
            "network.NatGateway",
            ("natGatewayName",),
            immutable=("sku.name", "zones"),
            in_use=InUse("InUseNatGatewayCannotBeDeleted"),
            guid_name="resourceGuid",
            referrers="subnets",
        ),
        Hooks,
    ),
)
