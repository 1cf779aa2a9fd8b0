"""The state of the emulated subscription: what exists, what is under way, what refers to what."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any

from rehearsal.arm.core import behaviour
from rehearsal.arm.core.errors import ArmError, conflict, group_not_found, not_found
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Fault, Faults, Operation, Operations
from rehearsal.arm.core.records import Instance, Record, ScaleSet, place
from rehearsal.arm.core.references import references
from rehearsal.arm.core.registry import GROUP, Kind, kind_of
from rehearsal.arm.network.load_balancer import Balancer
from rehearsal.arm.offers.figures import Figures
from rehearsal.arm.offers.regions import check_region
from rehearsal.arm.storage.blobs import Blobs, NoBlobs
from rehearsal.imds.scheduled_events import ScheduledEvents
from rehearsal.imds.tokens import Tokens
from rehearsal.vms.api import Machines

__all__ = ["OPERATOR", "Subscription"]

OPERATOR = "00000000-0000-0000-0000-00000000000b"
"""The object id of whoever asks without a token: the owner of the subscription."""
_HOLDERS_FIRST = (
    "virtualMachineScaleSets",
    "virtualMachines",
    "privateEndpoints",
    "networkInterfaces",
    "loadBalancers",
    "virtualNetworks",
)


class Subscription:
    """Everything in one subscription; all writes of the endpoint end here.

    ``machines`` makes VMs, networks and forwards real; ``faults`` is consulted once for every write.
    """

    def __init__(
        self,
        subscription_id: str,
        machines: Machines,
        faults: Faults | None = None,
        blobs: Blobs | None = None,
    ) -> None:
        self.id, self.machines, self.faults = subscription_id, machines, faults
        self.groups: dict[str, Record] = {}
        self.resources: dict[str, Record] = {}
        self.scale_sets: dict[str, ScaleSet] = {}
        self.virtual_machines: dict[str, Instance] = {}
        """VMs that are in no scale set, by their key."""
        self.figures = Figures()
        self.operations = Operations()
        self.blobs: Blobs = blobs or NoBlobs()
        self.endpoints: dict[str, dict[str, str]] = {}
        """Endpoints of storage accounts that are real here, by the account's key."""
        self.taken_names: set[str] = set()
        """Names that a storage account of somebody else has."""
        self.people: set[str] = {OPERATOR}
        """Object ids of users: the operator, and whom a test adds."""
        self.balancer = Balancer(self)
        self.tokens = Tokens()
        self.events = ScheduledEvents()

    # -- looking ------------------------------------------------------------------------------------------

    def group(self, rid: ResourceId) -> Record:
        """The resource group that ``rid`` is or lies in."""
        found = self.groups.get(ResourceId(self.id, rid.group).key)
        if found is None:
            raise group_not_found(rid.group)
        return found

    def find(self, rid: ResourceId) -> Record:
        """The resource of this id; for a child, the resource it lives in."""
        if rid.group:
            group = self.group(rid)
            if not rid.parts:
                return group
        owner = self._owner(rid)
        found = self.resources.get(owner.key) or self._implied(owner)
        if found is None or (owner is not rid and self._element(found, rid) is None):
            raise not_found(rid.short, rid.group)
        return found

    def element(self, rid: ResourceId) -> dict[str, Any]:
        """A child's part of its parent's body."""
        found = self._element(self.find(rid), rid)
        if found is None:
            raise not_found(rid.short, rid.group)
        return found

    def exists(self, rid: ResourceId) -> bool:
        """Whether a resource of this id is there and stays."""
        try:
            return self.find(rid).state != "Deleting"
        except ArmError:
            return False

    def of_type(self, resource_type: str) -> Iterator[Record]:
        """The resources of a type in all groups."""
        return (r for r in list(self.resources.values()) if r.kind.type == resource_type)

    def inside(self, rid: ResourceId) -> list[Record]:
        """What lies in ``rid`` or extends it, the innermost first."""
        found = [r for r in self.resources.values() if rid.contains(r.id) and r.id.key != rid.key]
        return sorted(found, key=lambda r: str(r.id).count("/"), reverse=True)

    def holders(self, rid: ResourceId) -> Iterator[ResourceId]:
        """What outside ``rid`` refers to it or to something in it."""
        inside = f"{rid.key}/"
        for record in self.resources.values():
            if f"{record.id.key}/".startswith(inside):
                continue
            for holder, target in references(record.id, record.body, record.kind.children, record.kind.loose):
                if f"{target.key}/".startswith(inside) and not inside.startswith(f"{holder.key}/"):
                    yield self._shown_holder(record, holder)

    def _shown_holder(self, record: Record, holder: ResourceId) -> ResourceId:
        scale_set = self.scale_sets.get(record.id.key)
        if scale_set is None or not scale_set.instances:
            return holder
        return record.id.child("virtualMachines", str(min(scale_set.instances)))

    @staticmethod
    def _owner(rid: ResourceId) -> ResourceId:
        kind = kind_of(rid.type)
        return rid.parent if kind is not None and kind.embedded else rid

    @staticmethod
    def _element(record: Record, rid: ResourceId) -> dict[str, Any] | None:
        kind = kind_of(rid.type)
        if kind is None or not kind.embedded:
            return None
        named = (e for e in record.children(kind.collection) if e.get("name", "").lower() == rid.name.lower())
        return next(named, None)

    def _implied(self, rid: ResourceId) -> Record | None:
        kind = kind_of(rid.type)
        if kind is None or not kind.singleton or rid.name != "default" or not self.exists(rid.parent):
            return None
        return self.resources.setdefault(rid.key, Record(rid, kind, {}, "Succeeded"))

    # -- writing ------------------------------------------------------------------------------------------

    def put(self, rid: ResourceId, body: dict[str, Any], verb: str = "put") -> tuple[bool, Operation | None]:
        """Makes or changes a resource from a checked body; says whether it is new, and what goes on."""
        kind = kind_of(rid.type)
        if kind is None:
            problem = f"The resource type '{rid.type.partition('/')[2]}' could not be found in the namespace "
            raise ArmError(400, "InvalidResourceType", f"{problem}'{rid.namespace}'.")
        if "location" in body:
            check_region(rid, body["location"])
        if kind is GROUP:
            return self._put_group(rid, body), None
        if rid.group and self.group(rid).state == "Deleting":
            raise _leaving(rid.group)
        if kind.embedded:
            return self._put_child(rid, kind, body)
        if rid.parent.parts and not self.exists(rid.parent):
            if kind.extends:
                raise not_found(rid.parent.short, rid.group)
            raise _no_parent(rid)
        record = self.resources.get(rid.key) or self._implied(rid)
        if record is not None and record.busy:
            raise self._conflict(record)
        fault = self._fault(verb, rid)
        old = record.body if record is not None else None
        body = behaviour.accept(self, rid, kind, body, old)
        new = record is None
        if record is None:
            record = Record(rid, kind, body)
            self.resources[rid.key] = record
        record.body, record.state = body, "Creating" if new else "Updating"
        record.etag = str(uuid.uuid4())
        return new, self._start(record, behaviour.apply(self, record, old), fault, "Succeeded")

    def _put_group(self, rid: ResourceId, body: dict[str, Any]) -> bool:
        old = self.groups.get(rid.key)
        fault = self._fault("put", rid)
        if fault and fault.error:
            raise fault.error
        if old is None:
            self.groups[rid.key] = Record(rid, GROUP, body, "Succeeded")
            return True
        if old.state == "Deleting":
            raise _leaving(rid.group)
        if place(old.body["location"]) != place(body["location"]):
            raise ArmError(
                409,
                "InvalidResourceGroupLocation",
                f"Invalid resource group location '{body['location']}'. "
                f"The Resource group already exists in location '{old.body['location']}'.",
            )
        old.body = body
        return False

    def _put_child(self, rid: ResourceId, kind: Kind, body: dict[str, Any]) -> tuple[bool, Operation | None]:
        if self.resources.get(rid.parent.key) is None:
            raise _no_parent(rid)
        parent = self.find(rid.parent)
        merged = copy.deepcopy(parent.body)
        merged.setdefault("properties", {})
        present = parent.children(kind.collection)
        others = [e for e in present if e.get("name", "").lower() != rid.name.lower()]
        new = len(others) == len(present)
        merged["properties"][kind.collection] = [*others, {**body, "name": rid.name}]
        return new, self.put(rid.parent, merged)[1]

    def delete(self, rid: ResourceId) -> Operation | None:
        """Starts removing a resource; None when there is none."""
        if not rid.parts:
            return self._delete_group(rid)
        try:
            record = self.find(rid)
        except ArmError as error:
            if error.code == "ResourceGroupNotFound":
                raise
            return None
        if record.state == "Deleting":
            return record.operation
        if record.busy:
            raise self._conflict(record)
        if record.kind.singleton:
            raise ArmError(405, "MethodNotAllowed", f"{rid} goes with the resource it belongs to.")
        behaviour.refuse_in_use(self, rid)
        if record.kind.embedded or record.id.key != rid.key:
            return self._delete_child(record, rid)
        fault = self._fault("delete", rid)
        record.state = "Deleting"
        return self._start(record, self._remove(record), fault, "Deleting")

    def _delete_child(self, record: Record, rid: ResourceId) -> Operation | None:
        merged = copy.deepcopy(record.body)
        collection = rid.parts[-2]
        for name, elements in merged["properties"].items():
            if name.lower() == collection.lower():
                kept = [e for e in elements if e.get("name", "").lower() != rid.name.lower()]
                merged["properties"][name] = kept
        return self.put(record.id, merged, "delete")[1]

    def _delete_group(self, rid: ResourceId) -> Operation:
        group = self.group(rid)
        if group.state == "Deleting" and group.operation is not None:
            return group.operation
        fault = self._fault("delete", rid)
        group.state = "Deleting"
        return self._start(group, self._empty(group), fault, "Succeeded")

    async def _empty(self, group: Record) -> None:
        inside = f"{group.id.key}/"
        members = [r for r in self.resources.values() if r.id.key.startswith(inside)]
        # Machines hold on to interfaces, subnets and pools, balancers and subnets to addresses: the holders
        # go first, and what lies in a resource before it.
        rank = {collection: number for number, collection in enumerate(_HOLDERS_FIRST)}
        members.sort(key=lambda r: (rank.get(r.kind.collection, len(rank)), -str(r.id).count("/")))
        for record in members:
            if record.operation is not None:
                await record.operation.done.wait()
            record.state = "Deleting"
        for record in members:
            await self._remove(record)
        self.groups.pop(group.id.key, None)

    async def _remove(self, record: Record) -> None:
        for inner in self.inside(record.id):
            inner.state = "Deleting"
            await behaviour.remove(self, inner)
            self.resources.pop(inner.id.key, None)
        await behaviour.remove(self, record)
        self.resources.pop(record.id.key, None)

    def forget(self, record: Record) -> None:
        """Takes back a resource whose making failed before anybody was told that it is there."""
        self.resources.pop(record.id.key, None)

    # -- operations ---------------------------------------------------------------------------------------

    def begin(
        self, record: Record, verb: str, work: Coroutine[Any, Any, Any], state: str | None
    ) -> Operation:
        """An action on a resource; with ``state`` it is a change, which no other may overlap."""
        if state is not None and record.busy:
            work.close()
            raise self._conflict(record)
        try:
            fault = self._fault(verb, record.id)
        except ArmError:
            work.close()
            raise
        if state is None:
            namespace = record.kind.type.split("/")[0]
            return self.operations.start(namespace, self._place(record), work, fault, _nothing)
        record.state = state
        operation = self._start(record, work, fault, "Succeeded")
        operation.subject = None  # an action's answer in the end is what came of it, not the resource
        return operation

    def _start(
        self, record: Record, work: Coroutine[Any, Any, Any], fault: Fault | None, then: str
    ) -> Operation:
        def ended(operation: Operation) -> None:
            record.state = "Failed" if operation.error else then

        namespace = record.kind.namespace
        record.operation = self.operations.start(namespace, self._place(record), work, fault, ended)
        record.operation.subject = record.id
        return record.operation

    def _place(self, record: Record) -> str:
        if not record.body.get("location") and not record.id.group:
            return "global"
        return place(record.body.get("location") or self.group(record.id).body["location"])

    def _fault(self, verb: str, rid: ResourceId) -> Fault | None:
        fault = self.faults(verb, rid) if self.faults is not None else None
        if fault is not None and fault.at_request and fault.error is not None:
            raise fault.error
        return fault

    def _conflict(self, record: Record) -> ArmError:
        path = record.operation.path if record.operation else ""
        return conflict(record.id.namespace, f"/subscriptions/{self.id}{path}")

    async def close(self) -> None:
        """Stops what is under way and the accounts' blobs; the machines are the caller's to close."""
        await self.operations.close()
        await self.blobs.close()
        await asyncio.sleep(0)


def _no_parent(rid: ResourceId) -> ArmError:
    problem = "Can not perform requested operation on nested resource. Parent resource "
    return ArmError(404, "ParentResourceNotFound", f"{problem}'{rid.parent.name}' not found.")


def _leaving(group: str) -> ArmError:
    return ArmError(
        409,
        "ResourceGroupBeingDeleted",
        f"The resource group '{group}' is in deprovisioning state and cannot perform this operation.",
    )


def _nothing(_: Operation) -> None:
    """Nothing of the resource changes when the operation ends."""
