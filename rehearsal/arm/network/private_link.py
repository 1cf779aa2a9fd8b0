"""Network interfaces, private endpoints and the private DNS zones that name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.registry import kind_of
from rehearsal.arm.network.network_types import (
    ENDPOINTS,
    INTERFACES,
    ZONE_GROUPS,
    ZONE_LINKS,
    ZONE_RECORDS,
    ZONES,
)
from rehearsal.arm.network.virtual_networks import free_addresses

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["HOOKS", "machine_of", "subnet_of"]

Body = dict[str, Any]
_OFFERS = {"StorageV2": ("blob", "dfs", "file", "queue", "table", "web"), "FileStorage": ("file",)}
_TTL = 10


# -- interfaces -------------------------------------------------------------------------------------------


def subnet_of(body: Body) -> ResourceId | None:
    """The subnet of an interface's first configuration."""
    for configuration in (body.get("properties") or {}).get("ipConfigurations") or ():
        subnet = (configuration.get("properties") or {}).get("subnet") or {}
        return ResourceId.parse(subnet.get("id", ""))
    return None


def machine_of(subscription: Subscription, rid: ResourceId) -> ResourceId | None:
    """The VM that an interface is attached to."""
    return next((h for h in subscription.holders(rid) if h.type.endswith("/virtualMachines")), None)


def _accept_interface(subscription: Subscription, rid: ResourceId, body: Body, old: Body | None) -> Body:
    subnet = subnet_of(body)
    if subnet is None:
        problem = f"Required property 'subnet' of an IP configuration of {rid} is missing."
        raise ArmError(400, "InvalidRequestFormat", f"Cannot parse the request. {problem}")
    wanted = _wanted_address(body)
    free = list(free_addresses(subscription, subnet)) if old is None else []
    if old is None and wanted is not None and wanted not in free:
        problem = f"IP address {wanted} of {rid} is not available in subnet {subnet}."
        raise ArmError(400, "PrivateIPAddressNotAvailable", problem)
    if old is None and not free:
        problem = f"Subnet {subnet.name} does not have enough capacity for 1 IP addresses."
        raise ArmError(400, "SubnetIsFull", problem)
    return body


def _wanted_address(body: Body) -> str | None:
    own = body["properties"]["ipConfigurations"][0].get("properties") or {}
    static = str(own.get("privateIPAllocationMethod", "Dynamic")).lower() == "static"
    return own.get("privateIPAddress") if static else None


async def _apply_interface(subscription: Subscription, record: Record, _old: Body | None) -> None:
    subnet = subnet_of(record.body)
    if record.address is None and subnet is not None:
        taken = next(free_addresses(subscription, subnet), None)
        record.address = _wanted_address(record.body) or taken


def _release_interface(subscription: Subscription, rid: ResourceId) -> None:
    record = subscription.resources.get(rid.key)
    if record is not None and record.owner:
        problem = f"Cannot delete network interface {rid}: it is used by private endpoint {record.owner}."
        raise ArmError(400, "NicInUseWithPrivateEndpoint", problem)


def _show_interface(subscription: Subscription, record: Record, shown: Body) -> None:
    properties = shown["properties"]
    properties.pop("ipAddress", None)
    properties.pop("ipConfiguration", None)
    for number, configuration in enumerate(properties.get("ipConfigurations") or ()):
        own = configuration["properties"]
        own.setdefault("privateIPAllocationMethod", "Dynamic")
        own.setdefault("privateIPAddressVersion", "IPv4")
        own.setdefault("primary", number == 0)
        if number == 0 and record.address is not None:
            own["privateIPAddress"] = record.address
    properties.setdefault("enableAcceleratedNetworking", False)
    properties.setdefault("enableIPForwarding", False)
    machine = machine_of(subscription, record.id)
    if machine is not None:
        properties["virtualMachine"] = {"id": str(machine)}
    if record.owner:
        properties["privateEndpoint"] = {"id": record.owner}


# -- private endpoints ------------------------------------------------------------------------------------


def _connections(body: Body) -> Iterator[Body]:
    properties = body.get("properties") or {}
    for name in ("privateLinkServiceConnections", "manualPrivateLinkServiceConnections"):
        yield from properties.get(name) or ()


def _accept_endpoint(subscription: Subscription, rid: ResourceId, body: Body, old: Body | None) -> Body:
    subnet = ResourceId.parse(((body.get("properties") or {}).get("subnet") or {}).get("id", ""))
    connections = list(_connections(body))
    if subnet is None or len(connections) != 1:
        problem = f"Private endpoint {rid} needs a subnet and one private link service connection."
        raise ArmError(400, "InvalidRequestFormat", f"Cannot parse the request. {problem}")
    own = connections[0].get("properties") or {}
    target = ResourceId.parse(own.get("privateLinkServiceId", ""))
    if target is None or not subscription.exists(target):
        raise ArmError(
            400,
            "InvalidResourceReference",
            f"Resource {own.get('privateLinkServiceId')} referenced by resource {rid} was not found. Please "
            "make sure that the referenced resource exists, and that both resources are in the same region.",
        )
    offered = _OFFERS.get(subscription.find(target).body.get("kind", ""), ())
    wrong = [g for g in own.get("groupIds") or () if g not in offered]
    if wrong or not own.get("groupIds"):
        # That such a group is refused is Azure's; the code is not known here.
        problem = f"Call to Microsoft.Storage/storageAccounts failed. Error message: The group id {wrong} is "
        raise ArmError(400, "PrivateLinkServiceGroupIdInvalid", f"{problem}not one of {list(offered)}.")
    if old is None and next(free_addresses(subscription, subnet), None) is None:
        problem = f"Subnet {subnet.name} does not have enough capacity for 1 IP addresses."
        raise ArmError(400, "SubnetIsFull", problem)
    return body


