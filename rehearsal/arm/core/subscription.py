"""State of the emulated subscription: what exists, and what refers to what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rehearsal.arm.core.errors import ArmError, group_not_found, not_found
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record, ScaleSet
from rehearsal.arm.core.references import references
from rehearsal.arm.core.registry import ResourceTypes

__all__ = ["OPERATOR", "Subscription"]

OPERATOR = "00000000-0000-0000-0000-00000000000b"
"""Object id of the operator, who owns the subscription."""


class Subscription:
    """Everything in one subscription; the resource manager writes it."""

    def __init__(self, subscription_id: str, types: ResourceTypes) -> None:
        self.id, self.types = subscription_id, types
        self.groups: dict[str, Record] = {}
        self.resources: dict[str, Record] = {}
        self.scale_sets: dict[str, ScaleSet] = {}
        self.virtual_machines: dict[str, Instance] = {}
        """VMs outside scale sets, by the key of their resource."""
        self.people: set[str] = {OPERATOR}
        """Object ids of the directory's users."""
        self.service_principals: set[str] = set()
        """Object ids of the directory's applications; those of managed identities are resources."""
        self.taken_names: set[str] = set()
        """Globally unique names, of storage accounts, that other subscriptions have."""

    def group(self, rid: ResourceId) -> Record:
        """Return the resource group that ``rid`` is or lies in."""
        found = self.groups.get(ResourceId(self.id, rid.group).key)
        if found is None:
            raise group_not_found(rid.group)
        return found

    def find(self, rid: ResourceId) -> Record:
        """Return the resource of this id; for an embedded child, its parent."""
        if rid.group:
            group = self.group(rid)
            if not rid.parts:
                return group
        owner = self._owner(rid)
        found = self.resources.get(owner.key) or self.implied(owner)
        if found is None or (owner is not rid and self._element(found, rid) is None):
            raise not_found(rid.short, rid.group)
        return found

    def element(self, rid: ResourceId) -> dict[str, Any]:
        """Return an embedded child's part of its parent's body."""
        found = self._element(self.find(rid), rid)
        if found is None:
            raise not_found(rid.short, rid.group)
        return found

    def exists(self, rid: ResourceId) -> bool:
        """Whether a resource of this id exists and is not being deleted."""
        try:
            return self.find(rid).state != "Deleting"
        except ArmError:
            return False

    def of_type(self, resource_type: str) -> Iterator[Record]:
        """Return the resources of a type in all groups."""
        return (r for r in list(self.resources.values()) if r.kind.type == resource_type)

    def inside(self, rid: ResourceId) -> list[Record]:
        """Return the resources below ``rid`` or extending it, the innermost first."""
        found = [r for r in self.resources.values() if rid.contains(r.id) and r.id.key != rid.key]
        return sorted(found, key=lambda r: str(r.id).count("/"), reverse=True)

    def holders(self, rid: ResourceId) -> Iterator[ResourceId]:
        """Yield what outside ``rid`` refers to it or to something in it."""
        inside = f"{rid.key}/"
        for record in self.resources.values():
            if f"{record.id.key}/".startswith(inside):
                continue
            for holder, target in references(record.id, record.body, record.kind.children, record.kind.loose):
                if f"{target.key}/".startswith(inside) and not inside.startswith(f"{holder.key}/"):
                    yield self._shown_holder(record, holder)

    def add(self, record: Record) -> None:
        """Store a resource that another one made."""
        self.resources[record.id.key] = record

    def implied(self, rid: ResourceId) -> Record | None:
        """Return the singleton of this id, which exists whenever its parent does."""
        kind = self.types.find(rid.type)
        if kind is None or not kind.singleton or rid.name != "default" or not self.exists(rid.parent):
            return None
        return self.resources.setdefault(rid.key, Record(rid, kind, {}, "Succeeded"))

    def _shown_holder(self, record: Record, holder: ResourceId) -> ResourceId:
        # Azure names a VM of a scale set, not the scale set.
        scale_set = self.scale_sets.get(record.id.key)
        if scale_set is None or not scale_set.instances:
            return holder
        return record.id.child("virtualMachines", str(min(scale_set.instances)))

    def _owner(self, rid: ResourceId) -> ResourceId:
        kind = self.types.find(rid.type)
        return rid.parent if kind is not None and kind.embedded else rid

    def _element(self, record: Record, rid: ResourceId) -> dict[str, Any] | None:
        kind = self.types.find(rid.type)
        if kind is None or not kind.embedded:
            return None
        named = (e for e in record.children(kind.collection) if e.get("name", "").lower() == rid.name.lower())
        return next(named, None)
