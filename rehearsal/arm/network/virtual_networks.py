"""Virtual networks, subnets, security rules and load balancers: what Azure checks of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.references import references
from rehearsal.arm.network.network_types import INTERFACES

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = [
    "HOOKS",
    "apply_network",
    "check_balancer",
    "check_network",
    "check_security_rules",
    "free_addresses",
    "prefixes",
]

_RESERVED = 4
_TOP_PORT = 65534


def prefixes(body: dict[str, Any]) -> list[str]:
    """A network's address prefixes."""
    space = (body.get("properties") or {}).get("addressSpace") or {}
    return list(space.get("addressPrefixes") or ())


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


def _subnet_prefix(subnet: dict[str, Any]) -> str:
    properties = subnet.get("properties") or {}
    return str(properties.get("addressPrefix") or next(iter(properties.get("addressPrefixes") or ()), ""))


def check_network(rid: ResourceId, body: dict[str, Any]) -> None:
    """Raises for prefixes that are none, subnets outside the network and subnets that overlap."""
    if not prefixes(body):
        raise ArmError(400, "InvalidRequestFormat", f"Resource {rid} has no addressSpace.addressPrefixes.")
    space = [_network(rid, p) for p in prefixes(body)]
    found = []
    for subnet in (body.get("properties") or {}).get("subnets") or ():
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


async def apply_network(subscription: Subscription, record: Record, old: dict[str, Any] | None) -> None:
    """Makes the network, or makes it anew when its prefix changed while no VM was in it."""
    name, (prefix, *_) = str(record.id), prefixes(record.body)
    if old is not None and prefixes(old)[0] != prefix:
        if any(s.network == name and s.instances for s in subscription.scale_sets.values()):
            record.body = old
            raise ArmError(
                400,
                "InUsePrefixCannotBeDeleted",
                f"IpPrefix {prefixes(old)[0]} on virtual network {record.id.name} has active allocations and "
                "cannot be deleted.",
            )
        await subscription.machines.delete_network(name)
    await subscription.machines.create_network(name, prefix)


def free_addresses(subscription: Subscription, subnet: ResourceId) -> Iterator[str]:
    """Addresses of a subnet that no VM has, lowest first; Azure keeps the first four and the last."""
    prefix = ipaddress.IPv4Network(_subnet_prefix(subscription.element(subnet)))
    network = str(subscription.find(subnet).id)
    sets = [s for s in subscription.scale_sets.values() if s.network == network]
    taken = {i.machine.private_ip for s in sets for i in s.instances.values()}
    taken |= {
        r.address
        for r in subscription.of_type(INTERFACES)
        if r.address is not None and any(str(t.parent) == network for _, t in references(r.id, r.body, ()))
    }
    for offset in range(_RESERVED, prefix.num_addresses - 1):
        address = str(prefix[offset])
        if address not in taken:
            yield address


def check_security_rules(body: dict[str, Any]) -> None:
    """Raises when two rules of one direction have the same priority."""
    seen: dict[tuple[str, Any], str] = {}
    for rule in (body.get("properties") or {}).get("securityRules") or ():
        properties = rule.get("properties") or {}
        key = (str(properties.get("direction")).lower(), properties.get("priority"))
        if key in seen:
            raise ArmError(
                400,
                "SecurityRuleConflict",
                f"Security rule {rule['name']} conflicts with rule {seen[key]}. Rules cannot have the same "
                "Priority and Direction.",
            )
        seen[key] = rule["name"]


def check_balancer(subscription: Subscription, rid: ResourceId, body: dict[str, Any]) -> None:
    """Raises for NAT rules without a usable port range and for public addresses that others hold."""
    properties = body.get("properties") or {}
    ranges: dict[str, list[tuple[int, int, str]]] = {}
    for rule in properties.get("inboundNatRules") or ():
        own = rule.get("properties") or {}
        if not own.get("backendAddressPool"):
            continue
        low, high = own.get("frontendPortRangeStart"), own.get("frontendPortRangeEnd")
        if low is None or high is None or not 1 <= low <= high <= _TOP_PORT or not own.get("backendPort"):
            raise ArmError(
                400,
                "InvalidInboundNatRulePortRange",
                f"Inbound NAT rule {rule['name']} of {rid} refers to a backend address pool and must have "
                f"backendPort and frontendPortRangeStart <= frontendPortRangeEnd between 1 and {_TOP_PORT}.",
            )
        frontend = str((own.get("frontendIPConfiguration") or {}).get("id", "")).lower()
        for other_low, other_high, other in ranges.setdefault(frontend, []):
            if low <= other_high and other_low <= high:
                raise ArmError(
                    400,
                    "RulesUseSameFrontendPortProtocolAndIPConfig",
                    f"Load balancer rules {other} and {rule['name']} of {rid} use the same frontend ports.",
                )
        ranges[frontend].append((low, high, rule["name"]))
    for frontend in properties.get("frontendIPConfigurations") or ():
        public = ((frontend.get("properties") or {}).get("publicIPAddress") or {}).get("id")
        address = ResourceId.parse(public) if public else None
        for holder in subscription.holders(address) if address is not None else ():
            if not f"{holder.key}/".startswith(f"{rid.key}/"):
                raise ArmError(
                    400,
                    "PublicIPAddressInUse",
                    f"Resource {rid.child('frontendIPConfigurations', frontend['name'])} is referencing "
                    f"public IP address {address} that is already allocated to resource {holder}.",
                )


# -- what the resource types do ---------------------------------------------------------------------------

Body = dict[str, Any]


def _accept_network(_: Subscription, rid: ResourceId, body: Body, _old: Body | None) -> Body:
    check_network(rid, body)
    return body


def _accept_rules(_: Subscription, _rid: ResourceId, body: Body, _old: Body | None) -> Body:
    check_security_rules(body)
    return body


def _accept_balancer(subscription: Subscription, rid: ResourceId, body: Body, _old: Body | None) -> Body:
    check_balancer(subscription, rid, body)
    return body


async def _remove_network(subscription: Subscription, record: Record) -> None:
    await subscription.machines.delete_network(str(record.id))


async def _apply_address(subscription: Subscription, record: Record, _old: Body | None) -> None:
    if record.address is None:
        record.address = await subscription.machines.public_address()


async def _release_address(subscription: Subscription, record: Record) -> None:
    if record.address is not None:
        await subscription.machines.release_address(record.address)


async def _reconcile(subscription: Subscription, _record: Record, _old: Body | None = None) -> None:
    await subscription.balancer.reconcile()


HOOKS = {
    "Microsoft.Network/virtualNetworks": Hooks(
        accept=_accept_network, apply=apply_network, remove=_remove_network
    ),
    "Microsoft.Network/networkSecurityGroups": Hooks(accept=_accept_rules),
    "Microsoft.Network/publicIPAddresses": Hooks(apply=_apply_address, remove=_release_address),
    "Microsoft.Network/loadBalancers": Hooks(accept=_accept_balancer, apply=_reconcile, remove=_reconcile),
}
