"""Virtual networks with their subnets."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import combinations

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.references import at, reference, references
from rehearsal.arm.core.resource_type import InUse, ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.nat_rules import configurations
from rehearsal.arm.services import Services

__all__ = ["ENTRIES", "free_addresses", "outbound_subnets"]

_RESERVED = 4
_SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets"
_IN_USE = InUse(
    "InUseSubnetCannotBeDeleted",
    "Subnet {rid.name} is in use by {holder} and cannot be deleted. In order to delete the subnet, "
    "delete all the resources within the subnet. See aka.ms/deletesubnet.",
)
_NETWORKS = ResourceType(
    "Microsoft.Network/virtualNetworks",
    "network.VirtualNetwork",
    ("virtualNetworkName",),
    children={"subnets": "Microsoft.Network/virtualNetworks/subnets"},
    immutable=("extendedLocation",),
    keeps=("subnets",),
    in_use=_IN_USE,
    group_rank=1,
    guid_name="resourceGuid",
)
_SUBNETS = ResourceType(
    "Microsoft.Network/virtualNetworks/subnets",
    "network.Subnet",
    ("virtualNetworkName", "subnetName"),
    in_use=_IN_USE,
    tracked=False,
    embedded=True,
)


class _VirtualNetworkHooks(Hooks[Services]):
    """A network of this machine stands behind each virtual network."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse malformed prefixes, subnets outside the network and subnets that overlap."""
        _check_prefixes(rid, body)
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        """Create the network, or create it again after its prefix changed while no VM was in it."""
        name, (prefix, *_) = str(record.id), _prefixes(record.body)
        if old is not None and _prefixes(old)[0] != prefix:
            sets = self.services.subscription.scale_sets.values()
            if any(s.network == name and s.instances for s in sets):
                record.body = old
                raise ArmError(
                    400,
                    "InUsePrefixCannotBeDeleted",
                    f"IpPrefix {_prefixes(old)[0]} on virtual network {record.id.name} has active "
                    "allocations and cannot be deleted.",
                )
            await self.services.blobs.leave(name)
            await self.services.machines.delete_network(name)
        own_dns = bool((record.properties.get("dhcpOptions") or {}).get("dnsServers"))
        await self.services.machines.create_network(name, prefix, own_dns=own_dns)
        await self.services.machines.set_outbound(name, outbound_subnets(self.services.subscription, record))
        await self.services.blobs.publish()

    async def remove(self, record: Record) -> None:
        await self.services.blobs.leave(str(record.id))
        await self.services.machines.delete_network(str(record.id))


def _prefixes(body: Body) -> list[str]:
    """Return a network's address prefixes."""
    return list(at(body, "properties", "addressSpace", "addressPrefixes") or ())


def _network(rid: ResourceId, prefix: str) -> ipaddress.IPv4Network:
    try:
        loose = ipaddress.IPv4Network(prefix, strict=False)
    except ValueError:
        raise ArmError(
            400,
            "InvalidAddressPrefixFormat",
            f"Address prefix {prefix} of resource {rid} is not formatted correctly. It should follow CIDR "
            "notation, for example 10.0.0.0/24.",
        ) from None
    if str(loose) != prefix:
        raise ArmError(
            400,
            "InvalidCIDRNotation",
            f"The address prefix {prefix} in resource {rid} has an invalid CIDR notation. For the given "
            f"prefix length, the address prefix should be {loose}.",
        )
    return loose


def _subnet_prefix(subnet: Body) -> str:
    properties = subnet.get("properties") or {}
    return str(properties.get("addressPrefix") or next(iter(properties.get("addressPrefixes") or ()), ""))


def _check_prefixes(rid: ResourceId, body: Body) -> None:
    if not _prefixes(body):
        raise ArmError(400, "InvalidRequestFormat", f"Resource {rid} has no addressSpace.addressPrefixes.")
    space = [_network(rid, p) for p in _prefixes(body)]
    found = []
    for subnet in body["properties"].get("subnets") or ():
        name = subnet.get("name", "")
        own = _network(rid.child("subnets", name), _subnet_prefix(subnet))
        if not any(own.subnet_of(s) for s in space):
            raise ArmError(
                400,
                "NetcfgSubnetRangeOutsideVnet",
                f"Subnet '{name}' is not valid because its IP address range is outside the IP address range "
                f"of virtual network '{rid.name}'.",
            )
        found.append((name, own))
    for (_, one), (name, other) in combinations(found, 2):
        if one.overlaps(other):
            raise ArmError(
                400,
                "NetcfgSubnetRangesOverlap",
                f"Subnet '{name}' is not valid because its IP address range overlaps with that of an "
                f"existing subnet in virtual network '{rid.name}'.",
            )


def outbound_subnets(subscription: Subscription, network: Record) -> list[str]:
    """Return the prefixes of the subnets whose VMs reach the internet.

    These have a NAT gateway with a public address, or Azure's default access, which subnets declared private
    lack, and VMs in a standard load balancer's pool (learn.microsoft.com, "Default outbound access in Azure"
    and "Use SNAT for outbound connections").
    """
    found = []
    for subnet in network.children("subnets"):
        properties = subnet.get("properties") or {}
        gateway = reference(subnet, "properties", "natGateway")
        if gateway is not None:
            own = subscription.find(gateway).properties
            is_open = bool(own.get("publicIpAddresses") or own.get("publicIpPrefixes"))
        else:
            rid = network.id.child("subnets", subnet["name"])
            is_private = properties.get("defaultOutboundAccess") is False
            is_open = not is_private and not _is_balanced(subscription, rid)
        if is_open:
            found.append(_subnet_prefix(subnet))
    return found


def _is_balanced(subscription: Subscription, subnet: ResourceId) -> bool:
    """Whether VMs of a scale set in this subnet are in a load balancer's pool."""
    return any(
        own["properties"].get("loadBalancerBackendAddressPools")
        and (inside := reference(own, "properties", "subnet")) is not None
        and inside.key == subnet.key
        for scale_set in subscription.of_type(_SCALE_SETS)
        for _, own in configurations(scale_set)
    )


def free_addresses(subscription: Subscription, subnet: ResourceId) -> Iterator[str]:
    """Yield the free addresses of a subnet, lowest first; Azure keeps the first four and the last."""
    prefix = ipaddress.IPv4Network(_subnet_prefix(subscription.element(subnet)))
    network = str(subscription.find(subnet).id)
    sets = [s for s in subscription.scale_sets.values() if s.network == network]
    taken = {i.machine.private_ip for s in sets for i in s.instances.values()}
    taken |= {
        r.address
        for r in subscription.of_type("Microsoft.Network/networkInterfaces")
        if r.address is not None and any(str(t.parent) == network for _, t in references(r.id, r.body, ()))
    }
    for offset in range(_RESERVED, prefix.num_addresses - 1):
        address = str(prefix[offset])
        if address not in taken:
            yield address


ENTRIES = ((_NETWORKS, _VirtualNetworkHooks), (_SUBNETS, Hooks))
