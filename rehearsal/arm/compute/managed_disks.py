"""Managed disks, which only exist: a node has the disk of this machine."""

from __future__ import annotations

from rehearsal.arm.core.errors import ArmError, missing
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.network_interfaces import vm_of
from rehearsal.arm.services import Services

__all__ = ["DISKS", "ENTRIES"]

_GIB = 1 << 30
DISKS = ResourceType(
    "Microsoft.Compute/disks",
    "compute.Disk",
    ("diskName",),
    patch_model="compute.DiskUpdate",
    immutable=("creationData", "zones", "osType"),
    merges=True,
    created=202,
    version="2024-03-02",
)


class _DiskHooks(Hooks[Services]):
    """A disk knows the VM that it is attached to."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a disk without a source or a size, and one that shrinks."""
        properties = body["properties"]
        if not properties.get("creationData"):
            raise missing("disk.creationData")
        size, before = properties.get("diskSizeGB"), old and old["properties"].get("diskSizeGB")
        if properties["creationData"].get("createOption") == "Empty" and not size:
            raise missing("disk.diskSizeGB")
        if before is not None and size is not None and size < before:
            problem = (
                f"New disk size specified ({size} GB) of disk {rid.name} is less than it has ({before} GB)."
            )
            raise ArmError(
                409, "OperationNotAllowed", f"{problem} Shrinking of managed disks is not supported."
            )
        return body

    def release(self, rid: ResourceId) -> None:
        """Refuse to delete a disk that is attached."""
        holder = _holder(self.services.subscription, rid)
        if holder:
            raise ArmError(409, "OperationNotAllowed", f"Disk {rid.name} is attached to VM {holder}.")

    def show(self, record: Record, shown: Body) -> None:
        holder = _holder(self.services.subscription, record.id)
        properties = shown["properties"]
        properties.update(
            diskState="Attached" if holder else "Unattached",
            timeCreated=record.created,
            uniqueId=record.guid,
            diskSizeBytes=(properties.get("diskSizeGB") or 0) * _GIB,
        )
        if holder:
            shown["managedBy"] = holder


def _holder(subscription: Subscription, rid: ResourceId) -> str:
    record = subscription.resources.get(rid.key)
    holder = vm_of(subscription, rid)
    return str(holder or (record.owner if record is not None else ""))


ENTRIES = ((DISKS, _DiskHooks),)
