"""Private endpoints with their DNS zone groups."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.arm.core.errors import ArmError, dangling, subnet_full
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.references import at, reference
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.network_interfaces import INTERFACES, assign_address
from rehearsal.arm.network.private_dns import RECORDS, linked_zones
from rehearsal.arm.network.virtual_networks import free_addresses
from rehearsal.arm.services import Services
from rehearsal.arm.storage.accounts import SERVICES

__all__ = ["ENTRIES", "account_addresses", "resolved_accounts"]

_TTL = 10
_ENDPOINTS = ResourceType(
    "Microsoft.Network/privateEndpoints",
    "network.PrivateEndpoint",
    ("privateEndpointName",),
    # Azure changes neither where an endpoint is nor what it leads to.
    immutable=("subnet.id", "privateLinkServiceConnections", "customNetworkInterfaceName"),
    loose=("privateLinkServiceConnections", "manualPrivateLinkServiceConnections"),
    group_rank=4,
    guid_name="resourceGuid",
)
_ZONE_GROUPS = ResourceType(
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    "network.PrivateDnsZoneGroup",
    ("privateEndpointName", "privateDnsZoneGroupName"),
    tracked=False,
    guid_name="resourceGuid",
)


class _EndpointHooks(Hooks[Services]):
    """An endpoint makes an interface for itself in its subnet."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a target that does not exist, and groups that it does not offer."""
        subnet = reference(body, "properties", "subnet")
        connections = list(_connections(body))
        if subnet is None or len(connections) != 1:
            problem = f"Private endpoint {rid} needs a subnet and one private link service connection."
            raise ArmError(400, "InvalidRequestFormat", f"Cannot parse the request. {problem}")
        own = connections[0].get("properties") or {}
        target = ResourceId.parse(own.get("privateLinkServiceId", ""))
        if target is None or not self.services.subscription.exists(target):
            raise dangling(own.get("privateLinkServiceId"), rid)
        offered = SERVICES.get(self.services.subscription.find(target).body.get("kind", ""), ())
        wrong = [g for g in own.get("groupIds") or () if g not in offered]
        if wrong or not own.get("groupIds"):
            # That such a group is refused is Azure's; the code is not known here.
            call = "Call to Microsoft.Storage/storageAccounts failed."
            problem = f"{call} Error message: The group id {wrong} is not one of {list(offered)}."
            raise ArmError(400, "PrivateLinkServiceGroupIdInvalid", problem)
        if old is None and next(free_addresses(self.services.subscription, subnet), None) is None:
            raise subnet_full(subnet.name, 1)
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        nic_id = _interface_id(record)
        if nic_id.key in self.services.subscription.resources:
            return
        configuration = {
            "name": "privateEndpointIpConfig",
            "properties": {"subnet": record.properties["subnet"]},
        }
        body = {"location": record.body["location"], "properties": {"ipConfigurations": [configuration]}}
        nic = Record(nic_id, INTERFACES, body, "Succeeded", owner=str(record.id))
        assign_address(self.services.subscription, nic)
        self.services.subscription.add(nic)
        await self.services.blobs.publish()

    async def remove(self, record: Record) -> None:
        self.services.subscription.resources.pop(_interface_id(record).key, None)
        await self.services.blobs.publish()

    def show(self, record: Record, shown: Body) -> None:
        """Add the interface, the DNS names and the state of the connection."""
        nic = self.services.subscription.resources.get(_interface_id(record).key)
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


class _ZoneGroupHooks(Hooks[Services]):
    """A group puts the endpoint's address into private DNS zones."""

    async def apply(self, record: Record, old: Body | None) -> None:
        """Create a DNS record in each zone that fits the endpoint."""
        endpoint = self.services.subscription.find(record.id.parent)
        nic = self.services.subscription.resources.get(_interface_id(endpoint).key)
        for zone in _zones(record):
            for account, group in _names(endpoint):
                if zone.name.lower() == f"privatelink.{group}.core.windows.net" and nic is not None:
                    rid = zone.child("A", account)
                    body = {"properties": {"ttl": _TTL, "aRecords": [{"ipv4Address": nic.address}]}}
                    found = Record(rid, RECORDS, body, "Succeeded", owner=str(record.id))
                    self.services.subscription.add(found)
        await self.services.blobs.publish()

    async def remove(self, record: Record) -> None:
        for found in list(self.services.subscription.of_type(RECORDS.type)):
            if found.owner == str(record.id):
                self.services.subscription.resources.pop(found.id.key, None)
        await self.services.blobs.publish()


def account_addresses(subscription: Subscription, network: ResourceId) -> dict[str, str]:
    """Return the addresses of the private endpoints for blobs in a network, with their accounts' keys."""
    found: dict[str, str] = {}
    for record in subscription.of_type(_ENDPOINTS.type):
        subnet = reference(record.body, "properties", "subnet")
        nic = subscription.resources.get(_interface_id(record).key)
        if subnet is None or subnet.parent.key != network.key or nic is None or nic.address is None:
            continue
        for connection in _connections(record.body):
            own = connection.get("properties") or {}
            if "blob" in (own.get("groupIds") or ()):
                found[nic.address] = str(own.get("privateLinkServiceId", "")).lower()
    return found


def resolved_accounts(subscription: Subscription, network: ResourceId) -> dict[str, str]:
    """Return the accounts whose blob endpoint a network's private zones resolve, with the address."""
    zones = {zone.key for zone in linked_zones(subscription, network)}
    return {
        record.id.name: record.properties["aRecords"][0]["ipv4Address"]
        for record in subscription.of_type(RECORDS.type)
        if record.id.parent.key in zones
        and record.id.parent.name.lower() == "privatelink.blob.core.windows.net"
    }


def _connections(body: Body) -> Iterator[Body]:
    properties = body.get("properties") or {}
    for name in ("privateLinkServiceConnections", "manualPrivateLinkServiceConnections"):
        yield from properties.get(name) or ()


def _interface_id(record: Record) -> ResourceId:
    name = record.properties.get("customNetworkInterfaceName") or f"{record.id.name}.nic.{record.guid}"
    base = ResourceId(record.id.subscription, record.id.group)
    return base.extended("Microsoft.Network", ("networkInterfaces", name))


def _names(record: Record) -> Iterator[tuple[str, str]]:
    # Account and service of each group that the endpoint leads to.
    for connection in _connections(record.body):
        own = connection.get("properties") or {}
        target = ResourceId.parse(own.get("privateLinkServiceId", ""))
        for group in own.get("groupIds") or ():
            if target is not None:
                yield target.name, group


def _zones(record: Record) -> Iterator[ResourceId]:
    for configuration in record.properties.get("privateDnsZoneConfigs") or ():
        zone = ResourceId.parse(at(configuration, "properties", "privateDnsZoneId") or "")
        if zone is not None:
            yield zone


ENTRIES = ((_ENDPOINTS, _EndpointHooks), (_ZONE_GROUPS, _ZoneGroupHooks))
