"""Public IP addresses, and the NAT gateways that nodes go out by.

Addresses are those of this machine's loopback interface. Which subnets a gateway opens is decided in
:mod:`rehearsal.arm.network.virtual_networks`.
"""

from __future__ import annotations

from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import InUse, ResourceType
from rehearsal.arm.services import Services

__all__ = ["ENTRIES"]

_ADDRESSES = ResourceType(
    "Microsoft.Network/publicIPAddresses",
    "network.PublicIPAddress",
    ("publicIpAddressName",),
    immutable=("sku.name", "publicIPAddressVersion", "publicIPPrefix", "extendedLocation", "zones"),
    in_use=InUse(
        "PublicIPAddressCannotBeDeleted",
        "Public IP address {rid} can not be deleted since it is still allocated to resource {holder}. "
        "In order to delete the public IP, disassociate/detach the Public IP address from the resource. "
        "To learn how to do this, see aka.ms/deletepublicip.",
    ),
    guid_name="resourceGuid",
)


class _PublicIpHooks(Hooks[Services]):
    """Each resource holds one address, from its creation to its deletion."""

    async def apply(self, record: Record, old: Body | None) -> None:
        if record.address is None:
            record.address = await self.services.machines.public_address()

    async def remove(self, record: Record) -> None:
        if record.address is not None:
            await self.services.machines.release_address(record.address)

    def show(self, record: Record, shown: Body) -> None:
        """Add the address and the frontend that has it."""
        if record.address is None:
            return
        shown["properties"]["ipAddress"] = record.address
        holder = next(self.services.subscription.holders(record.id), None)
        if holder is not None and holder.type.endswith("/frontendIPConfigurations"):
            shown["properties"]["ipConfiguration"] = {"id": str(holder)}


_GATEWAYS = ResourceType(
    "Microsoft.Network/natGateways",
    "network.NatGateway",
    ("natGatewayName",),
    immutable=("sku.name", "zones"),
    in_use=InUse("InUseNatGatewayCannotBeDeleted"),
    guid_name="resourceGuid",
    referrers="subnets",
)
ENTRIES = ((_ADDRESSES, _PublicIpHooks), (_GATEWAYS, Hooks))
