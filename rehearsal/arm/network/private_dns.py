"""Private DNS zones with their links to networks and their records."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.references import reference
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.services import Services

__all__ = ["ENTRIES", "RECORDS", "linked_zones"]

_VERSION = "2024-06-01"
_ZONES = ResourceType(
    "Microsoft.Network/privateDnsZones",
    "privatedns.PrivateZone",
    ("privateZoneName",),
    patch_model="privatedns.PrivateZone",
    version=_VERSION,
    guid_name="resourceGuid",
)
_LINKS = ResourceType(
    f"{_ZONES.type}/virtualNetworkLinks",
    "privatedns.VirtualNetworkLink",
    ("privateZoneName", "virtualNetworkLinkName"),
    patch_model="privatedns.VirtualNetworkLink",
    immutable=("virtualNetwork.id",),
    version=_VERSION,
    before_parent=True,
    # A network is deleted without regard to the zones that it is linked to.
    loose=("virtualNetwork",),
    guid_name="resourceGuid",
)
RECORDS = ResourceType(
    f"{_ZONES.type}/A",
    "privatedns.RecordSet",
    ("privateZoneName", "relativeRecordSetName"),
    pulumi_type="",
    tracked=False,
    sync=True,
    version=_VERSION,
    guid_name="resourceGuid",
)


class _ZoneHooks(Hooks[Services]):
    """A zone counts what is in it."""

    def show(self, record: Record, shown: Body) -> None:
        inside = self.services.subscription.inside(record.id)
        shown["properties"].update(
            # The start of authority counts too.
            numberOfRecordSets=1 + sum(r.kind.type == RECORDS.type for r in inside),
            numberOfVirtualNetworkLinks=sum(r.kind.type == _LINKS.type for r in inside),
        )


class _ZoneLinkHooks(Hooks[Services]):
    """A link ties a network to a zone."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a network that does not exist, or is linked to a zone of the same name."""
        network = reference(body, "properties", "virtualNetwork")
        if network is None or not self.services.subscription.exists(network):
            problem = f"The virtual network of link {rid.name} was not found: {network}."
            raise ArmError(400, "BadRequest", problem)
        zone = rid.parent.name
        for other in self.services.subscription.of_type(_LINKS.type):
            same = other.properties["virtualNetwork"]["id"].lower() == network.key
            if same and other.id.key != rid.key and other.id.parent.name.lower() == zone.lower():
                raise ArmError(
                    400,
                    "BadRequest",
                    "A virtual network cannot be linked to multiple zones with overlapping namespaces. You "
                    f"tried to link virtual network with '{zone}' and '{other.id.parent.name}' zones.",
                )
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        await self.services.blobs.publish()

    async def remove(self, record: Record) -> None:
        await self.services.blobs.publish()

    def show(self, record: Record, shown: Body) -> None:
        shown["properties"].setdefault("registrationEnabled", False)
        shown["properties"]["virtualNetworkLinkState"] = "Completed"


def linked_zones(subscription: Subscription, network: ResourceId) -> Iterator[ResourceId]:
    """Yield the zones that a network resolves names by."""
    for link in subscription.of_type(_LINKS.type):
        found = reference(link.body, "properties", "virtualNetwork")
        if found is not None and found.key == network.key and link.state != "Deleting":
            yield link.id.parent


ENTRIES = ((_ZONES, _ZoneHooks), (_LINKS, _ZoneLinkHooks), (RECORDS, Hooks))