async def _apply_endpoint(subscription: Subscription, record: Record, _old: Body | None) -> None:
    nic_id = _interface_id(record)
    if nic_id.key in subscription.resources:
        return
    kind = kind_of(INTERFACES)
    assert kind is not None  # noqa: S101
    configuration = {"name": "privateEndpointIpConfig", "properties": {"subnet": record.properties["subnet"]}}
    body = {"location": record.body["location"], "properties": {"ipConfigurations": [configuration]}}
    nic = Record(nic_id, kind, body, "Succeeded", owner=str(record.id))
    await _apply_interface(subscription, nic, None)
    subscription.resources[nic_id.key] = nic


def _interface_id(record: Record) -> ResourceId:
    name = record.properties.get("customNetworkInterfaceName") or f"{record.id.name}.nic.{record.guid}"
    base = ResourceId(record.id.subscription, record.id.group)
    return base.extended("Microsoft.Network", ("networkInterfaces", name))


async def _remove_endpoint(subscription: Subscription, record: Record) -> None:
    subscription.resources.pop(_interface_id(record).key, None)


def _names(record: Record) -> Iterator[tuple[str, str]]:
    # Account and service of each group that the endpoint leads to.
    for connection in _connections(record.body):
        own = connection.get("properties") or {}
        target = ResourceId.parse(own.get("privateLinkServiceId", ""))
        for group in own.get("groupIds") or ():
            if target is not None:
                yield target.name, group


def _show_endpoint(subscription: Subscription, record: Record, shown: Body) -> None:
    nic = subscription.resources.get(_interface_id(record).key)
    address = [nic.address] if nic is not None and nic.address else []
    properties = shown["properties"]
    properties["networkInterfaces"] = [{"id": str(nic.id)}] if nic is not None else []
    properties["customDnsConfigs"] = [
        {"fqdn": f"{account}.{group}.core.windows.net", "ipAddresses": address}
        for account, group in _names(record)
    ]
    for connection in _connections(shown):
        state = {"status": "Approved", "description": "Auto-Approved", "actionsRequired": "None"}
        connection["properties"].setdefault("privateLinkServiceConnectionState", state)
        connection["properties"]["provisioningState"] = record.state


# -- zones ------------------------------------------------------------------------------------------------


async def _apply_zone_group(subscription: Subscription, record: Record, _old: Body | None) -> None:
    kind = kind_of(ZONE_RECORDS)
    assert kind is not None  # noqa: S101
    endpoint = subscription.find(record.id.parent)
    nic = subscription.resources.get(_interface_id(endpoint).key)
    for zone in _zones(record):
        for account, group in _names(endpoint):
            if zone.name.lower() == f"privatelink.{group}.core.windows.net" and nic is not None:
                rid = zone.child("A", account)
                body = {"properties": {"ttl": _TTL, "aRecords": [{"ipv4Address": nic.address}]}}
                found = Record(rid, kind, body, "Succeeded", owner=str(record.id))
                subscription.resources[rid.key] = found


async def _remove_zone_group(subscription: Subscription, record: Record) -> None:
    for found in list(subscription.of_type(ZONE_RECORDS)):
        if found.owner == str(record.id):
            subscription.resources.pop(found.id.key, None)


def _zones(record: Record) -> Iterator[ResourceId]:
    for configuration in record.properties.get("privateDnsZoneConfigs") or ():
        zone = ResourceId.parse((configuration.get("properties") or {}).get("privateDnsZoneId", ""))
        if zone is not None:
            yield zone


def _accept_link(subscription: Subscription, rid: ResourceId, body: Body, _old: Body | None) -> Body:
    network = ResourceId.parse(((body.get("properties") or {}).get("virtualNetwork") or {}).get("id", ""))
    if network is None or not subscription.exists(network):
        problem = f"The virtual network of link {rid.name} was not found: {network}."
        raise ArmError(400, "BadRequest", problem)
    zone = rid.parent.name
    for other in subscription.of_type(ZONE_LINKS):
        same = other.properties["virtualNetwork"]["id"].lower() == network.key
        if same and other.id.key != rid.key and other.id.parent.name.lower() == zone.lower():
            raise ArmError(
                400,
                "BadRequest",
                "A virtual network cannot be linked to multiple zones with overlapping namespaces. You tried "
                f"to link virtual network with '{zone}' and '{other.id.parent.name}' zones.",
            )
    return body


def _show_link(_: Subscription, _record: Record, shown: Body) -> None:
    shown["properties"].setdefault("registrationEnabled", False)
    shown["properties"]["virtualNetworkLinkState"] = "Completed"


def _show_zone(subscription: Subscription, record: Record, shown: Body) -> None:
    inside = subscription.inside(record.id)
    shown["properties"].update(
        # The start of authority counts too.
        numberOfRecordSets=1 + sum(r.kind.type == ZONE_RECORDS for r in inside),
        numberOfVirtualNetworkLinks=sum(r.kind.type == ZONE_LINKS for r in inside),
    )


HOOKS = {
    INTERFACES: Hooks(
        accept=_accept_interface, apply=_apply_interface, release=_release_interface, show=_show_interface
    ),
    ENDPOINTS: Hooks(
        accept=_accept_endpoint, apply=_apply_endpoint, remove=_remove_endpoint, show=_show_endpoint
    ),
    ZONE_GROUPS: Hooks(apply=_apply_zone_group, remove=_remove_zone_group),
    ZONES: Hooks(show=_show_zone),
    ZONE_LINKS: Hooks(accept=_accept_link, show=_show_link),
}
